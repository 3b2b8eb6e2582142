# SPDX-License-Identifier: Apache-2.0
"""Noise of the power of single cores, and the terms that each core has by itself (for
`core_evidence`)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from qjoule.model.arrays import F64
from qjoule.model.energy import I64
from qjoule.model.fit.observed import Rows

#: Relative standard deviations between the cores of a chip, our estimate: of power at rest, and of
#: the power above it.
_REST_SPREAD, _GAIN_SPREAD = 0.3, 0.05
#: Prior of the noise: relative to dynamic power, and to the power of a busy core. The third number
#: is its weight, in rows.
_MISS, _FLOOR, _PRIOR_ROWS = 0.05, 0.01, 10.0
_DEGREES = 4.0  #: of freedom of Student's t
_LEAST_ACTIVE = 0.1  #: rows with less show what a core draws at rest


@dataclass(frozen=True)
class Levels:
    """Mean power of a busy core above rest, and the least power of a core."""

    busy_w: float
    least_w: float

    @staticmethod
    def of(rows: Rows) -> Levels:
        power, active = rows.power_w[rows.known], rows.active[rows.known]
        least_w = float(np.quantile(power, 0.02)) if len(power) else 0.0
        above_w = float(np.maximum(power - least_w, 0.0).sum())
        return Levels(max(above_w / max(float(active.sum()), 1e-3), 1e-3), max(least_w, 1e-3))


@dataclass(frozen=True)
class RowNoise:
    """The noise of a row: `miss`, relative to its dynamic power, and `floor_w`. `repeats`: how many
    consecutive rows count as one, because errors of the model last longer than a row."""

    miss: float
    floor_w: float
    repeats: float = 1.0

    @staticmethod
    def expected(levels: Levels) -> RowNoise:
        """The noise before any row was fitted."""
        return RowNoise(_MISS, _FLOOR * levels.busy_w)

    def sigma(self, rows: Rows, dynamic_w: F64) -> F64:
        """(n,) standard error of each row."""
        edge_w = rows.edge_w[rows.zone]
        return np.asarray(np.sqrt(self.floor_w**2 + (self.miss * dynamic_w) ** 2 + edge_w**2))

    def learned(self, rows: Rows, error: F64, dynamic_w: F64, levels: Levels) -> RowNoise:
        """The noise estimated from the errors (n,) of a fit under this noise."""
        row_weight = np.where(rows.known, 1.0 / self.odd(rows, error, dynamic_w), 0.0)
        at_rest = rows.known & (rows.active < _LEAST_ACTIVE)
        busy = rows.known & (rows.active >= _LEAST_ACTIVE) & (dynamic_w > 0)
        floor2 = _PRIOR_ROWS * (_FLOOR * levels.busy_w) ** 2 + float(
            (row_weight * error**2)[at_rest].sum()
        )
        floor2 /= _PRIOR_ROWS + float(at_rest.sum())
        relative2 = (
            row_weight[busy] * np.maximum(error[busy] ** 2 - floor2, 0.0) / dynamic_w[busy] ** 2
        )
        miss2 = (_PRIOR_ROWS * _MISS**2 + float(relative2.sum())) / (_PRIOR_ROWS + len(relative2))
        noise = RowNoise(float(miss2**0.5), float(floor2**0.5))
        return replace(noise, repeats=noise._repeats(rows, error, dynamic_w))

    def odd(self, rows: Rows, error: F64, dynamic_w: F64) -> F64:
        """(n,) factor >= 1 by which the variance of an outlier is larger."""
        z2 = (error / self.sigma(rows, dynamic_w)) ** 2
        return np.maximum((_DEGREES + z2) / (_DEGREES + 1.0), 1.0)

    def _repeats(self, rows: Rows, error: F64, dynamic_w: F64) -> float:
        """Variance of a mean of neighbours over that of independent rows, from their correlation
        (an autoregressive process of order one)."""
        scale = self.sigma(rows, dynamic_w) * np.sqrt(self.odd(rows, error, dynamic_w))
        z = np.where(rows.known, error / scale, 0.0).reshape(len(rows.edge_w), -1)
        power = float((z**2).sum())
        correlation = float((z[:, 1:] * z[:, :-1]).sum()) / power if power > 0 else 0.0
        correlation = min(max(correlation, 0.0), 0.9)
        return (1.0 + correlation) / (1.0 - correlation)


@dataclass(frozen=True)
class CoreTerms:
    """Terms of single cores (power at rest and gain), which are eliminated core by core."""

    rows: Rows
    columns: F64  #: (n, 2) over `scale`
    scale: F64
    precision: F64

    @staticmethod
    def of(rows: Rows, dynamic_w: F64, scale: F64, levels: Levels) -> CoreTerms:
        sigma = np.array([_REST_SPREAD * levels.least_w, _GAIN_SPREAD])
        columns = np.column_stack([np.ones(len(scale)), dynamic_w])
        return CoreTerms(rows, columns / scale[:, None], scale, np.diag(sigma**-2.0))

    def without(self, columns: F64, target: F64) -> tuple[F64, F64]:
        """Normal equations of all other columns."""
        weighted = np.column_stack([columns, target]) * (self.rows.known / self.scale)[:, None]
        gram = weighted.T @ weighted
        for core_rows in self._cores():
            local = self.columns[core_rows]
            cross = local.T @ weighted[core_rows]
            gram -= cross.T @ np.linalg.solve(local.T @ local + self.precision, cross)
        return gram[:-1, :-1], gram[:-1, -1]

    def unexplained(self, error: F64) -> F64:
        """(n,) the part of `error` (n,) that the terms of single cores do not explain."""
        remaining = np.where(self.rows.known, error, 0.0)
        for core_rows in self._cores():
            local = self.columns[core_rows]
            right_side = local.T @ (remaining[core_rows] / self.scale[core_rows])
            coefficients = np.linalg.solve(local.T @ local + self.precision, right_side)
            remaining[core_rows] -= local @ coefficients * self.scale[core_rows]
        return remaining

    def _cores(self) -> list[I64]:
        """The known rows of each core."""
        measured = np.flatnonzero(self.rows.known)
        return [measured[self.rows.zone[measured] == core] for core in range(len(self.rows.edge_w))]
