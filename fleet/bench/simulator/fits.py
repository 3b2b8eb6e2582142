# SPDX-License-Identifier: Apache-2.0
"""Fits of a cost against a size, with intervals, also for sizes that were not measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from qjoule.model.arrays import F64


@dataclass(frozen=True)
class Estimate:
    """A figure with its 95 % interval."""

    value: float
    low: float
    high: float

    def __format__(self, spec: str) -> str:
        return f"{self.value:{spec}} ({self.low:{spec}} to {self.high:{spec}})"


def slope(size: Sequence[float], cost: Sequence[float]) -> Estimate:
    """The exponent b of cost = a * size**b, by least squares of the logarithms.

    1: linear. A constant part of the cost makes it smaller, so take costs without it.
    """
    found = stats.linregress(np.log(size), np.log(cost))
    half = stats.t.ppf(0.975, len(size) - 2) * found.stderr
    return Estimate(float(found.slope), float(found.slope - half), float(found.slope + half))


@dataclass(frozen=True)
class Line:
    """cost = start + each * size, where errors are relative to the cost.

    `covariance`: of (start, each). `spread`: the standard deviation of a relative residual.
    """

    start: float
    each: float
    covariance: F64
    spread: float
    degrees: int

    def at(self, size: float) -> Estimate:
        """What one further measurement at this size would be, with its prediction interval."""
        value = self.start + self.each * size
        at = np.array([1.0, size])
        variance = at @ self.covariance @ at + (self.spread * value) ** 2
        half = float(stats.t.ppf(0.975, self.degrees) * np.sqrt(variance))
        return Estimate(value, max(value - half, 0.0), value + half)

    @property
    def per_size(self) -> Estimate:
        half = float(stats.t.ppf(0.975, self.degrees) * np.sqrt(self.covariance[1, 1]))
        return Estimate(self.each, self.each - half, self.each + half)


def line(size: Sequence[float], cost: Sequence[float]) -> Line:
    """Needs three measurements or more, at two sizes or more. Raises `ValueError` with fewer."""
    x, y = np.asarray(size, np.float64), np.asarray(cost, np.float64)
    if len(x) < 3 or len(np.unique(x)) < 2:
        raise ValueError("a line with its interval needs three measurements at two sizes")
    a = np.stack([1 / y, x / y], axis=1)  # divided by the cost: residuals are relative
    inverse = np.linalg.inv(a.T @ a)
    start, each = inverse @ a.T @ np.ones(len(x))
    residual = 1 - a @ np.array([start, each])
    degrees = len(x) - 2
    spread = float(np.sqrt(residual @ residual / degrees))
    return Line(
        float(start), float(each), np.asarray(inverse * spread**2, np.float64), spread, degrees
    )
