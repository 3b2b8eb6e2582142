# SPDX-License-Identifier: Apache-2.0
"""Sorts rows, and joins rows so that every sum is unchanged.

`merged` adds up rows of equal keys, `fold_rows` keeps the first and joins the others into one, and
`with_commits` joins a transaction's two rows: that of its COMMIT, and that of its other queries.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from qjoule.model.call_outcomes import Waits
from qjoule.model.interval import RowErrors, of_one_recording, of_recordings
from qjoule.model.labels import SEVERAL, GroupLabel
from qjoule.model.latency import CallStats
from qjoule.model.result import PARTS, Attribution, Row
from qjoule.model.shares import sum_of_shares

Ends = tuple[float, float]
COMMIT = "commit"  #: key of a query that was its transaction's COMMIT or ROLLBACK


def in_order(rows: Iterable[Row]) -> tuple[tuple[Row, ...], tuple[Row, ...]]:
    """Rows of queries, most energy first and those outside of the selection last; then the other
    parts."""
    order = {part: i for i, part in enumerate(PARTS)}
    ordered = sorted(
        rows,
        key=lambda row: (
            order[row.kind],
            row.not_selected,
            -row.energy_nj,
            -row.cpu_ns,
            sorted(row.keys.items()),
        ),
    )
    queries = tuple(row for row in ordered if row.kind == "queries")
    return queries, tuple(ordered[len(queries) :])


def without(rows: Sequence[Row], key: str) -> Sequence[Row]:
    """Rows without that key; rows that are then equal are joined."""
    if not any(key in row.keys for row in rows):
        return rows
    return merged(
        replace(row, keys={name: value for name, value in row.keys.items() if name != key})
        for row in rows
    )


def merged(rows: Iterable[Row]) -> list[Row]:
    """Joins rows of the same identity, in order of appearance."""
    groups: dict[object, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.identity, []).append(row)
    return [
        same_rows[0] if len(same_rows) == 1 else added(same_rows, same_rows[0].keys, apart=False)
        for same_rows in groups.values()
    ]


def added(rows: Sequence[Row], keys: Mapping[str, str], *, apart: bool) -> Row:
    """Joins several rows into one, with `keys`; counts, times and energies add up exactly.

    `apart`: the rows are from different recordings, whose random errors are independent. Within one
    recording, errors are treated as common, and the intervals' ends add up. The joined row has no
    quantiles and no power factor, which cannot be computed from its parts. The order of rows does
    not matter.
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
    share, share_ci95, share_error = sum_of_shares(rows, of_one_recording)
    return Row(
        keys=dict(keys),
        shape=shapes.pop() if len(shapes) == 1 else "",
        server=_common_value([row.server for row in rows], SEVERAL),
        kind=rows[0].kind,
        calls=sum(row.calls for row in rows),
        energy_nj=energy_nj,
        energy_nj_ci95=_ends(error, energy_nj, [row.energy_nj_ci95 for row in rows]),
        share=share,
        cpu_ns=sum(row.cpu_ns for row in rows),
        latency_ns_mean=_mean_ns(rows),
        cycles=_sum([row.cycles for row in rows]),
        instructions=_sum([row.instructions for row in rows]),
        llc_misses=_sum([row.llc_misses for row in rows]),
        attach_mode=_common_value([row.attach_mode for row in rows], ""),
        flags=tuple(sorted({flag for row in rows for flag in row.flags})),
        energy_by_domain_nj=domains,
        energy_by_domain_ci95=ends_by_domain,
        shared_nj=_sum_of_whole([row.shared_nj for row in rows]),
        timed=sum(row.timed for row in rows),
        waits=Waits.added(row.waits for row in rows),
        helpers=Waits.added(row.helpers for row in rows),
        waiting_nj=_sum([row.waiting_nj for row in rows]),
        stolen_ns=_stolen_ns(rows),
        error=error,
        error_by_domain=error_by_domain,
        share_ci95=share_ci95,
        share_error=share_error,
    )


