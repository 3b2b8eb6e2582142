# SPDX-License-Identifier: Apache-2.0
"""Draws the effects of `PHYSICS.md` that the simplest machine does not have.

A machine has any number of them. `sweep` applies them; the calibration run and every recording of a
machine have the same ones.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np
from studies.bench.accuracy.activity import Activity
from studies.bench.accuracy.gaps import Tail
from studies.bench.accuracy.hidden_kinds import Hidden
from studies.bench.accuracy.limits import (
    Licence,
    Pulse,
    Throttle,
    draw_licence,
    draw_pulse,
    draw_throttle,
)
from studies.bench.accuracy.machine import PhysicalMachine

#: (target residency, exit latency) in ns of idle states from shallow to deep: tables of the Linux
#: driver intel_idle (skx, icx, spr, bdx), and ACPI's _CST of a Zen 2 server.
STATES = {
    "skylake": ((2_000, 2_000), (20_000, 10_000), (600_000, 133_000)),
    "ice_lake": ((1_000, 1_000), (4_000, 4_000), (600_000, 170_000)),
    "sapphire_rapids": ((1_000, 1_000), (4_000, 2_000), (800_000, 290_000)),
    "broadwell": ((2_000, 2_000), (20_000, 10_000), (100_000, 40_000), (400_000, 133_000)),
    "zen_2": ((2_000, 1_000), (800_000, 400_000)),
}
#: A machine without a deeper state has no tail: a core that sleeps draws its power at rest.
SHALLOW = ((2_000, 2_000),)
LONGEST_TAIL_NS = 1_000_000
#: Periods of the timer at 1000, 250 and 100 Hz.
TICKS_NS = (1_000_000, 4_000_000, 10_000_000)
GOVERNORS = ("ladder", "predicting")
UNCORE_FORMS = ("mean", "max", "stepped")


@dataclass(frozen=True)
class Uncore:
    """Shared power times 1 + `gain` * h, where h, 0 to 1, follows memory traffic per busy core.

    `form`: "mean" or "max" over busy cores at each instant, h = traffic / `reference_per_ns`; or
    "stepped": `steps` levels, one up in 10 ms with traffic above `high` of the reference, one down
    below `low` of it.
    """

    form: str
    gain: float
    reference_per_ns: float
    steps: int = 5
    low: float = 0.2
    high: float = 0.5


@dataclass(frozen=True)
class Small:
    """Of each package, the last `share` of the cores are small: `rate` times the instructions per
    cycle, `pace` times the frequency, `energy` times the energy of a cycle and an instruction."""

    share: float
    rate: float
    pace: float
    energy: float

    def cores(self, cores: int) -> int:
        """How many of a package's cores are small: at least one is, and one is not."""
        return min(max(round(self.share * cores), 1), cores - 1)


@dataclass(frozen=True)
class Warming:
    """All power times 1 + `amplitude` * (2 * heat - 1); heat follows power within `tau_s`."""

    amplitude: float
    tau_s: float


@dataclass(frozen=True)
class Effects:
    """The effects of one machine. None or 0: the machine does not have it.

    - `wander`: amplitude of slow changes of all power that do not follow the load.
    - `load_line`: share of its voltage that the package loses at full current.
    - `kept`: share of its shared power that a package draws while it sleeps beside an awake one.
    - `beside`: costs of an instruction and of a miss beside a busy sibling, over those alone, are
      drawn for each shape within 1 +- this.
    - `prefetching`: a share of the misses, by shape, is not counted.
    - `small`: some cores are of a smaller kind.
    - `licence` lowers the clock of single cores, `throttle` that of all.
    - `pulse`: firmware draws power once in a period.
    - `idle_states`: (target residency, exit latency) in ns, as the kernel shows them; none: it
      shows no table, as in a virtual machine.
    """

    package_tail: Tail | None = None
    core_tail: Tail | None = None
    uncore: Uncore | None = None
    warming: Warming | None = None
    wander: float = 0.0
    load_line: float = 0.0
    kept: float = 0.0
    beside: float = 0.0
    prefetching: bool = False
    hidden: Hidden | None = None
    idle_states: tuple[tuple[int, int], ...] = ()
    small: Small | None = None
    licence: Licence | None = None
    throttle: Throttle | None = None
    pulse: Pulse | None = None

    def joined(self, other: Effects) -> Effects:
        """The effects of both; those of `other` count where both have one."""
        values = {f.name: getattr(other, f.name) for f in fields(other)}
        return replace(self, **{name: value for name, value in values.items() if value})

    def dressed(self, random: np.random.Generator, activity: Activity) -> Activity:
        """Adds to one behaviour (1,) what counters and time do not show of it."""
        if self.beside:
            low, high = 1 - self.beside, 1 + self.beside
            instructions, misses = random.uniform(low, high, 2)
            activity = replace(
                activity,
                beside=activity.beside * instructions,
                beside_misses=activity.beside_misses * misses,
            )
        if self.prefetching:
            activity = replace(activity, prefetched=_prefetched(random, activity))
        if self.licence is not None:
            activity = self.licence.dressed(random, activity)
        if self.hidden is not None:
            activity = self.hidden.dressed(random, activity)
        return activity


def _prefetched(random: np.random.Generator, activity: Activity) -> np.ndarray:
    """Share of misses that a prefetcher took over: large where a miss stalls for a short time.

    A prefetcher that follows a pattern is what makes misses of scans cheap in time.
    """
    stall_ns = activity.stall_ns / np.maximum(activity.misses, 1e-12)
    pattern = np.clip(1 - stall_ns / 60, 0, 1)
    share: np.ndarray = pattern * random.uniform(0.2, 0.9)
    return share


