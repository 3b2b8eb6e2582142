# SPDX-License-Identifier: Apache-2.0
"""Computes what one side of a comparison takes more than the other, and the verdict on it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from bench.drivers.turns import Times
from bench.overhead.stats import CONFIDENCE, Estimate, median_interval

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
    both = (np.array_split(side[:turns], stretches) for side in (over, under))
    differences = [float(np.median(a) - np.median(b)) for a, b in zip(*both, strict=True)]
    return median_interval(differences, confidence)


def verdict(found: Estimate, target: float) -> str:
    """The verdict of an interval on a target that is an upper limit."""
    if found.high <= target:
        return "met"
    return "missed" if found.low > target else "undecided"


def line(mode: str, found: Added) -> str:
    """One mode beside both targets."""
    share = TARGET_SHARE * found.bare
    return (
        f"  {mode + ':':28}{interval(found.elapsed)} µs more: "
        f"≤ {TARGET_US:g} µs {verdict(found.elapsed, TARGET_US)}, "
        f"≤ {TARGET_SHARE:.0%} ({share:.2f} µs) {verdict(found.elapsed, share)}; "
        f"CPU time {interval(found.cpu)}"
    )


def instrument(null: Added, delay: Added, known_us: float) -> Iterator[str]:
    """Whether equal sides show no difference, and a known delay (µs) is found."""
    for words, found, true_us, told in (
        ("bare against bare", null, 0.0, ("holds 0", "DOES NOT HOLD 0")),
        (f"{known_us:g} µs more delay", delay, known_us, ("found", "NOT FOUND")),
    ):
        elapsed = found.elapsed
        is_true = elapsed.low - RESOLUTION_US <= true_us <= elapsed.high + RESOLUTION_US
        said = told[not is_true]
        if is_true and elapsed.high - elapsed.low > TARGET_US:
            said = "too wide to tell"
        yield (f"  {words + ':':28}{interval(elapsed)} µs: {said}; CPU time {interval(found.cpu)}")


def interval(found: Estimate) -> str:
    return f"{found.median:6.2f} [{found.low:.2f}, {found.high:.2f}]"
