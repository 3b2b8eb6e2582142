# SPDX-License-Identifier: Apache-2.0
"""Principal components and clusters of rows of figures, as computer architects compare workloads.

The method of Panda et al. (SBAC-PAD 2015, section IV.D) after Phansalkar et al. (ISPASS 2005):
columns are standardised, their principal components computed, and rows clustered in that space.
Pure functions on arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress

import numpy as np
import numpy.typing as npt

from qjoule.api.model import F64

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
    def kept(self) -> int:
        """Number of components with eigenvalues of 1 or more (Kaiser), at least two."""
        return min(max(int(np.count_nonzero(self.variance >= 1 - 1e-9)), 2), len(self.variance))


def choose(table: F64, columns: Sequence[str], names: Sequence[str]) -> Chosen:
    """The comparable part of a table (rows, columns) with NaN for unknown.

    Columns that most rows lack are left out, then rows that lack any of the others, then columns
    in which all rows are equal.
    """
    said = []
    known = np.isfinite(table)
    use = [j for j in range(len(columns)) if 2 * known[:, j].sum() > len(table)]
    said += [
        f"{columns[j]}: counted in {known[:, j].sum()} of {len(table)} rows"
        for j in range(len(columns))
        if j not in use
    ]
    whole = known[:, use].all(axis=1)
    said += [
        f"{names[i]}: {_lacking(known[i], columns, use)}" for i in np.flatnonzero(~whole).tolist()
    ]
    rows = np.flatnonzero(whole)
    values = table[rows][:, use]
    if len(rows):
        spread = np.ptp(values, axis=0) > _CONSTANT * np.abs(values).max(axis=0)
        said += [f"{columns[j]}: the same in all rows" for j in compress(use, ~spread)]
        values, use = values[:, spread], list(compress(use, spread))
    return Chosen(values, tuple(map(int, rows)), tuple(columns[j] for j in use), tuple(said))


def _lacking(known: npt.NDArray[np.bool_], columns: Sequence[str], use: Sequence[int]) -> str:
    return "lacks " + ", ".join(columns[j] for j in use if not known[j])


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
