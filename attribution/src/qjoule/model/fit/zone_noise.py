# SPDX-License-Identifier: Apache-2.0
"""The rows of a block by zone, and the noise of each zone's power."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qjoule.model.arrays import F64
from qjoule.model.energy import Bool
from qjoule.model.fit import noise
from qjoule.model.fit.observed import Rows, total_power, weights


@dataclass(frozen=True)
class ZoneNoise:
    """The rows of each zone, and the spectra of their noise (`noise.components`)."""

    rows: Rows
    zones: list[Bool]
    parts: list[F64]

    @staticmethod
    def of(rows: Rows) -> ZoneNoise:
        zones = [rows.zone == z for z in range(len(rows.edge_w))]
        return ZoneNoise(
            rows, zones, [noise.components(int(mine.sum()), rows.step_s) for mine in zones]
        )

    def first_levels(self) -> F64:
        return np.stack([_first_levels(self.rows, z, mine) for z, mine in enumerate(self.zones)])

    def transformed(self, columns: F64) -> F64:
        return np.concatenate([noise.transform(columns[mine]) for mine in self.zones])

    def spectrum(self, levels: F64) -> F64:
        """(n,) variance of each frequency of each zone."""
        return np.concatenate([p @ level for p, level in zip(self.parts, levels, strict=True)])

    def fit_levels(self, power2: F64, levels: F64, floors: F64) -> F64:
        made = [
            noise.fit_spectrum(self.parts[z], power2[np.flatnonzero(mine)], levels[z], floors[z])
            for z, mine in enumerate(self.zones)
        ]
        return np.stack(made)

    def random_walk(self, residual: F64, scale: F64, levels: F64) -> F64:
        """(n,) the slow part of `residual`, from the levels of noise."""
        out = np.zeros(len(residual))
        for mine, parts, level in zip(self.zones, self.parts, levels, strict=True):
            known = self.rows.known[mine]
            noisy = np.where(known, scale[mine] ** 2 * level[1:3].sum(), np.inf)
            step = level[3] * parts[0, 0] * parts[0, 3]
            out[mine] = noise.slow_part(residual[mine], noisy, float(step))
        return out

    def misfit(self, value: F64, scale: F64, spectrum: F64) -> float:
        """Squared error of a prediction, each frequency in units of its noise."""
        rows = self.rows
        _, factor, _, each = weights(rows, value)
        power = total_power(rows, value, each @ factor)
        error = np.where(rows.known, rows.power_w - power, 0.0) / scale
        return max(float((self.transformed(error) ** 2 / spectrum).sum()), 1e-300)


def _first_levels(rows: Rows, zone: int, mine: Bool) -> F64:
    """Start of the search for the noise: a few per cent of the power in every component."""
    mean_w = float(np.abs(rows.power_w[mine & rows.known]).mean()) if rows.known[mine].any() else 1
    edge = max(float(rows.edge_w[zone]) ** 2, (1e-4 * mean_w) ** 2, 1e-12)
    return np.array([edge, *(np.array([0.03, 0.03, 0.02]) * max(mean_w, 1e-6)) ** 2])
