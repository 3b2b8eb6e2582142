"""Fewer rows: the first stay, the others become one that still adds up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from qjoule.model.result import Attribution, Row


def fold_rows(attribution: Attribution, top: int) -> Attribution:
    """The first `top` rows of queries and one for all others.

    Latency quantiles of the folded row are unknown; its interval adds up its rows' ends, since
    their errors are common.
    """
    rest = attribution.rows[top:]
    if len(rest) < 2:
        return attribution
    return replace(attribution, rows=(*attribution.rows[:top], _fold(rest)))


def _fold(rows: Sequence[Row]) -> Row:
    name = f"({len(rows)} others)"
    calls = sum(row.calls for row in rows)
    timed = [row for row in rows if row.latency_ns_mean is not None and row.calls]
    timed_calls = sum(row.calls for row in timed)
    waited_ns = sum((row.latency_ns_mean or 0.0) * row.calls for row in timed)
    domains = rows[0].energy_by_domain_nj
    rungs = {row.rung for row in rows}
    servers = {row.server for row in rows}
    return Row(
        keys=dict.fromkeys(rows[0].keys, name),
        shape=name,
        server=servers.pop() if len(servers) == 1 else "(several)",
        kind="queries",
        calls=calls,
        energy_nj=sum(row.energy_nj for row in rows),
        energy_nj_ci95=(
            sum(row.energy_nj_ci95[0] for row in rows),
            sum(row.energy_nj_ci95[1] for row in rows),
        ),
        share=sum(row.share for row in rows),
        cpu_ns=sum(row.cpu_ns for row in rows),
        latency_ns_mean=waited_ns / timed_calls if timed_calls else None,
        cycles=_sum([row.cycles for row in rows]),
        instructions=_sum([row.instructions for row in rows]),
        llc_misses=_sum([row.llc_misses for row in rows]),
        rung=rungs.pop() if len(rungs) == 1 else "",
        energy_by_domain_nj={n: sum(row.energy_by_domain_nj[n] for row in rows) for n in domains},
    )


def _sum(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None
