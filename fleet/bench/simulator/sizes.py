# SPDX-License-Identifier: Apache-2.0
"""How large a host's day of rollups is, by its statements and calls."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from fleet.bench.simulator.hours import simulate
from fleet.bench.simulator.population import Plan, draw

from qjoule.agent.hourly_tables import of_hour, thinned
from qjoule.agent.part_files import parquet
from qjoule.agent.store import Retention

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
        found = simulate(fleet, 0, hour)
        kept = thinned(found.rows, Retention(1, 1).minute_shapes)
        sums += [
            len(kept),
            parquet(kept, {}, closed=True).size,
            parquet(of_hour(found.rows, 3600 * hour), {}, closed=True).size,
            parquet(found.rows, {}, closed=True).size,
        ]
    rows, minutes, hours, every = (EVERY * sums).tolist()
    return Day(shapes, calls_per_s, int(rows), minutes / 1e6, hours / 1e6, every / 1e6)
