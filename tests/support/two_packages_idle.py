# SPDX-License-Identifier: Apache-2.0
"""Idle times of `TwoPackages`: what its kernel would sum, and the power of tails and traffic.

Plain loops over the slices, as an independent check of the sweep and of the BPF programs' header.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from qjoule.contract import PACKAGE_TAILS, TAILS, WAKE_NS
from qjoule.model.arrays import LONG_TAILS_NS, TAILS_NS, TRAFFIC_PER_NS

#: Lengths of tails, by what sleeps.
LENGTHS_NS = {"package": (*TAILS_NS, *LONG_TAILS_NS), "core": TAILS_NS}

Sums = dict[tuple[int, int, Any], dict[str, Any]]  #: window, package, owner: fields of a row


@dataclass(frozen=True)
class Costs:
    """The power of idle times and of traffic, in units of `Terms`."""

    traffic_nj: tuple[float, ...] = (0.0,) * len(TRAFFIC_PER_NS)
    package_w: tuple[float, ...] = (0.0,) * PACKAGE_TAILS
    core_w: tuple[float, ...] = (0.0,) * TAILS
    package_wake_nj: float = 0.0
    core_wake_nj: float = 0.0

    def terms(self) -> dict[str, Any]:
        """The same, by the names that `Terms` has."""
        letters = {"u": self.traffic_nj, "p": self.package_w, "q": self.core_w}
        tail_powers = {
            f"{name}{i}": w for name, all_w in letters.items() for i, w in enumerate(all_w)
        }
        return tail_powers | {"wp": self.package_wake_nj, "wc": self.core_wake_nj}


FREE = Costs()


@dataclass(frozen=True)
class Gap:
    """An idle time: who slept, and who woke (None: nobody until the end)."""

    t0_ns: int
    t1_ns: int
    slept: Any
    woke: Any


def gaps(stretches: Sequence[Any], end_ns: int) -> list[Gap]:
    """Idle times after the first slice of a core or package; `stretches` in order of `t0_ns`."""
    idle_gaps: list[Gap] = []
    last = None
    for stretch in stretches:
        if last is not None and stretch.t0_ns > last.t1_ns:
            idle_gaps.append(Gap(last.t1_ns, stretch.t0_ns, last.owner, stretch.owner))
        if last is None or (stretch.t1_ns, stretch.cpu) > (last.t1_ns, last.cpu):
            last = stretch
    if last is not None and last.t1_ns < end_ns:
        idle_gaps.append(Gap(last.t1_ns, end_ns, last.owner, None))
    return idle_gaps


def places(
    stretches: Sequence[Any], package_cpus: int, threads: int
) -> Iterator[tuple[str, int, list[Any]]]:
    """("package" or "core", its package's number, its slices) of all packages and cores."""
    sizes: dict[str, Callable[[int], int]] = {
        "package": lambda cpu: cpu // package_cpus,
        "core": lambda cpu: cpu // threads,
    }
    for kind, number in sizes.items():
        by_place: dict[int, list[Any]] = defaultdict(list)
        for stretch in stretches:
            by_place[number(stretch.cpu)].append(stretch)
        for of_place in by_place.values():
            yield kind, of_place[0].cpu // package_cpus, of_place


def idle_sums(
    places: Iterator[tuple[str, int, list[Any]]], bounds_ns: Sequence[int]
) -> tuple[Sums, dict[tuple[int, int], int]]:
    """Tails and wake-ups as the kernel sums them, and each package's time asleep by window."""
    sums: Sums = defaultdict(lambda: defaultdict(int))
    asleep: dict[tuple[int, int], int] = defaultdict(int)
    for kind, package, of_place in places:
        idle_gaps = gaps(of_place, bounds_ns[-1])
        if kind == "package":
            first = Gap(0, of_place[0].t0_ns, None, None)
            for window, a, b in _pieces([first, *idle_gaps], bounds_ns):
                asleep[window, package] += b - a
        before = None
        for gap in idle_gaps:
            if gap.woke is not None and gap.t1_ns - gap.t0_ns >= WAKE_NS:
                window = bisect_right(bounds_ns, gap.t1_ns) - 1
                sums[window, package, gap.woke][f"{kind}_wakes"] += 1
            for window, a, b in _pieces([gap], bounds_ns):
                for owner, ns in _tails(gap, before, (a, b), LENGTHS_NS[kind]):
                    if ns.any():
                        row = sums[window, package, owner]
                        row[f"{kind}_tail_ns"] = row[f"{kind}_tail_ns"] + ns
            before = gap
    return sums, asleep


def _pieces(idle_gaps: Sequence[Gap], bounds_ns: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """(window, begin, end) of each gap's part in each window."""
    for gap in idle_gaps:
        a = gap.t0_ns
        while a < gap.t1_ns:
            window = bisect_right(bounds_ns, a) - 1
            b = min(gap.t1_ns, bounds_ns[window + 1])
            yield window, a, b
            a = b


def _tails(
    gap: Gap, before: Gap | None, piece: tuple[int, int], lengths_ns: tuple[int, ...]
) -> tuple[tuple[Any, npt.NDArray[np.float64]], ...]:
    """The owners of a piece of a gap: half of what the sleep before still lasts is that one's."""
    a, b = piece
    own = np.array([max(min(b, gap.t0_ns + ns) - a, 0) for ns in lengths_ns])
    half = np.zeros(len(lengths_ns))
    if before is not None:  # long tails belong to the last sleep alone
        halves = [max(min(b, before.t0_ns + ns) - a, 0) / 2 for ns in TAILS_NS]
        half[: len(TAILS_NS)] = halves
    return (gap.slept, own - half), (before.slept if before else None, half)


def extra_power(
    places: Iterator[tuple[str, int, list[Any]]], end_ns: int, costs: Costs
) -> dict[int, list[tuple[int, int, float]]]:
    """(begin, end, watts) of tails and wake-ups of each package."""
    out: dict[int, list[tuple[int, int, float]]] = defaultdict(list)
    for kind, package, of_place in places:
        tails_w = costs.package_w if kind == "package" else costs.core_w
        wake_nj = costs.package_wake_nj if kind == "package" else costs.core_wake_nj
        for gap in gaps(of_place, end_ns):
            for w, ns in zip(tails_w, LENGTHS_NS[kind], strict=True):
                if w:
                    out[package].append((gap.t0_ns, min(gap.t1_ns, gap.t0_ns + ns), w))
            if wake_nj and gap.woke is not None and gap.t1_ns - gap.t0_ns >= WAKE_NS:
                out[package].append((gap.t1_ns, gap.t1_ns + 1000, wake_nj / 1000))
    return out


def traffic_w(
    misses_per_ns: npt.NDArray[np.float64], cores: npt.NDArray[np.int64], costs: Costs
) -> npt.NDArray[np.float64]:
    """Power by the mean misses per ns of the busy cores."""
    mean = misses_per_ns / np.maximum(cores, 1)
    watts: npt.NDArray[np.float64] = np.zeros_like(mean)
    for nj, limit in zip(costs.traffic_nj, TRAFFIC_PER_NS, strict=True):
        watts = watts + nj * np.minimum(mean, limit)
    return watts
