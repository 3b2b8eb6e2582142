# SPDX-License-Identifier: Apache-2.0
"""Computes the errors of power estimates: each published result is estimated as if unknown.

A held-out result is estimated at each level from what that level may use:

- `model`: the other results of its CPU model;
- `microarchitecture`: all models but its own;
- `family`: all microarchitectures but its own;
- `any`: all vendors but its own.

The truth over the estimate, minus 1, is a point of the level. Rest, 10, 50 and 100 % of load count
alike, although most results give only two of them. The error of a level is the 95 % quantile of its
points' sizes. Added to it is the error of deriving a package's watts from its machine's: by how
much the error of packages with own counters exceeds that of a microarchitecture's wall results.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations
from statistics import mean

from qjoule.machine.power_model import LEVELS, Estimate, PackageFacts, estimate
from qjoule.machine.published import (
    DRAM_W_PER_GB,
    EFFICIENCY,
    LOADS,
    CpuModel,
    Result,
    published,
)

QUANTILE = 0.95


@dataclass(frozen=True)
class Point:
    """A held-out watt: `error` is truth / estimate - 1; `load_index` indexes `LOADS`."""

    cpu: str
    load_index: int
    error: float


def points(level: str, *, guest: bool = False) -> list[Point]:
    """All points of a level; as a `guest` sees it, without the number of threads of a package."""
    data = published()
    sample: list[Point] = []
    for name, results in data.results.items():
        cpu = data.models[name]
        for truth in results:
            if level == "model":
                if len(results) > 1:
                    sample += _points(cpu, truth, _from_other_results(cpu, truth))
                continue
            estimated = _estimated_without(cpu, level, guest=guest)
            if estimated.level == level:
                sample += _points(cpu, truth, estimated)
    return sample


def _from_other_results(cpu: CpuModel, held_out: Result) -> Estimate:
    return estimate(PackageFacts(cpu.model), use=lambda result: result is not held_out)


def _estimated_without(cpu: CpuModel, level: str, *, guest: bool) -> Estimate:
    data = published()
    architecture = data.architectures[cpu.architecture]
    without = {
        model.model
        for model in data.models.values()
        if {
            "microarchitecture": model.model == cpu.model,
            "family": model.architecture == cpu.architecture,
            "any": data.architectures[model.architecture].vendor == architecture.vendor,
        }[level]
    }
    package = PackageFacts(
        None, cpu.architecture, architecture.vendor, None if guest else cpu.threads, cpu.ghz
    )
    return estimate(package, start=level, without=without)


def _points(cpu: CpuModel, truth: Result, source: Estimate) -> Iterator[Point]:
    share = cpu.threads / source.threads
    for load_index, (watts, estimated) in enumerate(zip(truth.watts, source.curve, strict=True)):
        if watts is not None:
            yield Point(cpu.model, load_index, watts / (estimated * share) - 1)


def measured_points() -> list[Point]:
    """Packages that were measured by their own counters, estimated from wall results alone."""
    data = published()
    sample: list[Point] = []
    for name, results in data.results.items():
        cpu = data.models[name]
        for truth in results:
            if truth.measured:
                package = PackageFacts(None, cpu.architecture, "", cpu.threads, cpu.ghz)
                estimated = estimate(
                    package, start="microarchitecture", use=lambda r: not r.measured
                )
                sample += _points(cpu, truth, estimated)
    return sample


def quantile(sample: Iterable[Point], share: float = QUANTILE) -> float:
    """The size of error that `share` of the points do not exceed; each load counts alike."""
    sizes = sorted((abs(point.error), point.load_index) for point in sample)
    counts = [
        max(sum(load_index == load for _, load_index in sizes), 1) for load in range(len(LOADS))
    ]
    present = sum(any(load_index == load for _, load_index in sizes) for load in range(len(LOADS)))
    reached = 0.0
    for size, load_index in sizes:
        reached += 1 / counts[load_index] / present
        if reached >= share - 1e-12:
            return size
    raise ValueError("no points")


def derivation_error() -> float:
    """The 95 % error of taking a package's watts from its machine's wall."""
    excess = quantile(measured_points()) ** 2 - quantile(points("microarchitecture")) ** 2
    return math.sqrt(max(excess, 0.0))


def level_error(level: str, *, guest: bool = False) -> float:
    """The relative 95 % error of an estimate at `level`; no better level has a larger one."""
    better = LEVELS[: LEVELS.index(level) + 1]
    widest = max(quantile(points(name, guest=guest)) for name in better)
    return math.hypot(widest, derivation_error())


def coverage(level: str, *, guest: bool = False) -> float:
    """Share of the points that lie within an interval that was made without their CPU model.

    The error of the derivation is left out: all of these points share it.
    """
    sample = points(level, guest=guest)
    counts = [
        max(sum(point.load_index == load_index for point in sample), 1)
        for load_index in range(len(LOADS))
    ]
    present = len({point.load_index for point in sample})
    covered = 0.0
    for cpu in {point.cpu for point in sample}:
        limit = quantile(point for point in sample if point.cpu != cpu)
        covered += sum(
            1 / counts[point.load_index] / present
            for point in sample
            if point.cpu == cpu and abs(point.error) <= limit
        )
    return covered


@dataclass(frozen=True)
class Pair:
    """Two results of one maker and CPU, with one and with two packages."""

    single: Result
    double: Result

    def rest_share(self, end: int) -> float:
        """Share of the larger machine's watts that is drawn once; `end`: 0 rest, -1 full load."""
        one_w, two_w = self._watts(end)
        return (2 * one_w - two_w) / two_w

    def rest_over_package(self, end: int) -> float:
        """Watts of the larger machine's rest per package, over a package's watts."""
        one_w, two_w = self._watts(end)
        added_w = two_w - one_w
        package_w = added_w * EFFICIENCY[end] - 128.0 * DRAM_W_PER_GB[end]
        rest_w = (two_w - 2 * added_w) / 2 + added_w * (1 - EFFICIENCY[end])
        return rest_w / package_w if package_w > 0 else math.inf

    def _watts(self, end: int) -> tuple[float, float]:
        one_w, two_w = self.single.machine_w[end], self.double.machine_w[end]
        assert one_w is not None and two_w is not None  # the tables have both ends
        return one_w, two_w


