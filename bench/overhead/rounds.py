# SPDX-License-Identifier: Apache-2.0
"""Rounds of all modes under one running load, each compared with the same load untraced."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from bench.overhead.clocks import Watched
from bench.overhead.generator import Generator, Interval
from bench.overhead.modes import Subject, attached
from bench.overhead.places import Places


@dataclass(frozen=True)
class Size:
    """How much is measured: `slot` intervals of each mode in each round."""

    rounds: int
    slot: int


@dataclass
class Samples:
    """The cost of a mode, one figure per round, as a share of untraced: 0.01 is 1 %."""

    throughput_lost: list[float] = field(default_factory=list)
    cpu_lost: list[float] = field(default_factory=list)
    tracing_share: list[float] = field(default_factory=list)  #: of all CPU time spent
    rate: list[float] = field(default_factory=list)
    places: Places = field(default_factory=Places)
    lost_records: dict[str, int] = field(default_factory=dict)

    def add(
        self, before: Sequence[Interval], during: Sequence[Interval], after: Sequence[Interval]
    ) -> None:
        """Adds one round: the mode's intervals against the untraced ones before and after."""
        beside = (rate_of(before) + rate_of(after)) / 2.0
        self.throughput_lost.append(1.0 - rate_of(during) / beside)
        cost_beside = (cost_of(before) + cost_of(after)) / 2.0
        # The throughput lost if the same load kept the CPUs equally busy.
        self.cpu_lost.append(1.0 - cost_beside / cost_of(during))
        spent = sum(one.load_ns + one.tracing_ns for one in during)
        self.tracing_share.append(sum(one.tracing_ns for one in during) / max(spent, 1))
        self.rate.append(rate_of(during))
        self.places.add(before, during, after)


def rate_of(intervals: Sequence[Interval]) -> float:
    """Transactions per second."""
    return sum(one.transactions for one in intervals) / sum(one.seconds for one in intervals)


def cost_of(intervals: Sequence[Interval]) -> float:
    """CPU time per transaction in ns, of all processes that had a part in it."""
    return fmean(one.cpu_per_transaction_ns for one in intervals)


def orders(modes: Sequence[str], rounds: int, seed: int = 1) -> Iterator[list[str]]:
    """An order of the modes for each round: shuffled, and every mode is first equally often."""
    shuffler = random.Random(seed)
    for number in range(rounds):
        first = modes[number % len(modes)]
        rest = [mode for mode in modes if mode != first]
        shuffler.shuffle(rest)
        yield [first, *rest]


def run_rounds(
    generator: Generator,
    subject: Subject,
    modes: Sequence[str],
    size: Size,
    progress: Callable[[str], None],
) -> dict[str, Samples]:
    """Runs the rounds: the mode's intervals, and equally many untraced ones in between."""
    samples = {mode: Samples() for mode in modes}
    generator.skip()
    before = generator.take(size.slot)
    for number, order in enumerate(orders(modes, size.rounds), 1):
        for mode in order:
            progress(f"round {number} of {size.rounds}: {mode}")
            with attached(mode, subject) as state:
                generator.tracing = state.watched
                generator.skip()
                generator.take(1)  # what tracing does only once, at its beginning, is no query's
                during = generator.take(size.slot)
            generator.tracing = Watched()
            generator.skip()
            after = generator.take(size.slot)
            samples[mode].add(before, during, after)
            _count(samples[mode].lost_records, state.result.get("loss"))
            before = after
    return samples


def _count(total: dict[str, int], loss: object) -> None:
    if isinstance(loss, dict):
        for cause, count in loss.items():
            total[cause] = total.get(cause, 0) + int(count)
