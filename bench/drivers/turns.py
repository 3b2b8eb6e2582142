# SPDX-License-Identifier: Apache-2.0
"""Alternates the sides of a comparison call by call, in one process and on one connection.

The driver's methods that a shim wraps are put behind a switch, so that no class changes during the
measurement: the interpreter keeps code that was specialised for a class only as long as nothing is
assigned to it. Both sides of each difference pay for the switch.

Then what one side of a comparison takes more than the other is computed, and the verdict on it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from time import perf_counter_ns, process_time_ns
from typing import Any

import numpy as np
from bench.overhead.stats import CONFIDENCE, Estimate, median_interval

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
    functions = (getattr(wrapper, WRAPPER), wrapper)

    def either(*args: Any, **options: Any) -> Any:
        return functions[shimmed[0]](*args, **options)

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
    times: list[tuple[list[int], list[int]]] = [([], []) for _ in sides]
    turns = list(zip(sides, times, strict=True))
    stop = perf_counter_ns() + int(seconds * 1e9)
    while True:
        lot.shuffle(turns)
        for side, (elapsed, cpu) in turns:
            switch.to(side.shimmed)
            _turn(side.call, elapsed, cpu)
        if perf_counter_ns() >= stop:
            return times


def _turn(call: Callable[[], object], elapsed: list[int], cpu: list[int]) -> None:
    clock = perf_counter_ns
    call()
    cpu_ns = process_time_ns()
    for _ in range(COUNTED):
        t0 = clock()
        call()
        elapsed.append(clock() - t0)
    cpu.append(process_time_ns() - cpu_ns)


#: A call may take this much longer, and this share of a bare call's time.
TARGET_US, TARGET_SHARE = 5.0, 0.01
#: Confidence of the instrument's self-tests: fifteen of them in a run should rarely be wrong.
SURE = 0.999
#: The instrument need not detect less: a call that comes later also finds a server that slept
#: longer.
RESOLUTION_US = 0.2
#: Blocks of time in a comparison. Each is compared within itself, so slow drift cancels.
STRETCHES = 60


@dataclass(frozen=True)
class Added:
    """What a call of one side takes more than one of the other, in µs; and what the other takes."""

    elapsed: Estimate
    cpu: Estimate
    bare: float


def added(over: Times, under: Times, confidence: float = CONFIDENCE) -> Added:
    """The median, over blocks of time, of the difference of both sides' median calls.

    Its interval assumes only that disturbances of one block are independent of the next.
    """
    return Added(
        _difference(over.elapsed, under.elapsed, confidence),
        _difference(over.cpu, under.cpu, confidence),
        float(np.median(under.elapsed)),
    )


def _difference(over: np.ndarray, under: np.ndarray, confidence: float) -> Estimate:
    turns = min(len(over), len(under))
    stretches = min(STRETCHES, turns)
    parts = (np.array_split(side[:turns], stretches) for side in (over, under))
    differences = [float(np.median(a) - np.median(b)) for a, b in zip(*parts, strict=True)]
    return median_interval(differences, confidence)


def verdict(estimate: Estimate, target: float) -> str:
    """The verdict of an interval on a target that is an upper limit."""
    if estimate.high <= target:
        return "met"
    return "missed" if estimate.low > target else "undecided"


def line(mode: str, added: Added) -> str:
    """One mode beside both targets."""
    share = TARGET_SHARE * added.bare
    return (
        f"  {mode + ':':28}{interval(added.elapsed)} µs more: "
        f"≤ {TARGET_US:g} µs {verdict(added.elapsed, TARGET_US)}, "
        f"≤ {TARGET_SHARE:.0%} ({share:.2f} µs) {verdict(added.elapsed, share)}; "
        f"CPU time {interval(added.cpu)}"
    )


def instrument(null: Added, delay: Added, known_us: float) -> Iterator[str]:
    """Whether equal sides show no difference, and a known delay (µs) is found."""
    for title, measured, true_us, verdicts in (
        ("bare against bare", null, 0.0, ("holds 0", "DOES NOT HOLD 0")),
        (f"{known_us:g} µs more delay", delay, known_us, ("found", "NOT FOUND")),
    ):
        elapsed = measured.elapsed
        is_true = elapsed.low - RESOLUTION_US <= true_us <= elapsed.high + RESOLUTION_US
        answer = verdicts[not is_true]
        if is_true and elapsed.high - elapsed.low > TARGET_US:
            answer = "too wide to tell"
        yield (
            f"  {title + ':':28}{interval(elapsed)} µs: {answer}; CPU time {interval(measured.cpu)}"
        )


def interval(estimate: Estimate) -> str:
    return f"{estimate.median:6.2f} [{estimate.low:.2f}, {estimate.high:.2f}]"
