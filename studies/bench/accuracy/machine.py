# SPDX-License-Identifier: Apache-2.0
"""Draws machines by seed: topology, voltage and frequency, and the cost of a cycle or a miss.

The ranges are those that the literature and field data give for servers. Nothing here is fitted to
the assumptions of any estimator.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from studies.bench.accuracy.recording import F64, I64

from qjoule.model.arrays import Machine

#: Temperature and frequency limits change in steps of this. Turbo follows the busy cores at once.
GRID_NS = 10_000_000


@dataclass(frozen=True)
class Topology:
    """CPU topology. Cores are numbered across the machine; CPUs as Linux does: core + thread *
    cores.
    """

    packages: int
    cores_per_package: int
    threads_per_core: int

    @property
    def cores(self) -> int:
        return self.packages * self.cores_per_package

    @property
    def cpus(self) -> int:
        return self.cores * self.threads_per_core

    def machine(self) -> Machine:
        """The CPUs as the tracer reports them."""
        core = np.arange(self.cpus) % self.cores
        return Machine(np.arange(self.cpus), core // self.cores_per_package, core)


@dataclass(frozen=True)
class PhysicalMachine:
    """A machine's hidden coefficients; all packages are of one make, `idle_w` differs by package.

    Core energies are at the voltage of `max_ghz` and scale with V**2, as CMOS does (P = C V**2 f).
    `cycle_nj` is the clock and issue logic of a busy core. `instruction_nj` is the cost of an
    instruction in the core, `miss_nj` of an LLC miss in the uncore.

    - `maintenance_w`: drawn by a package while any of its cores is busy (Shen et al., "Power
      Containers", ASPLOS 2013); the part `maintenance_scaled` of it follows V**2 f.
    - `saturation`: dynamic power x of a package becomes x / (1 + saturation * x / full_w).
    - `sibling_rate`: instructions per cycle of a thread beside a busy sibling, over those alone.
      With it two threads of a core draw 1.0 to 1.3 times one (HaPPy, Zhai et al., ATC 2014: 1.1).
    - `sibling_misses`: factor on its misses per instruction, the cache being shared.
    - `drift`: amplitude of slow changes of power with temperature, (idle, dynamic).
    """

    topology: Topology
    idle_w: F64
    maintenance_w: float
    maintenance_scaled: float
    min_ghz: float
    max_ghz: float
    all_cores_ghz: float
    volts_at_min: float
    cycle_nj: float
    instruction_nj: float
    miss_nj: float
    sibling_rate: float
    sibling_misses: float
    saturation: float
    full_w: float
    drift: tuple[float, float]
    core_idle_share: float
    core_maintenance_share: float
    dram_idle_w: F64
    dram_miss_nj: float
    dram_write_share: float

    def voltage(self, ghz: npt.NDArray[np.float64] | float) -> npt.NDArray[np.float64]:
        """Voltage over that of `max_ghz`: linear in frequency, as published P-state tables are."""
        span = (np.asarray(ghz) - self.min_ghz) / (self.max_ghz - self.min_ghz)
        return self.volts_at_min + (1 - self.volts_at_min) * span

    def turbo_ghz(self) -> F64:
        """Highest frequency by number of busy cores of a package, from 0 to all."""
        cores = self.topology.cores_per_package
        used = np.arange(cores + 1)
        fall = np.clip(used - 1, 0, None) / max(cores - 1, 1)
        return np.round(self.max_ghz - (self.max_ghz - self.all_cores_ghz) * fall, 1)


def draw_machine(random: np.random.Generator, topology: Topology) -> PhysicalMachine:
    """A machine of this topology.

    Power at rest is between a tenth of full power (recent Xeons) and half of it (older servers).
    `maintenance_w` is drawn so that two loads measured alone add up to about 15 to 55 % more than
    both together, with idle counted once, as on a desktop and on a two-socket server. The clock
    takes 20 to 50 % of the power of a core that retires two instructions per cycle. A core that
    streams adds up to half of that core's power in the uncore.
    """
    core_w = random.uniform(4, 12)
    max_ghz = random.uniform(2.8, 4.2)
    clock = random.uniform(0.20, 0.50)
    full_w = core_w * topology.cores_per_package
    residual = random.uniform(0.15, 0.60)
    idle_w = max(6.0, full_w * random.uniform(0.15, 0.8))
    dram_idle_w = random.uniform(2, 12)
    shape = (topology.packages,)
    return PhysicalMachine(
        topology=topology,
        idle_w=idle_w * random.uniform(0.95, 1.05, shape),
        maintenance_w=residual / (1 - residual) * full_w / 2,
        maintenance_scaled=random.uniform(0, 0.5),
        min_ghz=random.uniform(0.8, 1.4),
        max_ghz=max_ghz,
        all_cores_ghz=max_ghz * random.uniform(0.75, 1.0),
        volts_at_min=random.uniform(0.65, 0.8),
        cycle_nj=clock * core_w / max_ghz,
        # A compute-bound thread retires about two instructions per cycle.
        instruction_nj=(1 - clock) * core_w / (2 * max_ghz),
        # A streaming core misses about 60 times per microsecond.
        miss_nj=random.uniform(0.15, 0.5) * core_w / 0.06,
        sibling_rate=random.uniform(0.52, 0.70),
        sibling_misses=random.uniform(1.0, 1.25),
        saturation=random.uniform(0, 0.35),
        full_w=full_w,
        drift=(random.uniform(0.001, 0.012), random.uniform(0.002, 0.02)),
        core_idle_share=random.uniform(0.02, 0.2),
        core_maintenance_share=random.uniform(0.0, 0.3),
        dram_idle_w=dram_idle_w * random.uniform(0.95, 1.05, shape),
        dram_miss_nj=random.uniform(15, 45),
        dram_write_share=random.uniform(0.5, 1.0),
    )


def another_day(random: np.random.Generator, machine: PhysicalMachine) -> PhysicalMachine:
    """The same machine at another room temperature: power at rest within 1.5 %."""
    factor = random.uniform(0.985, 1.015)
    return replace(machine, idle_w=machine.idle_w * factor)


@dataclass(frozen=True)
class Climate:
    """How the temperature and frequency limits change over a run, in steps of `GRID_NS` from
    `begin_ns`.

    `idle` and `dynamic` (packages, steps) multiply power at rest and that of threads, `all_power`
    (packages, steps) multiplies all power of a package. `limit_ghz` (cores, steps) bounds the
    frequency; None if only turbo bounds it.
    """

    begin_ns: int
    idle: F64
    dynamic: F64
    limit_ghz: F64 | None
    all_power: F64 | None = None

    def step(self, t_ns: I64) -> I64:
        """The step in effect at each time."""
        last = self.idle.shape[1] - 1
        step: I64 = np.clip((t_ns - self.begin_ns) // GRID_NS, 0, last)
        return step


def draw_climate(
    random: np.random.Generator,
    machine: PhysicalMachine,
    span_ns: tuple[int, int],
    governor: str = "turbo",
) -> Climate:
    """Temperature and, for `governor` "steps", a frequency limit that moves every 50 to 800 ms.

    Each package has its own limit, or each core, at random. "turbo": none.
    """
    begin_ns, end_ns = span_ns
    steps = -(-(end_ns - begin_ns) // GRID_NS)
    packages = machine.topology.packages
    idle = _slow(random, packages, steps, machine.drift[0])
    dynamic = _slow(random, packages, steps, machine.drift[1])
    limit = None
    if governor == "steps":
        limit = _steps(random, machine, steps)
    return Climate(begin_ns, idle, dynamic, limit)


def wandering(random: np.random.Generator, climate: Climate, amplitude: float) -> Climate:
    """The climate with slow changes of all power by up to `amplitude`, within 20 to 200 s."""
    packages, steps = climate.idle.shape
    t_s = np.arange(steps) * (GRID_NS * 1e-9)
    wave = np.zeros((packages, steps))
    for weight in (0.6, 0.4):
        period_s = random.uniform(20, 200, (packages, 1))
        wave += weight * np.sin(2 * np.pi * (t_s / period_s + random.uniform(0, 1, (packages, 1))))
    return replace(climate, all_power=1 + amplitude * wave)


def _slow(random: np.random.Generator, rows: int, steps: int, amplitude: float) -> F64:
    """Factors around 1 that move within 5 to 60 s."""
    t_s = np.arange(steps) * (GRID_NS * 1e-9)
    wave = np.zeros((rows, steps))
    for weight in (0.7, 0.3):
        period_s = random.uniform(5, 60, (rows, 1))
        wave += weight * np.sin(2 * np.pi * (t_s / period_s + random.uniform(0, 1, (rows, 1))))
    result: F64 = 1 + amplitude * wave
    return result


def _steps(random: np.random.Generator, machine: PhysicalMachine, steps: int) -> F64:
    """Frequency limits of each core, in steps of 100 MHz."""
    topology = machine.topology
    per_core = bool(random.integers(2))
    rows = topology.cores if per_core else topology.packages
    dwell = random.uniform(5, 80)
    change = random.random((rows, steps)) < 1 / dwell
    change[:, 0] = True
    low = machine.min_ghz + 0.15 * (machine.max_ghz - machine.min_ghz)
    level = np.round(random.uniform(low, machine.max_ghz, (rows, steps)), 1)
    last = np.maximum.accumulate(np.where(change, np.arange(steps), 0), axis=1)
    limit: F64 = np.take_along_axis(level, last, axis=1)
    return limit if per_core else np.repeat(limit, topology.cores_per_package, axis=0)


def heat(tau_s: float, power: F64) -> F64:
    """(steps,) temperature in each step of the grid; `power` is relative to full power.

    One thermal resistance and capacity. Before the run the load was as it is on average.
    """
    decay = float(np.exp(-GRID_NS * 1e-9 / tau_s))
    level, levels = float(np.mean(power)), []
    for watts in power.tolist():
        levels.append(level)
        level = decay * level + (1 - decay) * watts
    return np.array(levels)
