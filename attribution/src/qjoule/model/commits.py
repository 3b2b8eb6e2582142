# SPDX-License-Identifier: Apache-2.0
"""Joins a transaction's two rows: that of its COMMIT, and that of its other queries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from qjoule.model.interval import of_one_recording
from qjoule.model.labels import GroupLabel
from qjoule.model.latency import CallStats
from qjoule.model.result import Attribution, Row
from qjoule.model.row_sums import errors_of

COMMIT = "commit"  #: key of a query that was its transaction's COMMIT or ROLLBACK


def with_commits(
    found: Attribution, labels: Sequence[GroupLabel], commits: CallStats
) -> Attribution:
    """The attribution with each transaction in one row, which includes its COMMIT's part.

    `labels` and `commits` (durations of COMMITs) are per group.
    """
    means = zip(labels, commits.latency_ns_mean.tolist(), strict=False)
    took_ns = {label.keys: mean for label, mean in means if label.kind == "queries"}
    parts: dict[tuple[tuple[str, str], ...], list[Row]] = {}
    for row in found.rows:
        keys = tuple((key, value) for key, value in row.keys.items() if key != COMMIT)
        parts.setdefault(keys, []).append(row)
    rows = [_joined(dict(keys), some, took_ns) for keys, some in parts.items()]
    rows.sort(key=lambda row: (-row.energy_nj, -row.cpu_ns, sorted(row.keys.items())))
    return replace(found, rows=tuple(rows))


def _joined(
    keys: dict[str, str], rows: list[Row], took_ns: dict[tuple[tuple[str, str], ...], float]
) -> Row:
    """Merges a transaction's two rows. Their errors are common, so the ends of their intervals
    add up."""
    most = max(rows, key=lambda row: row.calls)
    commit = next((row for row in rows if row.keys[COMMIT]), None)
    flags = dict.fromkeys(flag for row in rows for flag in row.flags)
    short = all("below_resolution" in row.flags for row in rows)
    domains = most.energy_by_domain_nj
    error, error_by_domain = errors_of(rows, most.error_by_domain, of_one_recording)
    return replace(
        most,
        keys=keys,
        shape=most.shape if "fingerprint" in keys else "",
        energy_nj=sum(row.energy_nj for row in rows),
        energy_nj_ci95=_ends([row.energy_nj_ci95 for row in rows]),
        share=sum(row.share for row in rows),
        cpu_ns=sum(row.cpu_ns for row in rows),
        cycles=_sum([row.cycles for row in rows]),
        instructions=_sum([row.instructions for row in rows]),
        llc_misses=_sum([row.llc_misses for row in rows]),
        flags=tuple(flag for flag in flags if short or flag != "below_resolution"),
        energy_by_domain_nj={n: sum(row.energy_by_domain_nj[n] for row in rows) for n in domains},
        energy_by_domain_ci95={
            n: _ends([row.energy_by_domain_ci95[n] for row in rows])
            for n in most.energy_by_domain_ci95
        },
        error=error,
        error_by_domain=error_by_domain,
        power_factor=most.power_factor if len(rows) == 1 else None,
        alone=most.alone if len(rows) == 1 else None,
        shared_nj=_sum([row.shared_nj for row in rows]),
        commit_nj=commit.energy_nj if commit else None,
        commit_ns_mean=took_ns.get(tuple(commit.keys.items())) if commit else None,
    )


def _ends(intervals: list[tuple[float, float]]) -> tuple[float, float]:
    return sum(low for low, _ in intervals), sum(high for _, high in intervals)


def _sum(values: Sequence[Any]) -> Any:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None
