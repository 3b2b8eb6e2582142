# SPDX-License-Identifier: Apache-2.0
"""Gaussian evidence on parameters in information form: it adds up, parameters are integrated out of
it, and it ages.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from qjoule.model.arrays import F64
from qjoule.model.energy import I64


@dataclass(frozen=True)
class Nuisance:
    """Parameters that are integrated out: their positions (m,), and the precision and mean of each
    one's prior, (m,) or one for all."""

    positions: I64
    precision: F64 | float
    mean: F64 | float


@dataclass(frozen=True)
class Evidence:
    """Evidence on p parameters: precision (p, p), and moment (p,), its product with the
    estimate."""

    precision: F64
    moment: F64

    @staticmethod
    def none(size: int) -> Evidence:
        return Evidence(np.zeros((size, size)), np.zeros(size))

    def plus(self, other: Evidence) -> Evidence:
        """The sum of independent evidence on the same parameters."""
        return Evidence(self.precision + other.precision, self.moment + other.moment)

    def scaled(self, share: float) -> Evidence:
        return Evidence(share * self.precision, share * self.moment)

    def marginal(self, remaining: I64, nuisance: Nuisance) -> tuple[Evidence, Callable[[F64], F64]]:
        """Evidence on the parameters `remaining`, and a function that maps their values to those of
        `nuisance`, which are integrated out."""
        positions, index = nuisance.positions, np.arange(len(nuisance.positions))
        precision = self.precision[np.ix_(positions, positions)]
        precision[index, index] += nuisance.precision
        cross = self.precision[np.ix_(remaining, positions)]
        moment = self.moment[positions] + nuisance.precision * nuisance.mean
        solved = np.linalg.solve(precision, np.column_stack([cross.T, moment]))
        marginal = Evidence(
            self.precision[np.ix_(remaining, remaining)] - cross @ solved[:, :-1],
            self.moment[remaining] - cross @ solved[:, -1],
        )

        def nuisance_at(value: F64) -> F64:
            return np.asarray(solved[:, -1] - solved[:, :-1] @ value)

        return marginal, nuisance_at

    def drifted(self, root: F64) -> Evidence:
        """Evidence on the present parameters, which have moved since then. `root` (p, m): its
        product with its transpose is the covariance of that."""
        if not root.shape[1]:
            return self
        scaled_root = self.precision @ root
        inner = np.eye(root.shape[1]) + root.T @ scaled_root
        solved = np.linalg.solve(inner, np.column_stack([scaled_root.T, root.T @ self.moment]))
        precision = self.precision - scaled_root @ solved[:, :-1]
        return Evidence((precision + precision.T) / 2.0, self.moment - scaled_root @ solved[:, -1])
