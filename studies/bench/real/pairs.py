# SPDX-License-Identifier: Apache-2.0
"""Two programs on one socket: the time in which both ran, and the reference for its split.

The reference comes from solo runs alone. The socket at rest draws R. It draws S once, however many
of its cores are busy, and every program some power of its own:

    8 cores alone: R + S + own      16 cores alone: R + S + 2 own      two: R + S + own A + own B

R + S is twice the power on 8 cores less that on 16, of programs that run as fast on 16 cores as on
8. R is what the other socket draws, which has no work. A program causes its own power and a part of
S by its busy cores.

The source has no CPU time, and `Platform.held` is what is assumed of it. Either a program is busy
for as long as its cycles need at the frequency of this machine, or on each core that it holds
until it ends. Programs with serial parts, such as kmeans, lie in between.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from studies.bench.accuracy.recording import F64
from studies.bench.real.xeon import NODE, Program, Run, Runs

#: A program runs as fast on 16 cores as on 8 if its counts per core differ by less than this.
SAME_SPEED = 0.06
#: Shorter runs have much of their time in start and end.
LEAST_S = 20.0


@dataclass(frozen=True)
class Platform:
    """What the solo runs tell of the socket: `rest_w` is R, `awake_w` is R + S; `ghz` of a core
    that is busy all the time. `held`: cores are busy for as long as a program holds them."""

    rest_w: float
    awake_w: float
    ghz: float
    held: bool = False

    @property
    def shared_w(self) -> float:
        return self.awake_w - self.rest_w

    def busy(self, program: Program) -> float:
        """Mean busy cores."""
        return len(program.cpus) * (1.0 if self.held else min(program.ghz() / self.ghz, 1.0))


@dataclass(frozen=True)
class Pair:
    """The time in which both of a run's programs ran. `solo` are their runs alone, `whole` is the
    time of both as a run of its own: its second part, with one program, is taken off at the power
    of that program's solo run."""

    name: str
    whole: Run
    solo: tuple[Run, Run]

    @property
    def solo_w(self) -> F64:
        return np.array([run.package_w[NODE] for run in self.solo])

    @property
    def joint_w(self) -> float:
        return float(self.whole.package_w[NODE])

    @property
    def paid_once_w(self) -> float:
        """R + S as this pair shows it: what both draw alone, less what they draw together."""
        return float(self.solo_w.sum()) - self.joint_w

    def reference(self, platform: Platform) -> F64:
        """Share (2,) of each program in the energy above power at rest."""
        busy = np.array([platform.busy(program) for program in self.whole.programs])
        caused = self.solo_w - platform.awake_w + platform.shared_w * busy / busy.sum()
        share: F64 = caused / caused.sum()
        return share


def platform_of(runs: Runs) -> Platform:
    """Raises `ValueError` if no program ran as fast on 16 cores as on 8."""
    rest = [run.package_w[1 - NODE] for run in runs.solo.values() if run.seconds >= LEAST_S]
    awake = [
        2 * run.package_w[NODE] - double.package_w[NODE]
        for run, double in _doubled(runs)
        if min(run.seconds, double.seconds) >= LEAST_S
    ]
    if not awake:
        raise ValueError("no program ran alone on 8 and on 16 cores at the same speed")
    ghz = max(run.programs[0].ghz() for run in runs.solo.values())
    return Platform(float(np.median(rest)), float(np.median(awake)), ghz)


def _doubled(runs: Runs) -> Iterator[tuple[Run, Run]]:
    for (name, cores), run in runs.solo.items():
        double = runs.solo.get((name, 2 * cores))
        if double is not None:
            single_rates, double_rates = run.programs[0].rates(), double.programs[0].rates() / 2
            if np.all(np.abs(double_rates[:2] / single_rates[:2] - 1) < SAME_SPEED):
                yield run, double


def pairs_of(runs: Runs) -> Iterator[Pair]:
    """The pairs, in the source's order."""
    for run in runs.pairs:
        first, second = run.programs
        solo = tuple(runs.solo[program.name, len(program.cpus)] for program in (first, second))
        both_s = min(first.seconds, second.seconds)
        longer = int(second.seconds > first.seconds)
        alone_s = run.seconds - both_s
        joules = run.package_w * run.seconds - solo[longer].package_w * alone_s
        # The idle socket draws the same throughout, whatever it drew beside the solo run.
        joules[1 - NODE] = run.package_w[1 - NODE] * both_s
        dram_j = run.dram_w * run.seconds - solo[longer].dram_w * alone_s
        dram_j[1 - NODE] = run.dram_w[1 - NODE] * both_s
        programs = tuple(_until(runs, run.name, program, both_s) for program in run.programs)
        whole = Run(run.name, programs, both_s, joules / both_s, dram_j / both_s)
        yield Pair("+".join(program.name for program in programs), whole, (solo[0], solo[1]))


def _until(runs: Runs, run: str, program: Program, seconds: float) -> Program:
    """A program's first `seconds`: its counts by its samples, if there are any."""
    share = min(seconds / program.seconds, 1.0)
    samples = runs.samples.get((run, program.name))
    if samples is not None and samples.sum() > 0:
        first = samples[: max(round(share * len(samples)), 1)].sum(axis=0)
        counted = first / np.maximum(samples.sum(axis=0), 1.0)
    else:
        counted = np.full(len(program.counts), share)
    return replace(program, seconds=min(seconds, program.seconds), counts=program.counts * counted)
