# SPDX-License-Identifier: Apache-2.0
"""Physics kept out of development. Who works on `qjoule.model` must not read this file.

A case of the family `unseen` has three of these kinds, drawn by its seed. Cases and reports do not
say which. The point is to measure how the engine does on machines that differ from its model in
ways that nobody told it about. Each kind is a measured effect; its source is in its docstring.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from studies.bench.accuracy.activity import Activity, Cells, Setting
from studies.bench.accuracy.gaps import Charges
from studies.bench.accuracy.machine import PhysicalMachine
from studies.bench.accuracy.recording import F64, I64

DRAWN = 3  #: kinds of one machine


class Kind:
    """A kind of physics. Every method has the machine without it as its default."""

    def dressed(self, _random: np.random.Generator, activity: Activity) -> Activity:
        """One behaviour (1,) with what this kind makes of it."""
        return activity

    def times_ns(self, _setting: Setting) -> I64:
        """Moments at which this kind changes power."""
        return np.zeros(0, np.int64)

    def charges(self, _setting: Setting) -> list[Charges]:
        """What is drawn while the owner does not run."""
        return []

    def factors(self, _setting: Setting, cells: Cells, _misses: F64) -> tuple[F64, F64]:
        """(c,) factors on the power of the core and of misses; `misses` (c,) per ns."""
        ones = np.ones(len(cells.row))
        return ones, ones

    def watts(self, _setting: Setting, cells: Cells) -> F64:
        """(c,) further power in the core domain."""
        return np.zeros(len(cells.row))

    def seen_nj(self, _edges_ns: I64, energy_nj: F64) -> F64:
        """What the energy counter shows at the edges."""
        return energy_nj


@dataclass(frozen=True)
class WideVectors(Kind):
    """Some shapes run wide vectors, for which the whole package's voltage is raised for a while.

    The voltage guard band is granted per voltage domain and kept for about 0.67 ms after the last
    such instruction (Schoene et al., "Energy Efficiency Features of the Intel Skylake-SP
    Processor", HPCS 2019; Haj-Yahya et al., "IChannels", ISCA 2021). Every owner pays for its own
    power at the raised voltage.
    """

    share: float
    own: float
    raised: float
    kept_ns: int

    def dressed(self, random: np.random.Generator, activity: Activity) -> Activity:
        return replace(activity, wide=activity.wide + float(random.random() < self.share))

    def times_ns(self, setting: Setting) -> I64:
        ends = setting.t1_ns[setting.activity.wide > 0] + self.kept_ns
        times: I64 = ends[ends < setting.span_ns[1]]
        return times

    def factors(self, setting: Setting, cells: Cells, _misses: F64) -> tuple[F64, F64]:
        wide = setting.activity.wide > 0
        until = np.minimum(setting.t1_ns[wide] + self.kept_ns, setting.span_ns[1])
        change = np.zeros(len(cells.edges_ns), np.int64)
        np.add.at(change, cells.begin[wide], 1)
        np.add.at(change, np.searchsorted(cells.edges_ns, until), -1)
        raised = np.where(np.cumsum(change)[:-1] > 0, 1 + self.raised, 1.0)
        core = raised[cells.interval] * np.where(wide[cells.row], 1 + self.own, 1.0)
        return core, np.ones(len(core))


@dataclass(frozen=True)
class Clusters(Kind):
    """Cores come in clusters with a cache and a clock tree that is on while any core of it runs.

    AMD's core complexes and the modules of small cores are built so (Schoene et al., "Energy
    Efficiency Aspects of the AMD Zen 2 Architecture", CLUSTER 2021). The power of a cluster is
    divided equally over its busy cores, within a core over its busy threads.
    """

    size: int
    core_share: float  #: of the clock power of one core

    def watts(self, setting: Setting, cells: Cells) -> F64:
        machine = setting.machine
        cluster = np.arange(len(cells.core_threads)) // self.size
        busy = np.zeros((int(cluster.max()) + 1, cells.core_threads.shape[1]))
        np.add.at(busy, cluster, (cells.core_threads > 0).astype(np.float64))
        sharing = busy[cluster[cells.core], cells.interval] * cells.threads
        return self.core_share * machine.cycle_nj * machine.max_ghz / np.maximum(sharing, 1)


@dataclass(frozen=True)
class DataPhases(Kind):
    """The data of a shape change over time, and with them the energy of the same instructions.

    Operands alone change a processor's power by up to a third (Schoene et al., HPCS 2019; Lucas and
    Juurlink, "ALUPower", MASCOTS 2016).
    """

    amplitude: float
    period_ns: float

    def factors(self, setting: Setting, cells: Cells, _misses: F64) -> tuple[F64, F64]:
        # Lines written back per miss differ by shape and are the same for all of its calls.
        phase = setting.activity.writes * 1e3
        turn = (
            2 * np.pi * ((setting.t0_ns - setting.span_ns[0]) / self.period_ns * (0.5 + phase % 1))
        )
        factor = 1 + self.amplitude * np.sin(turn + phase)
        return factor[cells.row], np.ones(len(cells.row))


@dataclass(frozen=True)
class UnevenCores(Kind):
    """Cores of one package differ in leakage and switched capacitance.

    Within-die variation of power is 10 to 20 % (Borkar et al., "Parameter variations and impact on
    circuits and microarchitecture", DAC 2003; Inadomi et al., SC 2015, between packages).
    """

    factor: tuple[float, ...]  #: by core of the machine, repeated if there are more

    def factors(self, setting: Setting, cells: Cells, _misses: F64) -> tuple[F64, F64]:
        first = setting.package * setting.machine.topology.cores_per_package
        by_core = np.array(self.factor)
        core = by_core[(cells.core + first) % len(by_core)]
        return core, np.ones(len(core))


@dataclass(frozen=True)
class Devices(Kind):
    """After a slice, devices move what it sent or wrote, and the package's I/O draws power.

    The energy of an I/O is drawn after the thread that asked for it went to sleep (Pathak et al.,
    "Fine-grained power modeling for smartphones using system call tracing", EuroSys 2011: tail
    power). It belongs to that thread.
    """

    energy_nj: float
    length_ns: int

    def charges(self, setting: Setting) -> list[Charges]:
        t0 = setting.t1_ns
        t1 = np.minimum(t0 + self.length_ns, setting.span_ns[1])
        watts = self.energy_nj / np.maximum(t1 - t0, 1)
        return [Charges.of(np.arange(len(t0)), t0, t1, package_w=watts)]


@dataclass(frozen=True)
class CrowdedMemory(Kind):
    """A miss costs more the more misses there are: queues, retries and row conflicts.

    Row-buffer conflicts grow with the number of threads that share a channel (Mutlu and Moscibroda,
    "Parallelism-aware batch scheduling", ISCA 2008; David et al., "Memory power management via
    dynamic voltage/frequency scaling", ICAC 2011, for power over bandwidth).
    """

    gain: float
    reference_per_ns: float

    def factors(self, setting: Setting, cells: Cells, misses: F64) -> tuple[F64, F64]:
        full = self.reference_per_ns * setting.machine.topology.cores_per_package
        crowd = np.minimum(cells.total(misses) / full, 1.0)
        return np.ones(len(misses)), (1 + self.gain * crowd)[cells.interval]


@dataclass(frozen=True)
class LaggingCounter(Kind):
    """The energy counter shows power as its low-pass filter lets it through.

    Counters that firmware computes from telemetry lag (Schoene et al., CLUSTER 2021, for AMD;
    Haehnel et al., SIGMETRICS PER 2012). Nothing of the energy is lost.
    """

    tau_ns: float

    def seen_nj(self, edges_ns: I64, energy_nj: F64) -> F64:
        dt_ns = np.diff(edges_ns).astype(np.float64)
        run_nj = np.diff(energy_nj)
        decay = np.exp(-dt_ns / self.tau_ns)
        # Between two events the filter's output goes exponentially from lag_w to watts.
        lag_w = float(energy_nj[-1]) / float(dt_ns.sum())
        behind_w: list[float] = []
        for watts, part in zip((run_nj / dt_ns).tolist(), decay.tolist(), strict=True):
            behind_w.append(lag_w - watts)
            lag_w = watts + (lag_w - watts) * part
        observed = run_nj + np.array(behind_w) * self.tau_ns * (1 - decay)
        return np.append(0.0, np.cumsum(observed))


@dataclass(frozen=True)
class Hidden:
    """All kinds of one machine."""

    kinds: tuple[Kind, ...]

    def dressed(self, random: np.random.Generator, activity: Activity) -> Activity:
        """One behaviour (1,) with what the kinds make of it."""
        for kind in self.kinds:
            activity = kind.dressed(random, activity)
        return activity

    def times_ns(self, setting: Setting) -> list[I64]:
        """Moments at which power changes."""
        return [kind.times_ns(setting) for kind in self.kinds]

    def charges(self, setting: Setting) -> list[Charges]:
        """What is drawn while the owners do not run."""
        return [charge for kind in self.kinds for charge in kind.charges(setting)]

    def factors(self, setting: Setting, cells: Cells, misses: F64) -> tuple[F64, F64]:
        """(c,) factors on the power of the core and of misses."""
        core = miss = np.ones(len(cells.row))
        for kind in self.kinds:
            core_and_miss = kind.factors(setting, cells, misses)
            core, miss = core * core_and_miss[0], miss * core_and_miss[1]
        return core, miss

    def watts(self, setting: Setting, cells: Cells) -> F64:
        """(c,) further power in the core domain."""
        watts: F64 = np.sum([kind.watts(setting, cells) for kind in self.kinds], axis=0)
        return watts

    def seen_nj(self, edges_ns: I64, energy_nj: F64) -> F64:
        """What the energy counter shows."""
        for kind in self.kinds:
            energy_nj = kind.seen_nj(edges_ns, energy_nj)
        return energy_nj


def draw_hidden(random: np.random.Generator, machine: PhysicalMachine) -> Hidden:
    """`DRAWN` of the kinds."""
    every = candidates(random, machine)
    indices = random.permutation(len(every))[:DRAWN]
    return Hidden(tuple(every[i] for i in sorted(indices.tolist())))


def candidates(random: np.random.Generator, machine: PhysicalMachine) -> Sequence[Kind]:
    """Every kind, with its constants drawn for this machine."""
    core_w = (machine.cycle_nj + 2 * machine.instruction_nj) * machine.max_ghz
    call_nj = core_w * 1e6  # of a millisecond
    return (
        WideVectors(
            share=random.uniform(0.2, 0.5),
            own=random.uniform(0.1, 0.3),
            raised=random.uniform(0.04, 0.12),
            kept_ns=int(random.uniform(3e5, 1e6)),
        ),
        Clusters(int(random.integers(2, 5)), random.uniform(0.2, 0.6)),
        DataPhases(random.uniform(0.06, 0.18), random.uniform(0.3e9, 4e9)),
        UnevenCores(tuple(random.uniform(0.85, 1.15, 32).tolist())),
        Devices(call_nj * random.uniform(0.01, 0.06), int(random.uniform(3e4, 4e5))),
        CrowdedMemory(random.uniform(0.3, 1.0), random.uniform(0.01, 0.03)),
        LaggingCounter(random.uniform(2e6, 4e7)),
    )
