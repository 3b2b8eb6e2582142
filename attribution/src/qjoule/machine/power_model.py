# SPDX-License-Identifier: Apache-2.0
"""Watts of a package at four loads, by how well its CPU is known.

Four levels, best first:

- `model`: results of this very CPU model. Their median.
- `microarchitecture`: results of other models of its microarchitecture;
- `family`: of other microarchitectures of its vendor and kind, at most `NEAR_YEARS` away;
- `any`: of its vendor, else of all.

Below `model`, the level's median is carried to the package's threads and clock: among models of one
microarchitecture, watts follow a power of either. The powers come from all results together. A
guest does not see how many threads its package has. It gets its threads' share of a package of the
usual size, and so does a kernel that shows far fewer threads than such packages have.

Between rest and full load a package follows `SHAPE`, unless its own counters were measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cache
from statistics import median

from qjoule.machine.published import LOADS, CpuModel, Published, Result, published

LEVELS = ("model", "microarchitecture", "family", "any")
NEAR_YEARS = 3
_ENDS = (0, 3)  #: of `LOADS`: rest and full load
#: Ridge weight: keeps the exponents of threads and clock small if few models determine them.
_RIDGE = 0.5

Curve = tuple[float, float, float, float]  #: watts at `LOADS`


@dataclass(frozen=True)
class PackageFacts:
    """What is known of a package. `threads` None: a guest, which sees only its own."""

    model: str | None = None
    architecture: str | None = None
    vendor: str = ""
    threads: int | None = None
    ghz: float | None = None


@dataclass(frozen=True)
class Estimate:
    """Watts of a whole package that has `threads`, and what they are based on."""

    level: str
    curve: Curve
    threads: float
    models: tuple[str, ...]  #: whose results were used
    results: int
    measured: bool  #: by a package's own counters


Use = Callable[[Result], bool]


def _all_results(_: Result) -> bool:
    return True


def estimate(
    package: PackageFacts,
    *,
    start: str = "model",
    without: Collection[str] = (),
    use: Use = _all_results,
) -> Estimate:
    """The estimate at the best level, from `start` on, that has results.

    `without`: models whose results do not count. `use`: which results do.
    """
    data = published()
    for level in LEVELS[LEVELS.index(start) :]:
        results_of = {
            model: usable
            for model in _candidates(data, package, level, without)
            if (usable := [result for result in data.results[model] if use(result)])
        }
        if results_of and level == "model":
            return _from_model(data, next(iter(results_of.items())))
        if results_of:
            return _extrapolated(data, package, level, results_of)
    raise ValueError("no results at all")


def _candidates(
    data: Published, package: PackageFacts, level: str, without: Collection[str]
) -> list[str]:
    """Models with results that a level may use."""
    architecture = data.architectures.get(package.architecture or "")
    vendor = architecture.vendor if architecture else package.vendor
    models = [data.models[name] for name in data.results if name not in without]
    if level == "model":
        return [model.model for model in models if model.model == package.model]
    if level == "microarchitecture":
        return [model.model for model in models if model.architecture == package.architecture]
    if level == "family":
        return [
            model.model for model in models if architecture and _near(data, model, architecture.key)
        ]
    of_vendor = [
        model.model for model in models if data.architectures[model.architecture].vendor == vendor
    ]
    return of_vendor or [model.model for model in models]


def _near(data: Published, model: CpuModel, key: str) -> bool:
    candidate, architecture = data.architectures[model.architecture], data.architectures[key]
    alike = (candidate.vendor, candidate.kind) == (architecture.vendor, architecture.kind)
    return alike and abs(candidate.year - architecture.year) <= NEAR_YEARS


def _from_model(data: Published, entry: tuple[str, list[Result]]) -> Estimate:
    model, results = entry
    measured = [result for result in results if result.measured]
    chosen = measured or results
    ends = [median(_watts(result, load_index) for result in chosen) for load_index in _ENDS]
    curve = shaped(ends[0], ends[1])
    if measured:
        curve = _concave(
            [
                median(_watts(result, load_index) for result in measured)
                for load_index in range(len(LOADS))
            ]
        )
    threads = data.models[model].threads
    return Estimate("model", curve, threads, (model,), len(chosen), bool(measured))


def _extrapolated(
    data: Published, package: PackageFacts, level: str, results_of: dict[str, list[Result]]
) -> Estimate:
    models = [data.models[name] for name in results_of]
    threads = _usual_threads(package.threads, [model.threads for model in models])
    clocks = [model.ghz for model in models if model.ghz]
    ghz = package.ghz or (median(clocks) if clocks else 1.0)
    ends = []
    for load_index in _ENDS:
        by_threads, by_clock = powers(load_index)
        rests = [
            math.log(median(_watts(result, load_index) for result in results_of[cpu.model]))
            - by_threads * math.log(cpu.threads)
            - by_clock * math.log(cpu.ghz or ghz)
            for cpu in models
        ]
        ends.append(
            math.exp(median(rests) + by_threads * math.log(threads) + by_clock * math.log(ghz))
        )
    count = sum(map(len, results_of.values()))
    curve = shaped(min(ends), ends[1])
    return Estimate(level, curve, threads, tuple(results_of), count, measured=False)


def _usual_threads(threads: int | None, counts: list[int]) -> float:
    """Returns the threads to compute watts for: those known, if other packages have about as many.

    A kernel that shows far fewer threads runs on a part of a package.
    """
    if threads is not None and min(counts) / 2 <= threads <= max(counts) * 2:
        return float(threads)
    return float(median(counts))


@cache
def powers(load_index: int) -> tuple[float, float]:
    """The exponents of threads and of clock by which watts at `LOADS[load_index]` rise within a
    microarchitecture."""
    data = published()
    groups: dict[str, list[tuple[float, float, float]]] = {}
    for name, results in data.results.items():
        cpu = data.models[name]
        if cpu.ghz:
            watts = median(_watts(result, load_index) for result in results)
            point = (math.log(cpu.threads), math.log(cpu.ghz), math.log(watts))
            groups.setdefault(cpu.architecture, []).append(point)
    xx = zz = _RIDGE
    xz = xy = zy = 0.0
    for points in groups.values():
        means = [sum(column) / len(points) for column in zip(*points, strict=True)]
        for point in points:
            x, z, y = (value - mean for value, mean in zip(point, means, strict=True))
            xx, zz, xz, xy, zy = xx + x * x, zz + z * z, xz + x * z, xy + x * y, zy + z * y
    determinant = xx * zz - xz * xz
    return (xy * zz - zy * xz) / determinant, (zy * xx - xy * xz) / determinant


def shaped(rest_w: float, full_w: float) -> Curve:
    """Interpolates between a curve's ends, by the shape of the published curves."""
    at_10, at_50 = shape()
    rise = full_w - rest_w
    return (rest_w, rest_w + at_10 * rise, rest_w + at_50 * rise, full_w)


