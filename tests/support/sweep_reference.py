# SPDX-License-Identifier: Apache-2.0
"""A slow reference for `SegmentWindows`: handles each time span between two events separately."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise

from qjoule.model.arrays import (
    COUNTERS,
    EFFECTS,
    SMALL,
    TRAFFIC_PER_NS,
    Anomalies,
    Machine,
    Segments,
)
from qjoule.model.windows import MAX_COUNTS_PER_NS
from two_packages_idle import LENGTHS_NS, idle_sums

Key = tuple[int, int, int]  #: window, package slot, group


@dataclass
class Sums:
    """One entry, in whole numbers and fractions."""

    cpu_ns: int = 0
    overlap_ns: int = 0
    shared_ns: Fraction = Fraction(0)
    scaled_ns: Fraction = Fraction(0)
    stolen_ns: Fraction = Fraction(0)
    small: list[int] = field(default_factory=lambda: [0] * SMALL)
    counters: list[int] = field(default_factory=lambda: [0] * COUNTERS)
    counted_ns: list[int] = field(default_factory=lambda: [0] * COUNTERS)
    overlap_counters: list[Fraction] = field(default_factory=lambda: [Fraction(0)] * COUNTERS)
    effects: dict[str, Fraction] = field(default_factory=lambda: dict.fromkeys(EFFECTS, Fraction()))


@dataclass
class Stretch:
    """A segment after cutting: what its CPU runs from `t0_ns` to `t1_ns`."""

    row: int
    cpu: int
    t0_ns: int
    t1_ns: int
    valid: list[bool]
    owner: int  #: its group


@dataclass
class Found:
    entries: dict[Key, Sums]
    active_ns: dict[tuple[int, int], int]
    core_ns: dict[tuple[int, int], int]
    anomalies: Anomalies


def reference(machine: Machine, bounds: list[int], segments: Segments) -> Found:
    """All windows of a whole stream of segments."""
    anomalies = Anomalies()
    stretches = _clean(machine, bounds, segments, anomalies)
    result = Found(defaultdict(Sums), defaultdict(int), defaultdict(int), anomalies)
    package, core = machine.package_slots().tolist(), machine.core_slots().tolist()
    overlap: dict[tuple[int, int], int] = defaultdict(int)
    awake_ns: dict[tuple[int, int], int] = defaultdict(int)
    edges = {t for stretch in stretches for t in (stretch.t0_ns, stretch.t1_ns)}
    for a, b in pairwise(sorted(edges | set(bounds))):
        running = [stretch for stretch in stretches if stretch.t0_ns <= a and b <= stretch.t1_ns]
        window = sum(bound <= a for bound in bounds) - 1
        awake = {package[stretch.cpu] for stretch in running}
        for p in set(package) - awake if awake else ():
            awake_ns[window, p] += b - a
        for p in {package[stretch.cpu] for stretch in running}:
            of_package = [stretch for stretch in running if package[stretch.cpu] == p]
            cores = {core[stretch.cpu] for stretch in of_package}
            result.active_ns[window, p] += b - a
            result.core_ns[window, p] += (b - a) * len(cores)
            for stretch in of_package:
                threads = sum(core[other.cpu] == core[stretch.cpu] for other in of_package)
                sums = result.entries[window, p, stretch.owner]
                sums.cpu_ns += b - a
                sums.shared_ns += Fraction(b - a, len(cores) * threads)
                sums.overlap_ns += (b - a) * (threads > 1)
                rate = sum((_misses_per_ns(segments, other) for other in of_package), Fraction())
                for limit in TRAFFIC_PER_NS:
                    mean = min(rate / len(cores), Fraction(limit))
                    name = f"traffic_to_{round(limit * 1000)}_per_us"
                    sums.effects[name] += (b - a) * mean / len(cores) / threads
                overlap[window, id(stretch)] += (b - a) * (threads > 1)
    for stretch in stretches:
        for window, (a, b) in enumerate(pairwise(bounds)):
            begin, end = max(a, stretch.t0_ns), min(b, stretch.t1_ns)
            if begin < end:
                sums = result.entries[window, package[stretch.cpu], stretch.owner]
                share = Fraction(overlap[window, id(stretch)], end - begin)
                if segments.stolen is not None:
                    stolen = Fraction(float(segments.stolen[stretch.row]))
                    sums.stolen_ns += (end - begin) * stolen
                own = Sums()
                _count(own, segments, stretch, (begin, end), share)
                small = int(machine.cpu_small is not None and bool(machine.cpu_small[stretch.cpu]))
                own.small = [small * count for count in (end - begin, *own.counters[: SMALL - 1])]
                _add(sums, own)
    _add_kept(result.entries, awake_ns)
    idle, _ = idle_sums(_places(stretches, package, core), bounds)
    for key, row in idle.items():
        effects = result.entries[key].effects
        for kind in ("package", "core"):
            effects[f"{kind}_wakes"] += row.get(f"{kind}_wakes", 0)
            for ns, lasted in zip(LENGTHS_NS[kind], row.get(f"{kind}_tail_ns", ()), strict=False):
                effects[f"{kind}_tail_{ns // 1000}us"] += Fraction(lasted)
    return result


def _add_kept(entries: dict[Key, Sums], awake_ns: dict[tuple[int, int], int]) -> None:
    """Divides the time in which a package was kept awake among the owners on the other packages,
    by their shared time.
    """
    shared = {key: sums.shared_ns for key, sums in entries.items()}
    for (window, p), ns in awake_ns.items():
        others = {
            key: weights for key, weights in shared.items() if key[0] == window and key[1] != p
        }
        for (_, _, owner), weight in others.items():
            part = ns * weight / sum(others.values())
            entries[window, p, owner].effects["kept_awake"] += part


def _add(sums: Sums, own: Sums) -> None:
    """Adds the counts of `_count`, and the part of them on small cores."""
    sums.scaled_ns += own.scaled_ns
    for name in ("counters", "counted_ns", "overlap_counters", "small"):
        pairs = zip(getattr(sums, name), getattr(own, name), strict=True)
        setattr(sums, name, [a + b for a, b in pairs])


def _places(
    stretches: list[Stretch], package: list[int], core: list[int]
) -> Iterator[tuple[str, int, list[Stretch]]]:
    """All packages and cores, with what ran there in order."""
    order = sorted(stretches, key=lambda stretch: stretch.t0_ns)
    for kind, number in (("package", package), ("core", core)):
        for place in {number[stretch.cpu] for stretch in order}:
            of_place = [stretch for stretch in order if number[stretch.cpu] == place]
            yield kind, package[of_place[0].cpu], of_place


def _misses_per_ns(segments: Segments, stretch: Stretch) -> Fraction:
    if segments.counters is None or not stretch.valid[2]:
        return Fraction(0)
    ns = int(segments.t1_ns[stretch.row]) - int(segments.t0_ns[stretch.row])
    return Fraction(int(segments.counters[stretch.row, 2]), ns)


def _clean(
    machine: Machine, bounds: list[int], segments: Segments, anomalies: Anomalies
) -> list[Stretch]:
    low, high = (bounds[0], bounds[-1]) if len(bounds) > 1 else (0, 0)
    slot_of = {int(cpu): slot for slot, cpu in enumerate(machine.cpu_ids)}
    now, busy_until, out = low, dict.fromkeys(slot_of, -(2**64)), []
    columns = (segments.t0_ns, segments.t1_ns, segments.cpu)
    for row, (t0, t1, cpu) in enumerate(zip(*(c.tolist() for c in columns), strict=True)):
        anomalies.unknown_cpu += cpu not in slot_of
        anomalies.inverted += t1 < t0
        if cpu not in slot_of or t1 <= t0:
            continue
        valid = _valid(segments, row, t1 - t0, anomalies)
        free = max(t0, min(busy_until[cpu], t1))
        anomalies.overlapping += free > t0
        anomalies.overlap_ns += free - t0
        busy_until[cpu] = max(busy_until[cpu], t1)
        begin, end = (min(max(t, now), high) for t in (free, t1))
        anomalies.late += low < now > free
        anomalies.outside_ns += (t1 - free) - (end - begin)
        if begin < end:
            now = max(now, t0)
            out.append(Stretch(row, slot_of[cpu], begin, end, valid, int(segments.group[row])))
    return out


def _valid(segments: Segments, row: int, ns: int, anomalies: Anomalies) -> list[bool]:
    if segments.counters is None or segments.valid is None:
        return [False] * COUNTERS
    most = min(MAX_COUNTS_PER_NS * (ns + 1000), 2**53)
    lies = [count > most for count in segments.counters[row].tolist()]
    read = segments.valid[row].tolist()
    anomalies.implausible_counters += any(r and lie for r, lie in zip(read, lies, strict=True))
    return [r and not lie for r, lie in zip(read, lies, strict=True)]


def _count(
    sums: Sums, segments: Segments, stretch: Stretch, part: tuple[int, int], overlap: Fraction
) -> None:
    begin, end = part
    t0, t1 = int(segments.t0_ns[stretch.row]), int(segments.t1_ns[stretch.row])
    for c in (c for c in range(COUNTERS) if stretch.valid[c]):
        assert segments.counters is not None
        total = int(segments.counters[stretch.row, c])
        count = total * (end - t0) // (t1 - t0) - total * (begin - t0) // (t1 - t0)
        sums.counters[c] += count
        sums.counted_ns[c] += end - begin
        sums.overlap_counters[c] += count * overlap
    if segments.scaled is not None and any(stretch.valid):
        scaled = float(segments.scaled[stretch.row])
        counted = min(max(scaled, 0.0), 1.0) if not math.isnan(scaled) else 0.0
        sums.scaled_ns += (end - begin) * (1 - Fraction(counted))