def wake_tails(random: np.random.Generator, machine: PhysicalMachine) -> Effects:
    """Tails of package and core, from one of `STATES`; either may be missing, not both."""
    states = STATES[str(random.choice(list(STATES)))]
    which = int(random.integers(4))
    governor = str(random.choice(GOVERNORS, p=(0.6, 0.4)))
    core_w = machine.cycle_nj * machine.max_ghz
    package = _tail(random, states, machine.maintenance_w, (0.4, 1.0), governor)
    core = _tail(random, states, core_w, (0.1, 0.6), governor)
    return Effects(
        package_tail=None if which == 0 else package,
        core_tail=None if which == 1 else core,
        idle_states=states,
    )


def long_tails(random: np.random.Generator, machine: PhysicalMachine) -> Effects:
    """A package tail of 3 to 13 ms. Half of the machines enter the deep state at a tick, and the
    kernel's table shows the states of cores alone."""
    states = STATES[str(random.choice(list(STATES)))]
    end_ns = int(random.uniform(3e6, 13e6))
    ends, shares = [end_ns], [random.uniform(0.4, 1.0)]
    if random.integers(2):
        ends.insert(0, int(end_ns * random.uniform(0.1, 0.5)))
        shares.append(shares[0] * random.uniform(0.4, 1.0))
    tick_ns = int(random.choice([tick for tick in TICKS_NS if tick < end_ns]))
    saved_nj = shares[-1] * machine.maintenance_w * states[-1][0]
    tail = Tail(
        until_ns=tuple(ends),
        share=tuple(shares),
        wake_nj=saved_nj * random.uniform(0.05, 0.6),
        wake_ns=int(states[-1][1] * random.uniform(0.3, 1.0)),
        tick_ns=tick_ns if random.integers(2) else 0,
    )
    return Effects(package_tail=tail, idle_states=states)


def _tail(
    random: np.random.Generator,
    states: tuple[tuple[int, int], ...],
    watts: float,
    range_: tuple[float, float],
    governor: str,
) -> Tail:
    """A tail whose first step draws a share of `watts` within `range_`, later ones less."""
    scale = random.uniform(0.15, 1.3)
    ends = [min(int(residency * scale), LONGEST_TAIL_NS) for residency, _ in states[1:]]
    shares = [random.uniform(*range_)]
    for _ in ends[1:]:
        shares.append(shares[-1] * random.uniform(0.4, 1.0))
    # At the target residency, entering and leaving a state has cost what the state saved.
    saved_nj = shares[-1] * watts * states[-1][0]
    return Tail(
        until_ns=tuple(ends),
        share=tuple(shares),
        wake_nj=saved_nj * random.uniform(0.05, 0.6),
        wake_ns=int(states[-1][1] * random.uniform(0.3, 1.0)),
        governor=governor,
    )


def uncore_follows_work(random: np.random.Generator) -> Effects:
    """Shared power that rises by 30 to 80 %; on half of the machines a prefetcher hides misses."""
    uncore = Uncore(
        form=str(random.choice(UNCORE_FORMS)),
        gain=random.uniform(0.3, 0.8),
        reference_per_ns=float(np.exp(random.uniform(np.log(0.008), np.log(0.05)))),
        steps=int(random.integers(3, 9)),
        low=random.uniform(0.1, 0.3),
        high=random.uniform(0.35, 0.7),
    )
    return Effects(uncore=uncore, prefetching=bool(random.integers(2)))


def warming_and_wander(random: np.random.Generator) -> Effects:
    """Warming by 1 to 3 % within 5 to 60 s, and wander of 5 to 12 %."""
    tau_s = float(np.exp(random.uniform(np.log(5), np.log(60))))
    warming = Warming(random.uniform(0.01, 0.03), tau_s)
    return Effects(warming=warming, wander=random.uniform(0.05, 0.12))


def siblings(random: np.random.Generator) -> Effects:
    """Costs beside a sibling by shape, and a load line."""
    return Effects(beside=random.uniform(0.1, 0.35), load_line=random.uniform(0.02, 0.10))


def draw_kept(random: np.random.Generator) -> Effects:
    """A package that is kept awake draws half to all of its shared power."""
    return Effects(kept=random.uniform(0.5, 1.0))


def core_kinds(random: np.random.Generator) -> Effects:
    """Half to two thirds of the cores are small."""
    return Effects(
        small=Small(
            share=random.uniform(0.4, 0.7),
            rate=random.uniform(0.45, 0.75),
            pace=random.uniform(0.65, 0.85),
            energy=random.uniform(0.2, 0.55),
        )
    )


def licences(random: np.random.Generator) -> Effects:
    """Wide vector instructions lower their core's frequency."""
    return Effects(licence=draw_licence(random))


def throttling(random: np.random.Generator) -> Effects:
    """A hot machine lowers its clock, and leaks more: all power by 3 to 8 %."""
    tau_s = float(np.exp(random.uniform(np.log(5), np.log(60))))
    warming = Warming(random.uniform(0.03, 0.08), tau_s)
    return Effects(warming=warming, throttle=draw_throttle(random, tau_s))


def pulses(random: np.random.Generator) -> Effects:
    """Firmware that draws power by the clock, for half of the machines when a statement runs."""
    return Effects(pulse=draw_pulse(random))
