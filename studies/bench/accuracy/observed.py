# SPDX-License-Identifier: Apache-2.0
"""The input of every method: a recording's sums per window, package and group."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from studies.bench.accuracy.recording import F64, Case, Phase, Recording

from qjoule.model.arrays import COUNTERS, Entries
from qjoule.model.energy import Bool, WindowEnergy
from qjoule.model.reading_windows import window_energy
from qjoule.model.windows import SegmentWindows

DOMAIN = "package"


@dataclass(frozen=True)
class Observed:
    """k windows, p packages, g groups. Energy is of the package domain.

    `dt_ns` (k,); `energy_nj` (p, k), 0 where it is not `known` (p, k); `cpus` (p,); `idle_w` (p,)
    as the idle phases of a calibration run show it; `cpu_ns` and `overlap_ns`, the part of it with
    the SMT sibling busy, (k, p, g). `counts` (k, p, g, 3) are cycles, instructions and LLC misses,
    `overlap_counts` the part of them beside a busy sibling; None where none were counted.
    """

    dt_ns: F64
    energy_nj: F64
    known: Bool
    cpus: F64
    idle_w: F64
    cpu_ns: F64
    overlap_ns: F64
    counts: F64 | None
    overlap_counts: F64 | None

    def above_idle_nj(self) -> F64:
        """(p, k) energy with the measured power at rest taken off, never below 0."""
        above = np.maximum(self.energy_nj - self.idle_w[:, None] * self.dt_ns, 0.0)
        return np.where(self.known, above, 0.0)


def observe(case: Case) -> Observed:
    """A case's recording in the form that methods see. Unknown energies are left out for all
    methods.
    """
    recording = case.recording
    energy = _energy(recording)
    stream = SegmentWindows(recording.machine, energy, recording.lost)
    batches = [stream.add(recording.segments), stream.finish()]
    windows, groups = len(energy.boundaries_ns) - 1, len(recording.groups)
    size = (windows, len(recording.machine.packages), groups)
    sums = _Sums(size, recording.segments.counters is not None)
    for batch in batches:
        sums.add(batch.entries, batch.first)
    energy_nj, is_known = _packages(recording, energy)
    slots = recording.machine.package_slots()
    return Observed(
        dt_ns=np.diff(energy.boundaries_ns).astype(np.float64),
        energy_nj=energy_nj,
        known=is_known,
        cpus=np.bincount(slots).astype(np.float64),
        idle_w=idle_power(case),
        cpu_ns=sums.cpu_ns,
        overlap_ns=sums.overlap_ns,
        counts=sums.whole(sums.counts) if sums.counted else None,
        overlap_counts=sums.whole(sums.overlap_counts) if sums.counted else None,
    )


def idle_power(case: Case) -> F64:
    """Mean watts (p,) in the idle phases of a case's calibration run; 0 if there was no
    such run.
    """
    packages = len(case.recording.machine.packages)
    if case.calibration is None:
        return np.zeros(packages)
    energy = _energy(case.calibration)
    inside = _within(energy, [p for p in case.calibration_phases if p.name == "idle"])
    energy_nj, is_known = _packages(case.calibration, energy)
    used = is_known & inside
    dt_ns = np.diff(energy.boundaries_ns).astype(np.float64)
    spent_ns = (used * dt_ns).sum(axis=1)
    watts: F64 = (energy_nj * used).sum(axis=1) / np.maximum(spent_ns, 1.0)
    return watts


def _energy(recording: Recording) -> WindowEnergy:
    return window_energy(recording.readings, recording.series, recording.begin_ns, recording.end_ns)


def _within(energy: WindowEnergy, phases: list[Phase]) -> Bool:
    """Windows that lie entirely in one of the phases."""
    inside = np.zeros(len(energy.boundaries_ns) - 1, bool)
    for phase in phases:
        begins, ends = energy.boundaries_ns[:-1], energy.boundaries_ns[1:]
        inside |= (begins >= phase.t0_ns) & (ends <= phase.t1_ns)
    return inside


def _packages(recording: Recording, energy: WindowEnergy) -> tuple[F64, Bool]:
    """(p, k) energies of the package domain, and where they are known."""
    packages = recording.machine.packages
    energy_nj = np.zeros((len(packages), energy.energy_nj.shape[1]))
    is_known = np.zeros(energy_nj.shape, bool)
    for s, series in enumerate(energy.series):
        if series.domain == DOMAIN:
            row = packages.index(series.package)
            is_known[row] = energy.known[s]
            energy_nj[row] = np.where(energy.known[s], energy.energy_nj[s], 0)
    return energy_nj, is_known


class _Sums:
    """Accumulates entries in dense arrays."""

    def __init__(self, size: tuple[int, int, int], counted: bool) -> None:
        self.counted = counted
        self.cpu_ns, self.overlap_ns = np.zeros(size), np.zeros(size)
        self.counts = np.zeros((*size, COUNTERS))
        self.overlap_counts, self.counted_ns = self.counts.copy(), self.counts.copy()

    def add(self, entries: Entries, first: int) -> None:
        """Adds a batch whose windows are numbered from `first`. Entries must not share a place."""
        at = (entries.window + first, entries.package, entries.group)
        self.cpu_ns[at] += entries.cpu_ns
        self.overlap_ns[at] += entries.overlap_ns
        self.counts[at] += entries.counters
        self.overlap_counts[at] += entries.overlap_counters
        self.counted_ns[at] += entries.counted_ns

    def whole(self, counts: F64) -> F64:
        """Counts extrapolated to all CPU time, at the group's own mean rate."""
        missing_ns = np.maximum(self.cpu_ns[..., None] - self.counted_ns, 0.0)
        counted_ns = self.counted_ns.sum(axis=(0, 1))
        rate = counts.sum(axis=(0, 1)) / np.maximum(counted_ns, 1.0)
        result: F64 = counts + missing_ns * rate
        return result
