# SPDX-License-Identifier: Apache-2.0
"""Adds up and orders rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from qjoule.model.interval import RowErrors, of_recordings
from qjoule.model.labels import SEVERAL
from qjoule.model.result import PARTS, Row, Waits

Ends = tuple[float, float]


def in_order(rows: Iterable[Row]) -> tuple[tuple[Row, ...], tuple[Row, ...]]:
    """Rows of queries, most energy first and those outside of the selection last; then the other
    parts."""
    order = {part: i for i, part in enumerate(PARTS)}
    found = sorted(
        rows,
        key=lambda row: (
            order[row.kind],
            row.not_selected,
            -row.energy_nj,
            -row.cpu_ns,
            sorted(row.keys.items()),
        ),
    )
    queries = tuple(row for row in found if row.kind == "queries")
    return queries, tuple(found[len(queries) :])


def without(rows: Sequence[Row], key: str) -> Sequence[Row]:
    """Rows without that key; rows that are then equal are joined."""
    if not any(key in row.keys for row in rows):
        return rows
    return merged(
        replace(row, keys={name: of for name, of in row.keys.items() if name != key})
        for row in rows
    )


def merged(rows: Iterable[Row]) -> list[Row]:
    """Joins rows of the same identity, in order of appearance."""
    groups: dict[object, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.identity, []).append(row)
    return [
        found[0] if len(found) == 1 else added(found, found[0].keys, apart=False)
        for found in groups.values()
    ]


def added(rows: Sequence[Row], keys: Mapping[str, str], *, apart: bool) -> Row:
    """Joins several rows into one, with `keys`; counts, times and energies add up exactly.

    `apart`: the rows are from different recordings, whose random errors are independent. Within one
    recording, errors are treated as common, and the intervals' ends add up. Quantiles and power
    factors of a sum cannot be computed from those of its parts. The order of rows does not matter.
    """
    shapes = {row.shape for row in rows}
    energy_nj = sum(row.energy_nj for row in rows)
    domains = {
        name: sum(row.energy_by_domain_nj[name] for row in rows)
        for name in rows[0].energy_by_domain_nj
        if all(name in row.energy_by_domain_nj for row in rows)
    }
    error, error_by_domain = errors_of(rows, domains, of_recordings) if apart else (None, {})
    ends_by_domain = {
        name: _ends(error_by_domain.get(name), domains[name], ends)
        for name, ends in _common_ends(rows).items()
        if name in domains
    }
    shared = [row.shared_nj for row in rows]
    return Row(
        keys=dict(keys),
        shape=shapes.pop() if len(shapes) == 1 else "",
        server=_same([row.server for row in rows], SEVERAL),
        kind=rows[0].kind,
        calls=sum(row.calls for row in rows),
        energy_nj=energy_nj,
        energy_nj_ci95=_ends(error, energy_nj, [row.energy_nj_ci95 for row in rows]),
        share=math.fsum(row.share for row in rows),
        cpu_ns=sum(row.cpu_ns for row in rows),
        latency_ns_mean=_mean_ns(rows),
        cycles=_sum([row.cycles for row in rows]),
        instructions=_sum([row.instructions for row in rows]),
        llc_misses=_sum([row.llc_misses for row in rows]),
        attach_mode=_same([row.attach_mode for row in rows], ""),
        flags=tuple(sorted({flag for row in rows for flag in row.flags})),
        energy_by_domain_nj=domains,
        energy_by_domain_ci95=ends_by_domain,
        shared_nj=None if None in shared else sum(nj for nj in shared if nj is not None),
        timed=sum(row.timed for row in rows),
        waits=_waits(rows),
        error=error,
        error_by_domain=error_by_domain,
    )


def errors_of(
    rows: Sequence[Row],
    domains: Iterable[str],
    sum_of: Callable[[Sequence[RowErrors]], RowErrors],
) -> tuple[RowErrors | None, dict[str, RowErrors]]:
    """Errors of the rows' sum in the main domain and in others, where all rows have theirs."""
    main = [row.error for row in rows if row.error is not None]
    others = {
        name: [row.error_by_domain[name] for row in rows if name in row.error_by_domain]
        for name in domains
    }
    return (
        sum_of(main) if len(main) == len(rows) else None,
        {name: sum_of(one) for name, one in others.items() if len(one) == len(rows)},
    )


def _ends(error: RowErrors | None, energy_nj: int, ends: Sequence[Ends]) -> Ends:
    """The interval of a sum, from the errors of its parts, limited by the sum of all their ends.

    No part is below 0, so where a part's interval ends at 0, the ends may give the tighter limit.
    """
    lows, highs = math.fsum(low for low, _ in ends), math.fsum(high for _, high in ends)
    if error is None:
        return lows, highs
    low, high = error.ends(float(energy_nj))
    return max(float(low), lows), min(float(high), highs)


def _common_ends(rows: Sequence[Row]) -> dict[str, list[Ends]]:
    """Ends by domain, for the domains that every row has ends of."""
    return {
        name: [row.energy_by_domain_ci95[name] for row in rows]
        for name in rows[0].energy_by_domain_ci95
        if all(name in row.energy_by_domain_ci95 for row in rows)
    }


def _mean_ns(rows: Sequence[Row]) -> float | None:
    timed = [row for row in rows if row.latency_ns_mean is not None and row.timed]
    count = sum(row.timed for row in timed)
    waited_ns = math.fsum((row.latency_ns_mean or 0.0) * row.timed for row in timed)
    return waited_ns / count if count else None


def _waits(rows: Sequence[Row]) -> Waits | None:
    """The sum over the rows that have any: of the others' queries nothing is recorded."""
    recorded = [row.waits for row in rows if row.waits is not None]
    return Waits(*map(sum, zip(*recorded, strict=True))) if recorded else None


def _same(values: Sequence[str], several: str) -> str:
    return values[0] if len(set(values)) == 1 else several


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) if len(known) == len(values) else None