def pairs() -> list[Pair]:
    """All pairs of the tables."""
    all_pairs = []
    for results in published().results.values():
        of_walls = [result for result in results if not result.measured]
        for a, b in combinations(of_walls, 2):
            if a.system.split()[0] == b.system.split()[0] and {a.packages, b.packages} == {1, 2}:
                all_pairs.append(Pair(a, b) if a.packages == 1 else Pair(b, a))
    return all_pairs


def rest_over_package() -> tuple[float, float]:
    """Watts of a machine's rest over its packages', at no and at full load: means of `pairs`.

    At no load, a few machines' rest draws ten times the usual. The mean is the expected draw of an
    unknown machine; the median is far below it.
    """
    all_pairs = pairs()
    return (
        mean(pair.rest_over_package(0) for pair in all_pairs),
        mean(pair.rest_over_package(-1) for pair in all_pairs),
    )


def rest_error() -> float:
    """The relative 95 % error of `rest_over_package`."""
    middle = rest_over_package()
    return quantile(
        Point(pair.single.cpu, load_index, pair.rest_over_package(end) / middle[end] - 1)
        for pair in pairs()
        for load_index, end in ((0, 0), (3, -1))
    )


@dataclass(frozen=True)
class ErrorRow:
    """A row of ``estimate_errors.csv``. `at_rest`, `at_full`: the rest's watts over a package's."""

    level: str
    seen: str  #: from the `host` or as a `guest`
    error: float
    at_rest: float | None = None
    at_full: float | None = None


def errors() -> list[ErrorRow]:
    """Computes the rows of ``estimate_errors.csv`` from the tables."""
    rows = [ErrorRow("measured", seen, quantile(points("model"))) for seen in ("host", "guest")]
    for level in LEVELS:
        for seen in ("host", "guest"):
            rows.append(ErrorRow(level, seen, level_error(level, guest=seen == "guest")))
    low, high = rest_over_package()
    return [*rows, ErrorRow("rest", "host", rest_error(), low, high)]
