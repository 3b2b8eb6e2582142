# SPDX-License-Identifier: Apache-2.0
"""The power of one package at every instant, and what of it each slice is charged.

The equations and the rule of ownership are in `PHYSICS.md`. Everything is constant between two
events, so energy is exact: sums over the intervals between events.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from studies.bench.accuracy.activity import Cells, Setting, spread
from studies.bench.accuracy.effects import Effects, Uncore
from studies.bench.accuracy.gaps import Charges, sleeps, tail_charges
from studies.bench.accuracy.limits import Throttle
from studies.bench.accuracy.machine import GRID_NS, Climate, heat
from studies.bench.accuracy.recording import F64, I64


def uncore_level(uncore: Uncore, cells: Cells, misses: F64, step: I64) -> F64:
    """(n,) how far the uncore is up, 0 to 1; `misses` (c,) per ns, `step` (n,) of the grid."""
    busy = cells.busy_cores
    if uncore.form == "max":
        return np.minimum(cells.highest(misses) / uncore.reference_per_ns, 1.0)
    traffic = cells.total(misses)
    if uncore.form == "mean":
        return np.minimum(traffic / np.maximum(busy, 1) / uncore.reference_per_ns, 1.0)
    steps = int(step[-1]) + 1
    missed = np.bincount(step, traffic * cells.dt_ns, steps)
    spent_ns = np.bincount(step, busy * cells.dt_ns, steps)
    load = missed / np.maximum(spent_ns, 1.0) / uncore.reference_per_ns
    level, levels = 0, np.zeros(steps)
    for k in range(1, steps):
        # The step's frequency was chosen from what the step before it showed.
        if load[k - 1] > uncore.high:
            level = min(level + 1, uncore.steps - 1)
        elif load[k - 1] < uncore.low:
            level = max(level - 1, 0)
        levels[k] = level
    relative_level: F64 = levels[step] / (uncore.steps - 1)
    return relative_level


def load_line(drop: float, load: F64) -> F64:
    """Factor on power where `load` is power over full power at nominal voltage.

    The voltage is V0 - R I, the current P / V, and power goes with V**2. So V / V0 =
    1 / (1 + R P0 / V0**2), where P0 is the power at V0; at full power the voltage is `drop` lower.
    """
    resistance = drop / (1 - drop)
    loss: F64 = 1 / (1 + resistance * load) ** 2
    return loss


class Sweep:
    """One package under the slices of its CPUs; `slice_core` is the core of each within it."""

    def __init__(
        self, setting: Setting, slice_core: I64, climate: Climate, effects: Effects
    ) -> None:
        self._setting, self._machine, self._effects = setting, setting.machine, effects
        self._climate = climate
        self._core = slice_core
        self._charges = Charges.join(self._all_charges())
        self.edges_ns = self._events()
        cores = self._machine.topology.cores_per_package
        self.cells = Cells.of(self.edges_ns, setting.t0_ns, setting.t1_ns, slice_core, cores)
        self._dt_ns = self.cells.dt_ns
        self._step = climate.step(self.edges_ns[:-1])
        begin = np.searchsorted(self.edges_ns, self._charges.t0_ns)
        end = np.searchsorted(self.edges_ns, self._charges.t1_ns)
        self._charge, self._during = spread(begin, end)
        self._draw()

    def _all_charges(self) -> list[Charges]:
        """What is drawn while its owner does not run."""
        setting, effects, charges = self._setting, self._effects, []
        t0, t1, every = setting.t0_ns, setting.t1_ns, np.arange(len(self._core))
        if effects.package_tail is not None:
            gaps = sleeps(t0, t1, every, setting.span_ns)
            charges += tail_charges(gaps, effects.package_tail, "shared", setting.span_ns[1])
        if effects.core_tail is not None:
            for core in np.unique(self._core):
                gaps = sleeps(t0, t1, np.flatnonzero(self._core == core), setting.span_ns)
                charges += tail_charges(gaps, effects.core_tail, "clock", setting.span_ns[1])
        if effects.hidden is not None:
            charges += effects.hidden.charges(setting)
        return charges

    def _events(self) -> I64:
        """(n + 1,) times at which anything changes."""
        setting = self._setting
        grid = np.arange(self._climate.begin_ns, setting.span_ns[1], GRID_NS)
        times = [setting.t0_ns, setting.t1_ns, grid, np.array(setting.span_ns)]
        times += [self._charges.t0_ns, self._charges.t1_ns]
        if self._effects.hidden is not None:
            times += self._effects.hidden.times_ns(setting)
        if (licence := self._effects.licence) is not None:
            times.append(licence.until_ns(setting))
        if (pulse := self._effects.pulse) is not None:
            times.append(pulse.times_ns(setting.span_ns))
        every = np.sort(np.concatenate(times))
        edges: I64 = every[np.diff(every, prepend=every[0] - 1) > 0]
        return edges

    def _draw(self) -> None:
        """Own power of every thread, the package's power, and what each cell is charged."""
        m, act, cells = self._machine, self._setting.activity, self.cells
        row, interval, threads = cells.row, cells.interval, cells.threads
        ghz, kind = self._frequency(), self._kind()
        siblings_busy = threads > 1
        volts2: F64 = m.voltage(ghz) ** 2
        ghz = ghz * self._duty()
        rate = 1 / (act.core_cpi[row] / (ghz * kind.rate) + act.stall_ns[row])
        rate = rate * np.where(siblings_busy, m.sibling_rate, 1)
        misses = rate * act.misses[row] * np.where(siblings_busy, m.sibling_misses, 1)
        instruction_nj = m.instruction_nj * rate * np.where(siblings_busy, act.beside[row], 1)
        core_w = volts2 * act.intensity[row] * (m.cycle_nj * ghz / threads + instruction_nj)
        core_w = core_w * kind.energy
        miss_w = m.miss_nj * misses * np.where(siblings_busy, act.beside_misses[row], 1)
        if (hidden := self._effects.hidden) is not None:
            factors = hidden.factors(self._setting, cells, misses)
            core_w = core_w * factors[0] + hidden.watts(self._setting, cells)
            miss_w = miss_w * factors[1]
        own_w = core_w + miss_w
        late_core_w, late_w = self._late(volts2 * m.cycle_nj * ghz)
        total_w = cells.total(own_w) + self._total_late(late_w)
        drift = self._climate.dynamic[self._setting.package][self._step]
        scale: F64 = drift / (1 + m.saturation * total_w / m.full_w)
        self._shared_w = self._shared(volts2 * ghz / threads, misses)
        awake_w = np.where(cells.busy_cores > 0, self._shared_w, 0.0)
        late_shared_w = self._charges.shared[self._charge] * self._shared_w[self._during]
        active_w = total_w * scale + awake_w + self._total_late(late_shared_w)
        droop = self._droop(active_w)
        factor = droop * self._warm(droop * active_w)
        part_w = (awake_w / np.maximum(cells.busy_cores, 1))[interval] / threads
        dram_w = m.dram_miss_nj * misses * (1 + m.dram_write_share * act.writes[row])
        self._rates = {
            "package": (own_w * scale[interval] + part_w) * factor[interval],
            "core": (core_w * scale[interval] + m.core_maintenance_share * part_w)
            * factor[interval],
            "dram": dram_w,
            "cycles": ghz,
            "instructions": rate,
            "misses": misses * (1 - act.prefetched[row]),
        }
        self._late_rates = self._charged(late_core_w, late_w, scale, factor)

    def _late(self, clock_w: F64) -> tuple[F64, F64]:
        """Dynamic power of every charged interval: of the core, and of the package with it.

        `clock_w` is that of the core of every cell.
        """
        charges, which = self._charges, self._charge
        # A core sleeps with the clock of the last interval in which it ran.
        last = np.zeros(len(self._core))
        last[self.cells.row] = clock_w
        core_w = charges.clock[which] * last[charges.row[which]] + charges.core_w[which]
        return core_w, core_w + charges.package_w[which]

    def _total_late(self, watts: F64) -> F64:
        late = np.bincount(self._during, watts, minlength=len(self._dt_ns))
        return late.astype(np.float64, copy=False)

    def _charged(self, core_w: F64, package_w: F64, scale: F64, factor: F64) -> dict[str, F64]:
        """What every charged interval draws, by domain."""
        during = self._during
        shared_w = self._charges.shared[self._charge] * self._shared_w[during]
        share = self._machine.core_maintenance_share
        return {
            "package": (package_w * scale[during] + shared_w) * factor[during],
            "core": (core_w * scale[during] + share * shared_w) * factor[during],
        }

    def _kind(self) -> _Kind:
        """The kind of the core of every cell."""
        small, cores = self._effects.small, self._machine.topology.cores_per_package
        if small is None:
            return _Kind()
        is_small = self.cells.core >= cores - small.cores(cores)
        values = (
            np.where(is_small, factor, 1.0) for factor in (small.rate, small.pace, small.energy)
        )
        return _Kind(*values)

    def _frequency(self) -> F64:
        """GHz of the core of every cell."""
        cells = self.cells
        turbo: F64 = self._machine.turbo_ghz()[cells.busy_cores][cells.interval]
        turbo = turbo * self._kind().pace
        if (licence := self._effects.licence) is not None:
            turbo = turbo * np.where(licence.held(cells, self._setting), licence.pace, 1.0)
        if (throttle := self._effects.throttle) is not None and not throttle.duty:
            turbo = turbo * self._throttled(throttle)
        if self._climate.limit_ghz is None:
            return turbo
        first = self._setting.package * self._machine.topology.cores_per_package
        limits = self._climate.limit_ghz[cells.core + first, self._step[cells.interval]]
        limited: F64 = np.minimum(turbo, limits)
        return limited

    def _duty(self) -> F64 | float:
        """Share of the clocks that reach the core of every cell."""
        throttle = self._effects.throttle
        return self._throttled(throttle) if throttle is not None and throttle.duty else 1.0

    def _throttled(self, throttle: Throttle) -> F64:
        """What throttling leaves of the clock of every cell."""
        cores, steps = len(self.cells.core_threads), int(self._step[-1]) + 1
        busy_ns = np.bincount(self._step, self.cells.busy_cores * self._dt_ns, steps)
        spent_ns = np.bincount(self._step, self._dt_ns, steps)
        paces = throttle.paces(busy_ns / np.maximum(spent_ns, 1.0) / cores)
        return np.asarray(paces[self._step[self.cells.interval]])

    def _shared(self, pace: F64, misses: F64) -> F64:
        """Watts that the package would draw once in each interval if it were awake.

        `pace` is V**2 f of each busy core, halved if two threads share the core. While no core is
        busy, the value is that of the last interval with a busy one.
        """
        m, cells = self._machine, self.cells
        mean = cells.total(pace) / np.maximum(cells.busy_cores, 1) / m.max_ghz
        factor = 1 - m.maintenance_scaled + m.maintenance_scaled * mean
        watts: F64 = m.maintenance_w * factor
        awake = np.where(cells.busy_cores > 0, np.arange(len(watts)), 0)
        watts = watts[np.maximum.accumulate(awake)]
        if (uncore := self._effects.uncore) is not None:
            watts = watts * (1 + uncore.gain * uncore_level(uncore, cells, misses, self._step))
        return watts

    def _droop(self, active_w: F64) -> F64:
        """Factor on all power beyond that at rest, by the load line."""
        if not self._effects.load_line:
            return np.ones(len(active_w))
        full_w = self._machine.full_w + self._machine.maintenance_w
        return load_line(self._effects.load_line, active_w / full_w)

    def _warm(self, active_w: F64) -> F64:
        """Factor on all power, by temperature and other slow changes."""
        p, m = self._setting.package, self._machine
        factor = np.ones(self._climate.idle.shape[1])
        if self._climate.all_power is not None:
            factor = self._climate.all_power[p].copy()
        if (warming := self._effects.warming) is not None:
            rest_w = m.idle_w[p] * self._climate.idle[p]
            energy_nj = np.bincount(self._step, active_w * self._dt_ns, len(factor))
            spent_ns = np.bincount(self._step, self._dt_ns, len(factor))
            watts = rest_w + energy_nj / np.maximum(spent_ns, 1.0)
            full_w = m.idle_w[p] + m.maintenance_w + m.full_w
            level = heat(warming.tau_s, watts * factor / full_w)
            factor = factor * (1 + warming.amplitude * (2 * level - 1))
        self._slow = factor[self._step]
        return self._slow

    def rest(self, domain: str) -> tuple[float, F64]:
        """Power at rest, and (n,) the time of each interval times its slow factors, in ns."""
        m, p = self._machine, self._setting.package
        time_ns = self._climate.idle[p][self._step] * self._dt_ns
        if domain == "dram":
            return float(m.dram_idle_w[p]), time_ns
        if (pulse := self._effects.pulse) is not None and domain == "package":
            time_ns = time_ns * pulse.factor(self.edges_ns[:-1])
        rest_w = m.idle_w[p] * (m.core_idle_share if domain == "core" else 1.0)
        return float(rest_w), time_ns * self._slow

    @cached_property
    def cell_sums(self) -> dict[str, F64]:
        """(c + 1,) running sums over the cells, by quantity."""
        dt_ns = self._dt_ns[self.cells.interval]
        return {name: np.append(0.0, np.cumsum(r * dt_ns)) for name, r in self._rates.items()}

    def late_nj(self, domain: str) -> F64:
        """(s,) what each slice is charged while it does not run."""
        rate = self._late_rates.get(domain)
        if rate is None:
            return np.zeros(len(self._core))
        owner = self._charges.row[self._charge]
        energy_nj = rate * self._dt_ns[self._during]
        return np.bincount(owner, energy_nj, len(self._core)).astype(np.float64)

    def energy_nj(self, domain: str) -> F64:
        """(n + 1,) running sum of all energy at the edges."""
        run = self.cells.total(self._rates[domain]) * self._dt_ns
        if domain in self._late_rates:
            run = run + self._total_late(self._late_rates[domain]) * self._dt_ns
        rest_w, time_ns = self.rest(domain)
        return np.append(0.0, np.cumsum(run + rest_w * time_ns))


@dataclass(frozen=True)
class _Kind:
    """What cores have of a large one's instructions per cycle, frequency and energy."""

    rate: F64 | float = 1.0
    pace: F64 | float = 1.0
    energy: F64 | float = 1.0
