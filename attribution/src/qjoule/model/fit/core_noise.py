# SPDX-License-Identifier: Apache-2.0
"""Noise of the power of single cores, and what each core has of its own (`core_evidence`)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from qjoule.model.arrays import F64
from qjoule.model.energy import I64
from qjoule.model.fit.observed import Rows

#: Standard errors between the cores of a chip, our estimate: of power at rest, relative; of the
#: power above it, relative.
_REST_APART, _GAIN_APART = 0.3, 0.05
#: Noise before rows tell: relative to dynamic power, and to the power of a busy core. It counts as
#: so many rows.
_MISS, _FLOOR, _BELIEVED = 0.05, 0.01, 10.0
_DEGREES = 4.0  #: of freedom of Student's t
_LEAST_ACTIVE = 0.1  #: a row with less says what a core draws at rest


@dataclass(frozen=True)
class Levels:
    """Mean power of a busy core above rest, and the least power of a core."""

    busy_w: float
    least_w: float

    @staticmethod
    def of(rows: Rows) -> Levels:
        power, active = rows.power_w[rows.known], rows.active[rows.known]
        least = float(np.quantile(power, 0.02)) if len(power) else 0.0
        above = float(np.maximum(power - least, 0.0).sum())
        return Levels(max(above / max(float(active.sum()), 1e-3), 1e-3), max(least, 1e-3))


@dataclass(frozen=True)
class RowNoise:
    """Standard error of a row: part of the dynamic power `miss`, and `floor_w`; `repeats`: as so
    many rows one counts, because what the model misses lasts."""

    miss: float
    floor_w: float
    repeats: float = 1.0

    @staticmethod
    def expected(levels: Levels) -> RowNoise:
        """Before any row was fitted."""
        return RowNoise(_MISS, _FLOOR * levels.busy_w)

    def sigma(self, rows: Rows, dynamic_w: F64) -> F64:
        """(n,) standard error of each row."""
        edge_w = rows.edge_w[rows.zone]
        return np.asarray(np.sqrt(self.floor_w**2 + (self.miss * dynamic_w) ** 2 + edge_w**2))

    def learned(self, rows: Rows, error: F64, dynamic_w: F64, levels: Levels) -> RowNoise:
        """From the errors (n,) of a fit under this noise."""
        odd = np.where(rows.known, 1.0 / self.odd(rows, error, dynamic_w), 0.0)
        rest = rows.known & (rows.active < _LEAST_ACTIVE)
        busy = rows.known & (rows.active >= _LEAST_ACTIVE) & (dynamic_w > 0)
        floor = _BELIEVED * (_FLOOR * levels.busy_w) ** 2 + float((odd * error**2)[rest].sum())
        floor /= _BELIEVED + float(rest.sum())
        above = odd[busy] * np.maximum(error[busy] ** 2 - floor, 0.0) / dynamic_w[busy] ** 2
        miss = (_BELIEVED * _MISS**2 + float(above.sum())) / (_BELIEVED + len(above))
        found = RowNoise(float(miss**0.5), float(floor**0.5))
        return replace(found, repeats=found._repeats(rows, error, dynamic_w))

    def odd(self, rows: Rows, error: F64, dynamic_w: F64) -> F64:
        """(n,) by how much the variance of an outlier is larger."""
        z2 = (error / self.sigma(rows, dynamic_w)) ** 2
        return np.maximum((_DEGREES + z2) / (_DEGREES + 1.0), 1.0)

    def _repeats(self, rows: Rows, error: F64, dynamic_w: F64) -> float:
        """Variance of a mean of neighbours over that of independent rows, from their correlation
        (an autoregressive process of order one)."""
        scale = self.sigma(rows, dynamic_w) * np.sqrt(self.odd(rows, error, dynamic_w))
        z = np.where(rows.known, error / scale, 0.0).reshape(len(rows.edge_w), -1)
        power = float((z**2).sum())
        along = float((z[:, 1:] * z[:, :-1]).sum()) / power if power > 0 else 0.0
        along = min(max(along, 0.0), 0.9)
        return (1.0 + along) / (1.0 - along)


@dataclass(frozen=True)
class OwnOfCores:
    """What each core has of its own, eliminated core by core: power at rest and gain."""

    rows: Rows
    columns: F64  #: (n, 2) over `scale`
    scale: F64
    precision: F64

    @staticmethod
    def of(rows: Rows, dynamic_w: F64, scale: F64, levels: Levels) -> OwnOfCores:
        sigma = np.array([_REST_APART * levels.least_w, _GAIN_APART])
        columns = np.column_stack([np.ones(len(scale)), dynamic_w])
        return OwnOfCores(rows, columns / scale[:, None], scale, np.diag(sigma**-2.0))

    def without(self, columns: F64, target: F64) -> tuple[F64, F64]:
        """Normal equations of all other columns."""
        whole = np.column_stack([columns, target]) * (self.rows.known / self.scale)[:, None]
        gram = whole.T @ whole
        for mine in self._cores():
            local = self.columns[mine]
            cross = local.T @ whole[mine]
            gram -= cross.T @ np.linalg.solve(local.T @ local + self.precision, cross)
        return gram[:-1, :-1], gram[:-1, -1]

    def rest(self, error: F64) -> F64:
        """(n,) of `error` (n,), what no core's own explains."""
        out = np.where(self.rows.known, error, 0.0)
        for mine in self._cores():
            local = self.columns[mine]
            right = local.T @ (out[mine] / self.scale[mine])
            own = np.linalg.solve(local.T @ local + self.precision, right)
            out[mine] -= local @ own * self.scale[mine]
        return out

    def _cores(self) -> list[I64]:
        """The known rows of each core."""
        at = np.flatnonzero(self.rows.known)
        return [at[self.rows.zone[at] == core] for core in range(len(self.rows.edge_w))]
