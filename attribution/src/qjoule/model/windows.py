"""Segments to windows: who ran how long, per window, package and group. All times are exact.

A segment that spans windows is cut at their boundaries in whole nanoseconds. Idle is what busy and
lost time leave of a window, so that for every CPU and window
busy + lost + idle = the window's length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from qjoule.model.arrays import F64, Anomalies, LostTime, Machine, Segments, WindowBatch
from qjoule.model.counters import I64, WindowEnergy
from qjoule.model.pieces import Pieces, cut_at, join, sum_entries, whole_sums

#: Counts per nanosecond of CPU time that no core reaches; more is a counter that lies.
MAX_COUNTS_PER_NS = 100


@dataclass
class SegmentWindows:
    """Turns a stream of segments into complete windows, holding only windows still open.

    >>> stream = SegmentWindows(machine, energy)          # doctest: +SKIP
    >>> for batch in (*map(stream.add, chunks), stream.finish()): ledger.add(batch)
    """

    machine: Machine
    energy: WindowEnergy
    lost: Sequence[LostTime] = ()
    anomalies: Anomalies = field(default_factory=Anomalies)

    def __post_init__(self) -> None:
        count = len(self.machine.cpu_ids)
        self._closed = 0
        self._cpu_end_ns = np.full(count, np.iinfo(np.int64).min, np.int64)
        self._lost_carry_ns = np.zeros(count, np.int64)
        self._pieces: list[Pieces] = []
        self._packages = self.machine.packages
        self._cpu_package = self.machine.package_slots()

    def add(self, segments: Segments) -> WindowBatch:
        """Takes segments; returns the windows that no later segment can touch (maybe none)."""
        if not len(segments.t0_ns):
            return self._close(self._closed)
        pieces = self._cut(segments)
        if len(pieces.window):
            self._pieces.append(pieces)
        ends = self.energy.boundaries_ns[1:]
        return self._close(int(np.searchsorted(ends, segments.t0_ns.max(), "right")))

    def finish(self) -> WindowBatch:
        """The windows that are left. Lost time that fits nowhere is counted in `anomalies`."""
        batch = self._close(max(len(self.energy.boundaries_ns) - 1, 0))
        self.anomalies.lost_unplaced_ns += int(self._lost_carry_ns.sum())
        self._lost_carry_ns[:] = 0
        return batch

    def _cut(self, segments: Segments) -> Pieces:
        """Segments cleaned, clipped and cut at window boundaries."""
        slot = self.machine.slots(segments.cpu)
        keep = (slot >= 0) & (segments.t1_ns > segments.t0_ns)
        self.anomalies.unknown_cpu += int((slot < 0).sum())
        self.anomalies.inverted += int((segments.t1_ns < segments.t0_ns).sum())
        order = np.argsort(
            slot.astype(np.int16 if len(self.machine.cpu_ids) < 2**15 else np.int64), kind="stable"
        )  # radix sort
        if not keep.all():
            order = order[keep[order]]
        slot = slot[order]
        t0, t1 = segments.t0_ns[order], segments.t1_ns[order]
        full_ns = t1 - t0
        t0 = self._clip_overlaps(slot, t0, t1)
        t0, t1 = self._clip_range(t0, t1)
        row, window, ns = cut_at(self.energy.boundaries_ns, t0, t1)
        counters, counted = self._counters(segments, order, full_ns, row, ns)
        return Pieces(window, slot[row], segments.group[order[row]], ns, counters, counted)

    def _clip_overlaps(self, slot: I64, t0: I64, t1: I64) -> I64:
        """Start times such that no two segments of a CPU overlap: the later one yields."""
        if not len(slot):
            return t0
        firsts = np.flatnonzero(np.diff(slot, prepend=-1))
        busy_until = np.empty_like(t1)
        busy_until[1:] = t1[:-1]
        busy_until[firsts] = self._cpu_end_ns[slot[firsts]]
        if (t0 < busy_until).any():
            for a, b in zip(firsts, [*firsts[1:], len(slot)], strict=True):
                ends = np.maximum.accumulate(np.append(self._cpu_end_ns[slot[a]], t1[a:b]))
                busy_until[a:b] = ends[:-1]
            clipped = np.maximum(t0, np.minimum(busy_until, t1))
            self.anomalies.overlapping += int((clipped > t0).sum())
            self.anomalies.overlap_ns += int((clipped - t0).sum())
            t0 = clipped
        lasts = np.append(firsts[1:], len(slot)) - 1
        reach = np.maximum(busy_until[lasts], t1[lasts])
        self._cpu_end_ns[slot[lasts]] = np.maximum(self._cpu_end_ns[slot[lasts]], reach)
        return t0

    def _clip_range(self, t0: I64, t1: I64) -> tuple[I64, I64]:
        """Clips to the windows that are still open."""
        bounds = self.energy.boundaries_ns
        if len(bounds) < 2:
            self.anomalies.outside_ns += int((t1 - t0).sum())
            return t0, t0
        begin = int(bounds[self._closed]) if self._closed < len(bounds) else int(bounds[-1])
        if not len(t0) or (t0.min() >= begin and t1.max() <= bounds[-1]):
            return t0, t1
        inside0 = np.clip(t0, begin, bounds[-1])
        inside1 = np.clip(t1, begin, bounds[-1])
        if self._closed:
            self.anomalies.late += int((t0 < begin).sum())
        self.anomalies.outside_ns += int(((t1 - t0) - (inside1 - inside0)).sum())
        return inside0, inside1

    def _counters(
        self, segments: Segments, order: npt.NDArray[np.intp], full_ns: I64, row: I64, ns: I64
    ) -> tuple[F64 | None, F64 | None]:
        """Counters of each piece, in proportion to its time, and the time they were read over."""
        if segments.counters is None or segments.valid is None:
            return None, None
        counts = segments.counters[order].astype(np.float64)
        lies = counts > MAX_COUNTS_PER_NS * (full_ns[:, None] + 1000.0)
        valid = segments.valid[order]
        self.anomalies.implausible_counters += int((lies & valid).any(axis=1).sum())
        valid = (valid & ~lies)[row]
        share = ns / np.maximum(full_ns[row], 1)
        # Whole counts: their sums are exact, whatever the order they are added in.
        counts = np.where(valid, np.rint(counts[row] * share[:, None]), 0.0)
        return counts, np.where(valid, ns[:, None], 0).astype(np.float64)

    def _close(self, end: int) -> WindowBatch:
        """Windows from the first open one to `end` - 1."""
        first, self._closed = self._closed, max(end, self._closed)
        count, cpus = self._closed - first, len(self.machine.cpu_ids)
        energy = self.energy.slice(first, self._closed)
        pieces = join(self._pieces) if count else Pieces.none()
        if count:
            done = pieces.window < self._closed
            self._pieces = [] if done.all() else [pieces.take(~done)]
            pieces = pieces if done.all() else pieces.take(done)
        window = pieces.window - first
        at = window * cpus + pieces.cpu
        busy_ns = whole_sums(at, pieces.cpu_ns, count * cpus).reshape(count, cpus)
        free_ns = np.diff(energy.boundaries_ns)[:, None] - busy_ns if count else busy_ns
        lost_ns = self._place_lost(energy.boundaries_ns, free_ns)
        busy = self._by_package(busy_ns)
        return WindowBatch(
            first,
            energy,
            self._packages,
            self._by_package(free_ns - lost_ns),
            self._by_package(lost_ns),
            sum_entries(window, self._cpu_package[pieces.cpu], pieces, len(self._packages)),
            np.minimum(busy, np.diff(energy.boundaries_ns)[:, None]) if count else busy,
            busy,
        )

    def _place_lost(self, boundaries_ns: I64, free_ns: I64) -> I64:
        """Lost time per window and CPU, never more than the CPU's free time in it.

        Between two loss records the loss is taken as even; what does not fit waits for a later
        window.
        """
        placed = np.zeros_like(free_ns)
        if not len(free_ns):
            return placed
        for lost in self.lost:
            slot = int(self.machine.slots(np.array([lost.cpu]))[0])
            if slot < 0:
                continue
            # Times since the first boundary: floats do not hold whole ns of a long uptime.
            origin = self.energy.boundaries_ns[0]
            since_ns, at_ns = boundaries_ns - origin, lost.t_ns - origin
            running = np.floor(np.interp(since_ns, at_ns, lost.lost_ns, left=0.0))
            claims = np.diff(running).astype(np.int64)
            carry = int(self._lost_carry_ns[slot])
            if self.energy.boundaries_ns[-1] == boundaries_ns[-1]:
                claims[-1] += int(lost.lost_ns[-1]) - int(running[-1])
            for k in range(len(claims)) if carry or claims.any() else ():
                carry += int(claims[k])
                fits = min(carry, int(free_ns[k, slot] - placed[k, slot]))
                placed[k, slot] += fits
                carry -= fits
            self._lost_carry_ns[slot] = carry
        return placed

    def _by_package(self, per_cpu: I64) -> I64:
        out = np.zeros((len(per_cpu), len(self._packages)), np.int64)
        for p in range(len(self._packages)):
            out[:, p] = per_cpu[:, self._cpu_package == p].sum(axis=1)
        return out
