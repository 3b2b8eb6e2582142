# SPDX-License-Identifier: Apache-2.0
"""CPU time per transaction by where it is spent, with a mode and without."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from bench.overhead.generator import Interval

#: What tracing adds to each, from paired intervals. The tracer and reader are not there without.
ADDED = ("machine", "tasks", "server", "client")


@dataclass
class Places:
    """In ns per transaction, one figure per round."""

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
        seconds = sum(one.seconds for one in during)
        self.tracer_runs_per_s.append(sum(one.spent.tracer_runs for one in during) / seconds)
        self.reader_runs_per_s.append(sum(one.spent.reader_runs for one in during) / seconds)
        self.rate.append(sum(one.transactions for one in during) / seconds)
        self.busy.append(busy_share([*before, *after]))

    @property
    def outside_kernel(self) -> list[float]:
        """Tracer and reader together."""
        return [tracer + reader for tracer, reader in zip(self.tracer, self.reader, strict=True)]


def busy_share(intervals: Sequence[Interval]) -> float:
    """Part of the machine's CPU time in which its CPUs did not idle."""
    available_ns = sum(one.seconds for one in intervals) * 1e9 * (os.cpu_count() or 1)
    return sum(one.spent.machine for one in intervals) / available_ns


def _cost(intervals: Sequence[Interval], name: str) -> float:
    clock: Callable[[Interval], int] = lambda one: getattr(one.spent, name)  # noqa: E731
    return sum(map(clock, intervals)) / max(sum(one.transactions for one in intervals), 1.0)
