# SPDX-License-Identifier: Apache-2.0
"""Breaks the cost down: what each BPF program costs per run, and how often a query runs it."""

from __future__ import annotations

from dataclasses import dataclass, field

from bench.overhead.cpu import Watched
from bench.overhead.generator import Generator
from bench.overhead.modes import Subject, attached
from bench.overhead.programs import accounts, between, programs_of, statistics


@dataclass(frozen=True)
class Firing:
    """A program under a load. `ns_per_run` includes the kernel's own clock reads."""

    program: str
    runs_per_transaction: float
    ns_per_run: float
    share: float  #: share of the CPU time of server and client

    @property
    def ns_per_transaction(self) -> float:
        return self.runs_per_transaction * self.ns_per_run


@dataclass(frozen=True)
class Inside:
    """What a mode adds to a load by the kernel's own accounts, which noise hardly affects.

    The programs' time includes reading the clock around them, but not the call path to them. The
    figures of the empty programs show that.
    """

    firings: list[Firing]
    tracing_share: float  #: CPU time of tracer and reader, as a share of the load's
    #: CPU time per transaction in ns, one figure per interval
    tracer_ns: list[float] = field(default_factory=list)
    reader_ns: list[float] = field(default_factory=list)

    @property
    def programs_ns(self) -> float:
        """Of all programs, per transaction, whoever's threads ran them."""
        return sum(one.ns_per_transaction for one in self.firings)

    @property
    def programs_share(self) -> float:
        return sum(one.share for one in self.firings)


def look_inside(
    generator: Generator,
    subject: Subject,
    mode: str,
    seconds: int,
) -> Inside:
    """Runs a mode with the kernel's statistics on (sysctl kernel.bpf_stats_enabled)."""
    with statistics(), attached(mode, subject) as state:
        generator.tracing = state.watched
        generator.skip()
        ours = programs_of(state.pids)
        before = accounts(ours)
        taken = generator.take(seconds)
        after = accounts(ours)
    generator.tracing = Watched()
    transactions = max(sum(one.transactions for one in taken), 1.0)
    load_ns = max(sum(one.load_ns for one in taken), 1)
    found = [
        Firing(one.name, one.runs / transactions, one.ns / one.runs, one.ns / load_ns)
        for one in between(before, after)
    ]
    found.sort(key=lambda one: -one.ns_per_transaction)
    share = sum(one.tracing_ns for one in taken) / load_ns
    return Inside(
        found,
        share,
        [one.spent.tracer / max(one.transactions, 1.0) for one in taken],
        [one.spent.reader / max(one.transactions, 1.0) for one in taken],
    )