@cache
def shape() -> tuple[float, float]:
    """How far from rest to full power 10 % and 50 % of load are.

    Under stress at a fixed share of CPU time, packages are far above the line between the ends; in
    results by SPECpower's target load, where clocks fall with the load, they are on it or below.
    Both count alike: the mean of both medians, and never below the line from 10 % to the end.
    """
    kinds: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
    for results in published().results.values():
        for result in results:
            w0, w10, w50, w100 = result.watts
            if None not in (w0, w10, w50, w100):
                assert w0 is not None and w10 is not None and w50 is not None and w100 is not None
                kinds[result.measured].append(((w10 - w0) / (w100 - w0), (w50 - w0) / (w100 - w0)))
    at_10, at_50 = (
        sum(median(point[i] for point in points) for points in kinds.values()) / len(kinds)
        for i in (0, 1)
    )
    return at_10, max(at_50, at_10 + (1 - at_10) * 4 / 9)


def _concave(watts: list[float]) -> Curve:
    """The least concave curve that is nowhere below `watts`."""
    out = list(watts)
    for i in (1, 2):
        lines = [
            watts[a] + (watts[b] - watts[a]) * (LOADS[i] - LOADS[a]) / (LOADS[b] - LOADS[a])
            for a in range(i)
            for b in range(i + 1, len(LOADS))
        ]
        out[i] = max(watts[i], *lines)
    return (out[0], out[1], out[2], out[3])


def _watts(result: Result, load_index: int) -> float:
    watts = result.watts[load_index]
    assert watts is not None  # the tables have both ends, and all loads of measured packages
    return watts
