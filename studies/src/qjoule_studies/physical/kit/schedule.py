# SPDX-License-Identifier: Apache-2.0
"""The order and the length of a kit's runs, from the time that there is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from qjoule.api import UsageError
from qjoule_studies.physical.kit.document import Load

ROUNDS = 4
SETUP_S = 60.0  #: starting servers and filling tables
#: Starting and ending a recorder and the clients, and reading the trace: measured on two cores.
OVERHEAD_S = 4.0
SHORTEST_S = 1.0  #: of a run, if the budget decides
#: Positions of loads: none (rest), one (alone) or two.
Wanted = tuple[int, ...]


@dataclass(frozen=True)
class Schedule:
    """`runs` of one round, repeated `rounds` times in a changing order."""

    runs: tuple[Wanted, ...]
    rounds: int
    seconds: float
    budget_s: float

    def of_round(self, number: int) -> tuple[Wanted, ...]:
        """The runs of a round (from 1), rotated so that a drift favours no run."""
        turn = (number - 1) * len(self.runs) // self.rounds
        return (*self.runs[turn:], *self.runs[:turn])

    def seconds_for(self, left_s: float, runs: int, overhead_s: float) -> float:
        """Length of each of the next `runs` runs if `left_s` of the budget are left."""
        return max(min(self.seconds, left_s / max(runs, 1) - overhead_s), SHORTEST_S)

    def lines(self, loads: Sequence[Load]) -> list[str]:
        """The plan in words, one line each."""
        alone = sum(len(run) == 1 for run in self.runs)
        mixed = sum(len(run) == 2 for run in self.runs)
        each_s = self.seconds + OVERHEAD_S
        round_s = each_s * len(self.runs)
        return [
            f"about {minutes(SETUP_S)} to start servers and fill tables",
            f"{self.rounds} rounds of about {minutes(round_s)}: at rest, {alone} loads alone, "
            f"{mixed} pairs; {self.seconds:.1f} s each and {OVERHEAD_S:.0f} s to begin and end",
            f"about {minutes(SETUP_S + self.rounds * round_s)} in all; Ctrl-C ends it and keeps "
            "what there is",
            "loads: " + ", ".join(load.name for load in loads),
        ]


def schedule(
    loads: Sequence[Load],
    one_at_a_time: frozenset[str],
    *,
    budget_s: float,
    seconds: float | None = None,
    rounds: int = ROUNDS,
) -> Schedule:
    """Rest, every load alone, and every pair that may run together.

    `one_at_a_time`: servers that serve all their clients with one thread, so that two loads on one
    of them would slow each other down. `seconds`: of a run; None: what the budget allows.

    Raises `UsageError` if the budget is too short for runs of `SHORTEST_S`.
    """
    runs: list[Wanted] = [(), *((at,) for at in range(len(loads)))]
    for a, b in combinations(range(len(loads)), 2):
        if loads[a].server != loads[b].server or loads[a].server not in one_at_a_time:
            runs.append((a, b))
    each_s = (budget_s - SETUP_S) / (rounds * len(runs))
    wanted_s = each_s - OVERHEAD_S if seconds is None else seconds
    if seconds is None and wanted_s < SHORTEST_S:
        least_s = SETUP_S + rounds * len(runs) * (OVERHEAD_S + SHORTEST_S)
        raise UsageError(
            f"{minutes(budget_s)} are too short for {rounds} rounds of {len(runs)} "
            f"runs: --budget {least_s / 60:.0f} or more, or --seconds-per-run"
        )
    return Schedule(tuple(runs), rounds, wanted_s, budget_s)


def minutes(seconds: float) -> str:
    """A time for people: `45 s`, `19:30 min`."""
    whole = max(round(seconds), 0)
    return f"{whole} s" if whole < 60 else f"{whole // 60}:{whole % 60:02d} min"
