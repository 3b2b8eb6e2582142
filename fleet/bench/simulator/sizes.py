# SPDX-License-Identifier: Apache-2.0
"""How large a host's day of rollups is, by its statements and calls.

Costs are fitted against sizes, with intervals, also for sizes that were not measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from fleet.bench.simulator.hours import simulate
from fleet.bench.simulator.population import Plan, draw
from scipy import stats

from qjoule.agent.hourly_tables import of_hour, thinned
from qjoule.agent.journal import Retention
from qjoule.agent.part_files import parquet
from qjoule.model.arrays import F64

#: Statements that run, and calls per second.
GRID = ((100, 20), (100, 2_000), (500, 2), (500, 20), (500, 200), (500, 2_000))
#: Every so many hours of the day are made.
EVERY = 3


@dataclass(frozen=True)
class Day:
    """Of one host and day, in MB. `minutes_mb`: as the agent keeps past hours, with rows by minute
    of the statements with most energy; `every_mb`: with rows by minute of all."""

    shapes: int
    calls_per_s: int
    rows: int
    minutes_mb: float
    hours_mb: float
    every_mb: float

    @property
    def all_mb(self) -> float:
        return self.minutes_mb + self.hours_mb


def days(seed: int = 1) -> Iterator[Day]:
    for shapes, calls_per_s in GRID:
        yield day(shapes, calls_per_s, seed)


def day(shapes: int, calls_per_s: int, seed: int = 1) -> Day:
    """One host with the mean load, from every third hour of its day."""
    fleet = draw(Plan(1, 1, shapes, seed, calls_per_s=calls_per_s, load_spread=0.0))
    sums = np.zeros(4)
    for hour in range(1, 24, EVERY):
        rollups = simulate(fleet, 0, hour)
        kept_rows = thinned(rollups.rows, Retention(1, 1).minute_shapes)
        sums += [
            len(kept_rows),
            parquet(kept_rows, {}, closed=True).size,
            parquet(of_hour(rollups.rows, 3600 * hour), {}, closed=True).size,
            parquet(rollups.rows, {}, closed=True).size,
        ]
    rows, minutes, hours, every = (EVERY * sums).tolist()
    return Day(shapes, calls_per_s, int(rows), minutes / 1e6, hours / 1e6, every / 1e6)


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
    fit = stats.linregress(np.log(size), np.log(cost))
    half = stats.t.ppf(0.975, len(size) - 2) * fit.stderr
    return Estimate(float(fit.slope), float(fit.slope - half), float(fit.slope + half))


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
        """Predicts a further measurement at this size, with its prediction interval."""
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
