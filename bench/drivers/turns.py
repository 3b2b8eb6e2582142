# SPDX-License-Identifier: Apache-2.0
"""Alternates the sides of a comparison call by call, in one process and on one connection.

The driver's methods that a shim wraps are put behind a switch, so that no class changes during the
measurement: the interpreter keeps code that was specialised for a class only as long as nothing is
assigned to it. Both sides of each difference pay for the switch.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from time import perf_counter_ns, process_time_ns
from typing import Any

import numpy as np

from qjoule_drivers.shims.shim import WRAPPER, Shim

#: Calls of a turn that count, after one that does not. In an application the previous call was on
#: the same side too, and left its code and data in the caches.
COUNTED = 3
WARM_UP = 0.1  #: share of a comparison's time that does not count


class Switch:
    """The methods of one driver, switchable between bare and wrapped; the shim is installed."""

    def __init__(self, shim: Shim) -> None:
        self._shimmed = [1]
        self._behind: list[tuple[Any, str, Any]] = []
        for module, owner, attribute, _ in (*shim.sites, *shim.optional):
            holder = getattr(sys.modules[module], owner)
            wrapper = vars(holder)[attribute]
            if hasattr(wrapper, WRAPPER) and callable(wrapper):
                self._behind.append((holder, attribute, wrapper))
                setattr(holder, attribute, _either(wrapper, self._shimmed))

    def to(self, shimmed: bool) -> None:
        self._shimmed[0] = int(shimmed)

    def take_out(self) -> None:
        """Restores the wrappers as the shim installed them."""
        for holder, attribute, wrapper in self._behind:
            setattr(holder, attribute, wrapper)


def _either(wrapper: Any, shimmed: list[int]) -> Any:
    both = (getattr(wrapper, WRAPPER), wrapper)

    def either(*args: Any, **options: Any) -> Any:
        return both[shimmed[0]](*args, **options)

    return either


@dataclass(frozen=True)
class Side:
    """One way to make a call."""

    name: str
    shimmed: bool
    call: Callable[[], object]


@dataclass(frozen=True)
class Times:
    """One side's times in µs, by turn: elapsed time of its calls, and CPU time per call."""

    elapsed: np.ndarray  #: turns x COUNTED
    cpu: np.ndarray  #: turns


def compare(switch: Switch, sides: Sequence[Side], seconds: float, seed: int) -> dict[str, Times]:
    """Runs rounds in which each side has a turn, in random order."""
    _rounds(switch, sides, seconds * WARM_UP, Random(seed))
    rounds = _rounds(switch, sides, seconds * (1 - WARM_UP), Random(seed + 1))
    return {
        side.name: Times(
            np.array(elapsed).reshape(-1, COUNTED) / 1e3, np.array(cpu) / (1e3 * COUNTED)
        )
        for side, (elapsed, cpu) in zip(sides, rounds, strict=True)
    }


def _rounds(
    switch: Switch, sides: Sequence[Side], seconds: float, lot: Random
) -> list[tuple[list[int], list[int]]]:
    """For each side, in ns: each call's elapsed time, each turn's CPU time."""
    found: list[tuple[list[int], list[int]]] = [([], []) for _ in sides]
    turns = list(zip(sides, found, strict=True))
    stop = perf_counter_ns() + int(seconds * 1e9)
    while True:
        lot.shuffle(turns)
        for side, (elapsed, cpu) in turns:
            switch.to(side.shimmed)
            _turn(side.call, elapsed, cpu)
        if perf_counter_ns() >= stop:
            return found


def _turn(call: Callable[[], object], elapsed: list[int], cpu: list[int]) -> None:
    clock = perf_counter_ns
    call()
    cpu_ns = process_time_ns()
    for _ in range(COUNTED):
        t0 = clock()
        call()
        elapsed.append(clock() - t0)
    cpu.append(process_time_ns() - cpu_ns)
