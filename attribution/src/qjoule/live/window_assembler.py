# SPDX-License-Identifier: Apache-2.0
"""Holds the live stream's readings and sums until the windows they belong to are complete."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from qjoule.contract import AGGREGATE, ENERGY, PACKAGE_TIME
from qjoule.engine.live_owners import Records
from qjoule.engine.stolen import LiveStolen
from qjoule.model.arrays import F64, Machine
from qjoule.model.energy import I64, Readings, Series, WindowEnergy
from qjoule.model.reading_windows import window_energy
from qjoule.model.slow import SlowCounterState, add_slow

UNKNOWN = -1


class PackageTimes:
    """Holds the kernel side's records until their windows are complete.

    A tracer whose energy source cannot use them sends none.
    """

    def __init__(self, machine: Machine) -> None:
        self._packages = machine.packages
        self._records: Records = np.empty(0, PACKAGE_TIME)

    def add(self, records: Records) -> None:
        self._records = np.concatenate([self._records, records])

    def take(self, bounds_ns: I64) -> I64:
        """(windows, packages) ns with any CPU of the package busy; `UNKNOWN` without a record.

        A record belongs to the window that contains its middle. Windows and records have the same
        bounds unless a reading is missing; otherwise the share of time is taken. Windows must be
        requested in order.
        """
        records = self._records
        t0_ns, t1_ns = (records[name].astype(np.int64) for name in ("t0_ns", "t1_ns"))
        length_ns = t1_ns - t0_ns
        window = np.searchsorted(bounds_ns, t0_ns + length_ns // 2, "right") - 1
        slot_of = {package: slot for slot, package in enumerate(self._packages)}
        slot = np.array([slot_of.get(p, -1) for p in records["package"].tolist()], np.int64)
        windows = len(bounds_ns) - 1
        mine = (window >= 0) & (window < windows) & (slot >= 0) & (length_ns > 0)
        at = (window[mine], slot[mine])
        seen_ns = np.zeros((windows, len(self._packages)), np.int64)
        awake_ns = np.zeros_like(seen_ns)
        np.add.at(seen_ns, at, length_ns[mine])
        awake = np.minimum(records["awake_ns"][mine].astype(np.int64), length_ns[mine])
        np.add.at(awake_ns, at, np.maximum(awake, 0))
        share = awake_ns / np.maximum(seen_ns, 1)
        whole_ns = np.rint(share * np.diff(bounds_ns)[:, None]).astype(np.int64)
        self._records = records[window >= windows]
        return np.where(seen_ns > 0, whole_ns, UNKNOWN)


@dataclass(frozen=True)
class Chunk:
    """Complete windows: their energies, the kernel side's sums, and lost time per package."""

    energy: WindowEnergy
    aggregates: Records
    lost_ns: I64
    calls: Records  #: calls that clients reported, as sums without CPU time
    awake_ns: I64  #: (windows, packages) as `PackageTimes.take` returns it
    stolen: F64  #: (packages,) as `LiveStolen.take` returns it


