# SPDX-License-Identifier: Apache-2.0
"""Rows of counters side by side: which are alike, and in what they differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from qjoule.api.model import F64
from qjoule_studies import characterise
from qjoule_studies.characterise import Metric, Row, TraceAbout
from qjoule_studies.kiviat import Kiviat, kiviat
from qjoule_studies.principal import Chosen, Principal, choose, clusters, principal, why_not


@dataclass(frozen=True)
class Characterisation:
    """What `qjoule characterise` shows.

    Attributes:
        metrics: those for which some row has a figure.
        missing: other metrics, with the event that no trace recorded.
        compared: rows and columns behind components and clusters.
        no_components: why there are none; then `principal` and `linkage` are None.
        linkage: as in `qjoule_studies.principal.clusters`, of `compared.rows`.
        diagram: None with less than three axes. Its rows are `rows`.
    """

    by: str
    traces: tuple[TraceAbout, ...]
    metrics: tuple[Metric, ...]
    missing: dict[str, str]
    rows: tuple[Row, ...]
    flags: tuple[str, ...]
    compared: Chosen
    no_components: str
    principal: Principal | None
    linkage: F64 | None
    diagram: Kiviat | None

    def table(self, rows: Sequence[Row]) -> F64:
        """The figures of some rows, (rows, metrics), NaN for unknown."""
        return figures(rows, self.metrics)

    def counted(self, metric: Metric) -> float:
        """Share of all rows' CPU time in which the events of a metric counted."""
        total_ns = sum(row.cpu_ns for row in self.rows)
        seen_ns = sum(
            row.cpu_ns * row.metrics[metric.name].counted
            for row in self.rows
            if metric.name in row.metrics
        )
        return seen_ns / total_ns if total_ns else 0.0


def figures(rows: Sequence[Row], metrics: Sequence[Metric]) -> F64:
    """Values (rows, metrics); NaN where a row has none."""
    table = np.full((len(rows), len(metrics)), np.nan)
    for i, row in enumerate(rows):
        for j, metric in enumerate(metrics):
            if metric.name in row.metrics:
                table[i, j] = row.metrics[metric.name].value
    return table


def characterisation(
    by: str, traces: Sequence[TraceAbout], rows: Sequence[Row]
) -> Characterisation:
    """Compares rows of one or more traces. Rows that stand for several are in no comparison."""
    recorded = {event for trace in traces for event in trace.events}
    present = {name for row in rows for name in row.metrics}
    metrics = tuple(m for m in characterise.metrics_of(recorded) if m.name in present)
    names = [metric.name for metric in metrics]
    whole = figures(rows, metrics)
    single = [i for i, row in enumerate(rows) if not row.folded]
    chosen = choose(whole[single], names, [rows[i].label for i in single])
    chosen = Chosen(
        chosen.values, tuple(single[i] for i in chosen.rows), chosen.columns, chosen.left_out
    )
    reason = why_not(chosen)
    components = None if reason else principal(chosen.values, chosen.columns)
    linkage = None
    if components is not None:
        linkage = clusters(components.scores[:, : components.kept])
    return Characterisation(
        by,
        tuple(traces),
        metrics,
        characterise.missing(recorded),
        tuple(rows),
        tuple(characterise.flags(traces)),
        chosen,
        reason,
        components,
        linkage,
        kiviat(whole, names),
    )
