# SPDX-License-Identifier: Apache-2.0
"""Rounds of all modes under one running load, each compared with the same load untraced, by where
CPU time is spent; and one mode at a steady rate: its memory, CPU time and lost records.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from bench.overhead.cpu import Watched, cpu_ns, peak_resident_bytes
from bench.overhead.generator import Generator, Interval
from bench.overhead.modes import Subject, attached


@dataclass(frozen=True)
class Size:
    """How much is measured: `slot` intervals of each mode in each round."""

    rounds: int
    slot: int


#: What tracing adds to each, from paired intervals. The tracer and reader are not there without.
ADDED = ("machine", "tasks", "server", "client")


@dataclass
class Places:
    """Where CPU time is spent, in ns per transaction: one figure per round."""

    added: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in ADDED})
    untraced: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in ADDED})
    tracer: list[float] = field(default_factory=list)
    reader: list[float] = field(default_factory=list)
    tracer_runs_per_s: list[float] = field(default_factory=list)
    reader_runs_per_s: list[float] = field(default_factory=list)
    busy: list[float] = field(default_factory=list)  #: part of the machine's CPU time, untraced
    rate: list[float] = field(default_factory=list)  #: transactions a second, traced

    def add(
        self, before: Sequence[Interval], during: Sequence[Interval], after: Sequence[Interval]
    ) -> None:
        """Adds one round: the mode's intervals against the untraced ones before and after."""
        for name in ADDED:
            with_it, beside = _cost(during, name), (_cost(before, name) + _cost(after, name)) / 2.0
            self.added[name].append(with_it - beside)
            self.untraced[name].append(beside)
        self.tracer.append(_cost(during, "tracer"))
        self.reader.append(_cost(during, "reader"))
        seconds = sum(interval.seconds for interval in during)
        self.tracer_runs_per_s.append(
            sum(interval.spent.tracer_runs for interval in during) / seconds
        )
        self.reader_runs_per_s.append(
            sum(interval.spent.reader_runs for interval in during) / seconds
        )
        self.rate.append(sum(interval.transactions for interval in during) / seconds)
        self.busy.append(busy_share([*before, *after]))

    @property
    def outside_kernel(self) -> list[float]:
        """Tracer and reader together."""
        return [tracer + reader for tracer, reader in zip(self.tracer, self.reader, strict=True)]


def busy_share(intervals: Sequence[Interval]) -> float:
    """Part of the machine's CPU time in which its CPUs did not idle."""
    available_ns = sum(interval.seconds for interval in intervals) * 1e9 * (os.cpu_count() or 1)
    return sum(interval.spent.machine for interval in intervals) / available_ns


def _cost(intervals: Sequence[Interval], name: str) -> float:
    clock: Callable[[Interval], int] = lambda interval: getattr(interval.spent, name)  # noqa: E731
    return sum(map(clock, intervals)) / max(
        sum(interval.transactions for interval in intervals), 1.0
    )


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
        spent = sum(interval.load_ns + interval.tracing_ns for interval in during)
        self.tracing_share.append(sum(interval.tracing_ns for interval in during) / max(spent, 1))
        self.rate.append(rate_of(during))
        self.places.add(before, during, after)


def rate_of(intervals: Sequence[Interval]) -> float:
    """Transactions per second."""
    return sum(interval.transactions for interval in intervals) / sum(
        interval.seconds for interval in intervals
    )


def cost_of(intervals: Sequence[Interval]) -> float:
    """CPU time per transaction in ns, of all processes that had a part in it."""
    return fmean(interval.cpu_per_transaction_ns for interval in intervals)


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
    ways: Mapping[str, tuple[str, Subject]],
    size: Size,
    progress: Callable[[str], None],
    over: Callable[[Mapping[str, Samples]], bool] = lambda _samples: False,
) -> dict[str, Samples]:
    """Runs rounds: of each way its mode's intervals, and equally many untraced ones in between.

    `ways`: modes and what they trace, by name. `over`: whether no further round is needed.
    """
    samples = {name: Samples() for name in ways}
    generator.skip()
    before = generator.take(size.slot)
    for number, order in enumerate(orders(list(ways), size.rounds), 1):
        for name in order:
            progress(f"round {number} of {size.rounds}: {name}")
            with attached(*ways[name]) as state:
                generator.tracing = state.watched
                generator.skip()
                generator.take(1)  # what tracing does only once, at its beginning, is no query's
                during = generator.take(size.slot)
            generator.tracing = Watched()
            generator.skip()
            after = generator.take(size.slot)
            samples[name].add(before, during, after)
            _count(samples[name].lost_records, state.result.get("loss"))
            before = after
        if over(samples):
            break
    return samples


def _count(total: dict[str, int], loss: object) -> None:
    if isinstance(loss, dict):
        for cause, count in loss.items():
            total[cause] = total.get(cause, 0) + int(count)


RATE = 10_000  #: queries a second
MEMORY_TARGET_MB = 40.0
CPU_TARGET = 0.02  #: of one core


@dataclass(frozen=True)
class Steady:
    """A mode under a limited load. CPU figures are shares of one core."""

    mode: str
    rate: float
    tracer_cpu: float
    reader_cpu: float
    tracer_mb: float
    reader_mb: float
    lost_records: dict[str, int] = field(default_factory=dict)


def run_steady(
    generator: Generator,
    subject: Subject,
    mode: str,
    seconds: int,
) -> Steady:
    """Observes a mode for a number of intervals of a load that is already running."""
    with attached(mode, subject) as state:
        generator.skip()
        began_s = time.monotonic()
        tracer, reader = cpu_ns([state.tracer]), cpu_ns([state.reader])
        rate = rate_of(generator.take(seconds))
        elapsed_ns = (time.monotonic() - began_s) * 1e9
        tracer_ns = cpu_ns([state.tracer]) - tracer
        reader_ns = cpu_ns([state.reader]) - reader
        memory = [peak_resident_bytes(pid) / 1e6 for pid in (state.tracer, state.reader)]
    loss = state.result.get("loss")
    return Steady(
        mode,
        rate,
        tracer_ns / elapsed_ns,
        reader_ns / elapsed_ns,
        memory[0],
        memory[1],
        dict(loss) if isinstance(loss, dict) else {},
    )
