# SPDX-License-Identifier: Apache-2.0
"""Rows of counters side by side: which are alike, and in what they differ.

Kiviat (radar) diagrams show each row's figures as shares of the greatest that any row has, as in
figure 12 of Panda et al. (SBAC-PAD 2015), "normalized by their maximum observed values".

Principal components and clusters follow section IV.D of the same paper, after Phansalkar et al.
(ISPASS 2005): columns are standardised, their principal components computed, and rows clustered in
that space. Pure functions on arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress

import numpy as np
import numpy.typing as npt

from qjoule.api.model import F64
from qjoule_studies import characterise
from qjoule_studies.characterise import Metric, Row, TraceAbout

LEAST_AXES = 3
#: The axes of the paper's figure, in order.
PAPER_AXES = (
    "l1d_mpki",
    "l1i_mpki",
    "llc_mpki",
    "dtlb_mpki",
    "itlb_mpki",
    "kernel_instruction_share",
    "branch_miss_share",
    "stall_frontend_share",
)
#: Replacements for axes that were not recorded.
INSTEAD = {
    "kernel_instruction_share": ("kernel_cycle_share",),
    "branch_miss_share": ("branch_mpki",),
}
FURTHER_AXES = ("ipc", "frequency_ghz", "stall_backend_share", "l2_mpki", "memory_mb_s")


@dataclass(frozen=True)
class Kiviat:
    """`values` (rows, axes) from 0 to 1, NaN unknown; `greatest` (axes,) is what 1 stands for."""

    axes: tuple[str, ...]
    values: F64
    greatest: F64


def kiviat(table: F64, columns: Sequence[str]) -> Kiviat | None:
    """The diagram of a table (rows, columns) with NaN for unknown; None with less than three axes.

    An axis is a column with some value above 0. The paper's come first; others only where there
    would be less than three.
    """
    usable = [
        name for j, name in enumerate(columns) if (np.nan_to_num(table[:, j], nan=0.0) > 0).any()
    ]
    axes = []
    for name in PAPER_AXES:
        column = next(
            (column for column in (name, *INSTEAD.get(name, ())) if column in usable), None
        )
        if column is not None:
            axes.append(column)
    for name in FURTHER_AXES:
        if len(axes) < LEAST_AXES and name in usable:
            axes.append(name)
    if len(axes) < LEAST_AXES:
        return None
    values = table[:, [list(columns).index(name) for name in axes]]
    greatest = np.nanmax(values, axis=0)
    return Kiviat(tuple(axes), np.asarray(values / greatest), np.asarray(greatest))


LEAST_ROWS = 3
_CONSTANT = 1e-12  #: a spread below this share of a column's size is rounding


@dataclass(frozen=True)
class Chosen:
    """The comparable part of a table: `values` (rows, columns) has no NaN.

    `left_out` gives the reason for each missing column and row.
    """

    values: F64
    rows: tuple[int, ...]  #: places in the table that was given
    columns: tuple[str, ...]
    left_out: tuple[str, ...]


@dataclass(frozen=True)
class Principal:
    """Components by falling variance.

    Attributes:
        columns: what was standardised, m of them.
        loadings: (m, k) unit vectors; each one's largest entry is positive.
        scores: (n, k) the rows in the components' space.
        variance: (k,) eigenvalues of the correlation matrix; they add up to m.
        explained: (k,) as shares of their sum.
    """

    columns: tuple[str, ...]
    loadings: F64
    scores: F64
    variance: F64
    explained: F64

    @property
    def large_components(self) -> int:
        """Number of components with eigenvalues of 1 or more (Kaiser), at least two."""
        return min(max(int(np.count_nonzero(self.variance >= 1 - 1e-9)), 2), len(self.variance))


def choose(table: F64, columns: Sequence[str], names: Sequence[str]) -> Chosen:
    """The comparable part of a table (rows, columns) with NaN for unknown.

    Columns that most rows lack are left out, then rows that lack any of the others, then columns
    in which all rows are equal.
    """
    left_out = []
    finite = np.isfinite(table)
    use = [j for j in range(len(columns)) if 2 * finite[:, j].sum() > len(table)]
    left_out += [
        f"{columns[j]}: counted in {finite[:, j].sum()} of {len(table)} rows"
        for j in range(len(columns))
        if j not in use
    ]
    complete = finite[:, use].all(axis=1)
    left_out += [
        f"{names[i]}: {_lacking(finite[i], columns, use)}"
        for i in np.flatnonzero(~complete).tolist()
    ]
    rows = np.flatnonzero(complete)
    values = table[rows][:, use]
    if len(rows):
        spread = np.ptp(values, axis=0) > _CONSTANT * np.abs(values).max(axis=0)
        left_out += [f"{columns[j]}: the same in all rows" for j in compress(use, ~spread)]
        values, use = values[:, spread], list(compress(use, spread))
    return Chosen(values, tuple(map(int, rows)), tuple(columns[j] for j in use), tuple(left_out))


def _lacking(finite: npt.NDArray[np.bool_], columns: Sequence[str], use: Sequence[int]) -> str:
    return "lacks " + ", ".join(columns[j] for j in use if not finite[j])


def why_not(chosen: Chosen) -> str:
    """Why there are no components; empty if there are."""
    rows, columns = chosen.values.shape
    if rows < LEAST_ROWS:
        return f"{rows} row{'' if rows == 1 else 's'} to compare, {LEAST_ROWS} needed"
    if columns < 2:
        return f"{columns} column{'' if columns == 1 else 's'} that differ between rows, 2 needed"
    return ""


def standardised(values: F64) -> F64:
    """Columns with mean 0 and sample standard deviation 1 (n - 1)."""
    return np.asarray((values - values.mean(axis=0)) / values.std(axis=0, ddof=1))


def principal(values: F64, columns: Sequence[str]) -> Principal:
    """Principal components of the standardised columns of `values` (n >= 2, m), none constant.

    The same as R's `prcomp(values, scale. = TRUE)`, but for signs.
    """
    from sklearn.decomposition import PCA  # noqa: PLC0415 - an extra, and slow to import

    fitted = PCA(svd_solver="full")
    scores = fitted.fit_transform(standardised(values))
    loadings = fitted.components_.T
    largest = np.abs(loadings).argmax(axis=0)
    sign = np.sign(loadings[largest, np.arange(loadings.shape[1])])
    return Principal(
        tuple(columns),
        loadings * sign,
        scores * sign,
        fitted.explained_variance_,
        fitted.explained_variance_ratio_,
    )


def clusters(points: F64) -> F64:
    """Average linkage (UPGMA) by Euclidean distance of `points` (n >= 2, k).

    Returns:
        (n - 1, 4) as `scipy.cluster.hierarchy.linkage` has it: the two clusters that are joined,
        their distance, and how many rows the new one has.
    """
    from scipy.cluster.hierarchy import linkage  # noqa: PLC0415 - slow to import

    return np.asarray(linkage(points, "average", metric="euclidean"))


@dataclass(frozen=True)
class Characterisation:
    """What `qjoule characterise` shows.

    Attributes:
        metrics: those for which some row has a figure.
        missing: other metrics, with the event that no trace recorded.
        compared: rows and columns behind components and clusters.
        no_components: why there are none; then `principal` and `linkage` are None.
        linkage: as in `clusters`, of `compared.rows`.
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
    table = figures(rows, metrics)
    single = [i for i, row in enumerate(rows) if not row.folded]
    chosen = choose(table[single], names, [rows[i].label for i in single])
    chosen = Chosen(
        chosen.values, tuple(single[i] for i in chosen.rows), chosen.columns, chosen.left_out
    )
    reason = why_not(chosen)
    components = None if reason else principal(chosen.values, chosen.columns)
    linkage = None
    if components is not None:
        linkage = clusters(components.scores[:, : components.large_components])
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
        kiviat(table, names),
    )
