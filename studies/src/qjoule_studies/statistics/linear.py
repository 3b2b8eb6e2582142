# SPDX-License-Identifier: Apache-2.0
"""Least squares on columns that may depend on each other (confounded effects, empty cells)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qjoule_studies.statistics.design import Floats

#: A sum of squares below this share of the total is rounding.
ROUNDING = 1e-20


@dataclass(frozen=True)
class Fit:
    """`basis` (runs, rank): orthonormal, spans the model's columns and the constant."""

    basis: Floats
    residuals: Floats

    @property
    def rank(self) -> int:
        return int(self.basis.shape[1])

    @property
    def df_error(self) -> int:
        return len(self.residuals) - self.rank

    @property
    def sum_sq_error(self) -> float:
        return float(self.residuals @ self.residuals)

    @property
    def leverage(self) -> Floats:
        return np.asarray(np.sum(self.basis**2, axis=1))


def fit(values: Floats, columns: list[Floats]) -> Fit:
    """The model of a constant and these columns."""
    runs = len(values)
    model = np.hstack([np.ones((runs, 1)), *columns])
    left, singular, _ = np.linalg.svd(model, full_matrices=False)
    limit = singular[0] * max(model.shape) * np.finfo(float).eps * 8
    basis = left[:, singular > limit]
    centred = values - values.mean()  # the constant is in the model: fewer digits are lost
    if np.ptp(values) <= 8 * np.finfo(float).eps * abs(values.mean()):
        centred = np.zeros(runs)  # what is left is the mean's rounding
    residuals = centred - basis @ (basis.T @ centred)
    return Fit(basis, residuals)