def errors_of(
    rows: Sequence[Row],
    domains: Iterable[str],
    sum_of: Callable[[Sequence[RowErrors]], RowErrors],
) -> tuple[RowErrors | None, dict[str, RowErrors]]:
    """Errors of the rows' sum in the main domain and in `domains`, for domains in which every row
    has errors. `sum_of`: combines them."""
    main = [row.error for row in rows if row.error is not None]
    others = {
        name: [row.error_by_domain[name] for row in rows if name in row.error_by_domain]
        for name in domains
    }
    return (
        sum_of(main) if len(main) == len(rows) else None,
        {name: sum_of(errors) for name, errors in others.items() if len(errors) == len(rows)},
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
    """The rows' intervals by domain, for domains in which every row has one."""
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


def _stolen_ns(rows: Sequence[Row]) -> int | None:
    recorded = [row.stolen_ns for row in rows if row.stolen_ns is not None]
    return sum(recorded) if recorded else None


def _common_value(values: Sequence[str], several: str) -> str:
    return values[0] if len(set(values)) == 1 else several


def _sum(values: Sequence[float | None]) -> float | None:
    recorded = [value for value in values if value is not None]
    return math.fsum(recorded) if len(recorded) == len(values) else None


def with_commits(
    attribution: Attribution, labels: Sequence[GroupLabel], commits: CallStats
) -> Attribution:
    """The attribution with each transaction in one row, which includes its COMMIT's part.

    `labels` and `commits` (durations of COMMITs) are per group.
    """
    means = zip(labels, commits.latency_ns_mean.tolist(), strict=False)
    took_ns = {label.keys: mean for label, mean in means if label.kind == "queries"}
    parts: dict[tuple[tuple[str, str], ...], list[Row]] = {}
    for row in attribution.rows:
        keys = tuple((key, value) for key, value in row.keys.items() if key != COMMIT)
        parts.setdefault(keys, []).append(row)
    rows = [_joined(dict(keys), same_rows, took_ns) for keys, same_rows in parts.items()]
    rows.sort(key=lambda row: (-row.energy_nj, -row.cpu_ns, sorted(row.keys.items())))
    return replace(attribution, rows=tuple(rows))


def _joined(
    keys: dict[str, str], rows: list[Row], took_ns: dict[tuple[tuple[str, str], ...], float]
) -> Row:
    """Merges a transaction's two rows. Their errors are common, so the ends of their intervals
    add up."""
    main_row = max(rows, key=lambda row: row.calls)
    commit = next((row for row in rows if row.keys[COMMIT]), None)
    flags = dict.fromkeys(flag for row in rows for flag in row.flags)
    all_short = all("below_resolution" in row.flags for row in rows)
    domains = main_row.energy_by_domain_nj
    error, error_by_domain = errors_of(rows, main_row.error_by_domain, of_one_recording)
    share, share_ci95, share_error = sum_of_shares(rows, of_one_recording)
    return replace(
        main_row,
        keys=keys,
        shape=main_row.shape if "fingerprint" in keys else "",
        energy_nj=sum(row.energy_nj for row in rows),
        energy_nj_ci95=_sum_of_ends([row.energy_nj_ci95 for row in rows]),
        share=share,
        share_ci95=share_ci95,
        share_error=share_error,
        cpu_ns=sum(row.cpu_ns for row in rows),
        cycles=_sum_of_whole([row.cycles for row in rows]),
        instructions=_sum_of_whole([row.instructions for row in rows]),
        llc_misses=_sum_of_whole([row.llc_misses for row in rows]),
        flags=tuple(flag for flag in flags if all_short or flag != "below_resolution"),
        energy_by_domain_nj={n: sum(row.energy_by_domain_nj[n] for row in rows) for n in domains},
        energy_by_domain_ci95={
            n: _sum_of_ends([row.energy_by_domain_ci95[n] for row in rows])
            for n in main_row.energy_by_domain_ci95
        },
        error=error,
        error_by_domain=error_by_domain,
        power_factor=main_row.power_factor if len(rows) == 1 else None,
        alone=main_row.alone if len(rows) == 1 else None,
        shared_nj=_sum_of_whole([row.shared_nj for row in rows]),
        commit_nj=commit.energy_nj if commit else None,
        commit_ns_mean=took_ns.get(tuple(commit.keys.items())) if commit else None,
    )


def _sum_of_ends(intervals: list[tuple[float, float]]) -> tuple[float, float]:
    return sum(low for low, _ in intervals), sum(high for _, high in intervals)


def _sum_of_whole(values: Sequence[Any]) -> Any:
    recorded = [value for value in values if value is not None]
    return sum(recorded) if len(recorded) == len(values) else None


def fold_rows(attribution: Attribution, top: int) -> Attribution:
    """Keeps the first `top` rows of queries and joins all others into one.

    Latency quantiles of the joined row are unknown. Its interval adds up the ends of its rows'
    intervals, since their errors are common.
    """
    other_rows = attribution.rows[top:]
    if len(other_rows) < 2:
        return attribution
    name = f"({len(other_rows)} others)"
    folded = added(other_rows, dict.fromkeys(other_rows[0].keys, name), apart=False)
    folded = replace(folded, shape=name, flags=())
    return replace(attribution, rows=(*attribution.rows[:top], folded))
