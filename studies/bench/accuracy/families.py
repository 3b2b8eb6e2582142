# SPDX-License-Identifier: Apache-2.0
"""Families of scenarios: which effects of `PHYSICS.md` a machine has. Each runs all load mixes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from studies.bench.accuracy import effects
from studies.bench.accuracy.effects import Effects
from studies.bench.accuracy.hidden_kinds import draw_hidden
from studies.bench.accuracy.machine import PhysicalMachine

FRIENDLY = "friendly"
#: Draws the effects of a machine.
Family = Callable[[np.random.Generator, PhysicalMachine], Effects]


def _all_together(random: np.random.Generator, machine: PhysicalMachine) -> Effects:
    made = effects.wake_tails(random, machine)
    for other in (
        effects.uncore_follows_work(random),
        effects.warming_and_wander(random),
        effects.siblings(random),
        Effects(prefetching=True),
    ):
        made = made.joined(other)
    return made


FAMILIES: dict[str, Family] = {
    FRIENDLY: lambda _random, _machine: Effects(),
    "wake_tails": effects.wake_tails,
    "uncore_follows_work": lambda random, _machine: effects.uncore_follows_work(random),
    "warming_and_wander": lambda random, _machine: effects.warming_and_wander(random),
    "siblings": lambda random, _machine: effects.siblings(random),
    "all_together": _all_together,
    "unseen": lambda random, machine: Effects(hidden=draw_hidden(random, machine)),
}
#: Families whose machines all have two threads per core.
WITH_SIBLINGS = ("siblings",)


def split_name(name: str) -> tuple[str, str]:
    """Family and scenario of a name: "wake_tails/short_bursts"; "short_bursts" is friendly.

    Raises:
        KeyError: there is no such family.
    """
    family, _, scenario = name.rpartition("/")
    family = family or FRIENDLY
    if family not in FAMILIES:
        raise KeyError(family)
    return family, scenario


def full_name(family: str, scenario: str) -> str:
    """The inverse of `split_name`."""
    return scenario if family == FRIENDLY else f"{family}/{scenario}"