class WindowAssembler:
    """Collects ENERGY and AGGREGATE blocks and lost time; `take` returns complete windows.

    Windows have the bounds of the kernel side's sums: `lag_ns` before the readings, because that is
    when the energy was drawn. If a reading came later after its sums, its time is uncertain by the
    difference.

    A window's sums come after the reading that ends it, and before the next reading. So the last
    round of readings becomes a boundary only once the next round has begun.
    """

    def __init__(
        self, series: dict[int, Series], machine: Machine, begin_ns: int, lag_ns: int = 0
    ) -> None:
        self.series = tuple(series.values())
        self._number = {domain: index for index, domain in enumerate(series)}
        self._machine = machine
        self._lag_ns = lag_ns
        self.package_times = PackageTimes(machine)
        self.stolen = LiveStolen(machine)
        self._begin_ns: int | None = begin_ns
        self._energy: list[Records] = []
        self._aggregates: list[Records] = []
        self._calls: list[Records] = []
        self._taken_ns = begin_ns  #: windows up to here have been returned
        self._off_ns = 0  #: distance of the sums' end from its expected time at that point
        self._slow_counters: dict[
            int, SlowCounterState
        ] = {}  #: of slow counters, by number of series
        self._new_loss: list[tuple[int, int, int]] = []  #: (t_ns, cpu, lost since)
        self._packages = dict(
            zip(machine.cpu_ids.tolist(), machine.cpu_package.tolist(), strict=True)
        )
        self.clock_ns = begin_ns  #: end of the last window that is known to be complete

    def add_energy(self, records: Records) -> None:
        # So few records that `np.isin` would take most of the time.
        is_known = np.array([domain in self._number for domain in records["domain"].tolist()], bool)
        if is_known.any():
            self._energy.append(records[is_known].copy())
            self.clock_ns = max(self.clock_ns, int(records["t_ns"].max()))

    def add_aggregates(self, records: Records) -> None:
        if len(records):
            self._aggregates.append(records.copy())
            if not self.series:
                self.clock_ns = max(self.clock_ns, int(records["t1_ns"].max()))

    def add_calls(self, records: Records) -> None:
        """Calls of windows that were already returned count in the next one."""
        if len(records):
            late = records["t1_ns"] < self._taken_ns
            records["t0_ns"][late] = records["t1_ns"][late] = self._taken_ns
            self._calls.append(records)

    def add_lost(self, lost: Iterable[tuple[int, int, int]]) -> None:
        """`lost`: (t_ns, cpu, ns), as `Losses.add` returns them."""
        self._new_loss += lost

    def take(self, *, everything: bool = False) -> Chunk | None:
        """All complete windows so far; with `everything`, up to the last reading."""
        energy = self._take_energy(everything) if self.series else self._take_by_sums(everything)
        if energy is None or len(energy.boundaries_ns) < 2:
            return None
        end_ns = int(energy.boundaries_ns[-1])
        sums = _joined(self._aggregates, AGGREGATE)
        t0_ns, t1_ns = sums["t0_ns"].astype(np.int64), sums["t1_ns"].astype(np.int64)
        whole = t0_ns + (t1_ns - t0_ns) // 2 < end_ns
        self._aggregates = [sums[~whole]] if not everything else []
        # Sums come in order, so those of complete windows need no copy of their own.
        count = int(np.count_nonzero(whole))
        complete = sums[:count] if whole[:count].all() else sums[whole]
        calls = _joined(self._calls, AGGREGATE)
        ended = calls["t1_ns"] < end_ns
        self._calls = [calls[~ended]]
        self._taken_ns = end_ns
        bounds_ns = energy.boundaries_ns
        lost_ns, awake_ns = self._take_lost(bounds_ns), self.package_times.take(bounds_ns)
        return Chunk(energy, complete, lost_ns, calls[ended], awake_ns, self.stolen.take())

    def _take_energy(self, everything: bool) -> WindowEnergy | None:
        readings = _joined(self._energy, ENERGY)
        starts = np.flatnonzero(readings["domain"] == readings["domain"][:1])
        if len(starts) < (2 if everything else 3):
            return None
        # The boundary's own readings are kept: the next window begins with them.
        end = len(readings) if everything else int(starts[-1])
        kept_from = int(starts[-1] if everything else starts[-2])
        rows = readings[:end]
        self._energy = [readings[kept_from:]]
        begin_ns, self._begin_ns = self._begin_ns, None
        window_readings = Readings(
            t_ns=rows["t_ns"].astype(np.int64),
            raw=rows["raw"].astype(np.uint64),
            ok=rows["status"] == 0,
            half_width_ns=rows["half_width_ns"].astype(np.int64),
            series=np.array([self._number[d] for d in rows["domain"].tolist()], np.int64),
        )
        energy = window_energy(window_readings, self.series, begin_ns)
        add_slow(energy, window_readings, self._slow_counters)
        return self._at_bounds_of_sums(energy, begin_ns is None, everything)

    def _at_bounds_of_sums(self, energy: WindowEnergy, goes_on: bool, ends: bool) -> WindowEnergy:
        """Windows between readings, with the bounds of the kernel side's sums.

        `goes_on`: the first boundary is the last of the windows before. `ends`: the last boundary
        is the stream's end, which is not shifted (as in `as_counted` for a trace).
        """
        read_ns = energy.boundaries_ns
        if len(read_ns) < 2:
            return energy
        drawn_ns = read_ns[1:] - self._lag_ns
        sums = _joined(self._aggregates, AGGREGATE)
        times = np.unique(np.concatenate([sums["t0_ns"], sums["t1_ns"]])).astype(np.int64)
        before = np.searchsorted(times, read_ns[1:], "right") - 1
        summed_ns = np.append(times, np.iinfo(np.int64).min)[before]
        # Where nothing ran there are no sums, and the boundary has its expected time.
        expected_ns = np.append(drawn_ns[:-1], read_ns[-1:] if ends else drawn_ns[-1:])
        absent = summed_ns <= read_ns[:-1]
        summed_ns = np.where(absent, np.maximum(expected_ns, read_ns[:-1] + 1), summed_ns)
        off_ns = np.minimum(np.abs(drawn_ns - summed_ns), np.abs(expected_ns - summed_ns))
        off_ns = np.append(self._off_ns if goes_on else 0, off_ns)
        first_ns = self._taken_ns if goes_on else int(read_ns[0])
        self._off_ns = int(off_ns[-1])
        return replace(
            energy,
            boundaries_ns=np.append(first_ns, summed_ns),
            half_width_ns=energy.half_width_ns + np.maximum(off_ns[:-1], off_ns[1:]),
        )

    def _take_by_sums(self, everything: bool) -> WindowEnergy | None:
        """Windows without energy, from the sums' own times."""
        sums = _joined(self._aggregates, AGGREGATE)
        times = np.unique(np.concatenate([sums["t0_ns"], sums["t1_ns"]])).astype(np.int64)
        if self._begin_ns is not None:
            times = np.unique(np.append(times, self._begin_ns))
        if not everything:
            times = times[:-1]
        if len(times) < 2:
            return None
        self._begin_ns = int(times[-1])
        nothing = np.zeros((0, len(times) - 1), np.int64)
        return WindowEnergy((), times, nothing, nothing.astype(np.uint8), nothing)

    def _take_lost(self, bounds_ns: I64) -> I64:
        """Lost CPU time per window and package; later losses wait."""
        packages = list(self._machine.packages)
        lost = np.zeros((len(bounds_ns) - 1, len(packages)), np.int64)
        waiting = []
        for t_ns, cpu, lost_ns in self._new_loss:
            if t_ns > bounds_ns[-1]:
                waiting.append((t_ns, cpu, lost_ns))
            elif cpu in self._packages:
                window = int(np.searchsorted(bounds_ns, t_ns, "left")) - 1
                lost[max(0, window), packages.index(self._packages[cpu])] += lost_ns
        self._new_loss = waiting
        return lost


def _joined(parts: list[Records], dtype: np.dtype[np.void]) -> Records:
    """All records in one array. `parts` then holds that array, so joining again costs nothing."""
    if len(parts) > 1:
        # As bytes: numpy would compare the types of all fields of each part.
        whole = np.concatenate([np.ascontiguousarray(part).view(np.uint8) for part in parts])
        parts[:] = [whole.view(parts[0].dtype)]
    return parts[0] if parts else np.empty(0, dtype)
