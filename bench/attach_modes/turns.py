# SPDX-License-Identifier: Apache-2.0
"""CPU time per query of one server, in turns: untraced, recorded without it, and on its attach
modes.

An attach mode's cost is cross-checked with the kernel's own accounts of the BPF programs it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from statistics import median

from bench.attach_modes.quiet import as_client, pin
from bench.attach_modes.recorder import Recorded, Recorder
from bench.attach_modes.targets import Subject
from bench.overhead.cpu import cpu_ns
from bench.overhead.inside import accounts, between, programs_of, statistics

from qjoule.contract import AttachMode
from qjoule.errors import QjouleError
from qjoule_studies.servers.process import DatabaseServer


@dataclass(frozen=True)
class Firing:
    """A program's figures per query. Its time includes the kernel's clock reads around each run."""

    program: str
    runs: float
    ns_per_run: float
    shared: bool = False  #: also present in a recording without the attach mode

    @property
    def ns(self) -> float:
        return self.runs * self.ns_per_run


@dataclass(frozen=True)
class Accounts:
    """Programs by name, wherever on the machine they ran, including for the client's threads."""

    firings: dict[str, Firing]

    @property
    def ns(self) -> float:
        return sum(firing.ns for firing in self.firings.values())

    @property
    def own_ns(self) -> float:
        """Cost of the programs that only this attach mode has. Other activity on the machine does
        not affect it.
        """
        return sum(firing.ns for firing in self.firings.values() if not firing.shared)

    def over(self, without: Accounts) -> Accounts:
        """What an attach mode adds to a recording without it.

        Programs that both have are compared by their time per run only: how often they ran depends
        on what else the machine did.
        """
        more = {}
        for name, firing in self.firings.items():
            other = without.firings.get(name)
            per_run = firing.ns_per_run - (other.ns_per_run if other else 0.0)
            more[name] = Firing(name, firing.runs, per_run, shared=other is not None)
        return Accounts(more)

    def shown(self, least_ns: float = 20.0) -> str:
        """Formats as `0.41 µs: on_recv 2.0 of 190 ns`; small ones are only in the sum."""
        ordered = sorted(self.firings.values(), key=lambda firing: -abs(firing.ns))
        parts = [
            f"{firing.program} {firing.runs:.1f} of {firing.ns_per_run:.0f} ns"
            for firing in ordered
            if abs(firing.ns) >= least_ns
        ]
        return f"{self.ns / 1000:.2f} µs: {', '.join(parts) or 'none to speak of'}"


def account_of(holder: int, work: Callable[[], object], queries: int) -> Accounts:
    """Makes the kernel account for the programs that a process holds while `work` runs queries."""
    with statistics():
        own_programs = programs_of([holder])
        before = accounts(own_programs)
        work()
        after = accounts(own_programs)
    programs = between(before, after)
    return Accounts(
        {
            program.name: Firing(program.name, program.runs / queries, program.ns / program.runs)
            for program in programs
        }
    )


@dataclass(frozen=True)
class Size:
    """How much to run: one turn of each kind per sweep, each with so many slices of so many
    queries.
    """

    sweeps: int = 10
    slices: int = 31
    queries: int = 100
    accounted: int = 3000  #: queries run under the kernel's accounts
    warm_up: float = 1.0  #: share of the warm-up that a subject asks for


@dataclass
class Costs:
    """The costs of one attach mode, in ns per query, one figure per sweep.

    `attach_mode`: over a recording of everything but this server; `whole`: over untraced.
    """

    version: str
    attach_mode: list[float] = field(default_factory=list)
    whole: list[float] = field(default_factory=list)
    untraced: list[float] = field(default_factory=list)
    lost_records: dict[str, int] = field(default_factory=dict)
    accounts: Accounts | None = None

    def add(self, untraced: float, segments: float, traced: float) -> None:
        """Adds one sweep."""
        self.untraced.append(untraced)
        self.attach_mode.append(traced - segments)
        self.whole.append(traced - untraced)

    def lose(self, records: dict[str, int]) -> None:
        for cause, count in records.items():
            self.lost_records[cause] = self.lost_records.get(cause, 0) + count


class Under:
    """A server on its CPU, and a connection that runs its query."""

    def __init__(
        self, server: DatabaseServer, run: Callable[[], object], recorder: Recorder, size: Size
    ) -> None:
        self.server, self.run, self.size = server, run, size
        self._recorder = recorder

    def turn(self, attach_mode: AttachMode | None, warm_up: int) -> tuple[float, Recorded | None]:
        """The server's CPU time per query in ns. `attach_mode` None: untraced, NONE: recorded
        without the server.
        """
        if attach_mode is None:
            return self._cost(warm_up), None
        with self._recorder.tracing(self.server.pid, attach_mode) as recorded:
            cost = self._cost(warm_up)
        check(recorded, attach_mode, warm_up + self.size.slices * self.size.queries)
        return cost, recorded

    def accounts(self, attach_mode: AttachMode) -> Accounts:
        """What each BPF program took per query, by the kernel's accounts."""
        with self._recorder.tracing(self.server.pid, attach_mode) as recorded:
            self.repeat(self.size.queries)
            return account_of(
                recorded.root, lambda: self.repeat(self.size.accounted), self.size.accounted
            )

    def repeat(self, count: int) -> None:
        for _ in range(count):
            self.run()

    def _cost(self, warm_up: int) -> float:
        """The median of the slices, so that a disturbance of one slice does not count.

        A process that began or ended meanwhile would distort the CPU time, so only the processes
        present at the beginning count. Connections are opened before that.
        """
        self.repeat(warm_up)
        pids = self.server.tgids
        costs = []
        for _ in range(self.size.slices):
            before = cpu_ns(pids)
            self.repeat(self.size.queries)
            costs.append((cpu_ns(pids) - before) / self.size.queries)
        return median(costs)


def check(recorded: Recorded, attach_mode: AttachMode, queries: int) -> None:
    """Checks that the server's queries are recorded.

    Raises:
        QjouleError: fewer were recorded, and no reported loss explains it.
    """
    if (
        attach_mode is not AttachMode.NONE
        and recorded.executions < queries
        and not recorded.lost_records
    ):
        raise QjouleError(
            f"{attach_mode.name.lower()}: {queries:,} queries ran, {recorded.executions:,} recorded"
        )


def orders(
    attach_modes: Sequence[AttachMode], sweeps: int
) -> Iterator[tuple[AttachMode | None, ...]]:
    """The order of turns in each sweep: alternately forwards and backwards, so that drift
    cancels.
    """
    kinds = (None, AttachMode.NONE, *attach_modes)
    for number in range(sweeps):
        yield kinds[::-1] if number % 2 else kinds


@dataclass(frozen=True)
class Bench:
    """What all measurements share."""

    recorder: Recorder
    cpu: int  #: for the server and its client; the client is the caller
    size: Size


def measure(
    bench: Bench, subject: Subject, attach_modes: Sequence[AttachMode], say: Callable[[str], None]
) -> dict[AttachMode, Costs]:
    """Runs the sweeps on a newly started server.

    Raises:
        QjouleError: this server cannot be traced on one of the attach modes.
        Unavailable: this server is not available here.
    """
    say("starts")
    with subject.start() as server:
        # It has started on all CPUs, and a JVM sizes itself by their number.
        pin(server.tgids, bench.cpu)
        with as_client(bench.cpu), closing(server.connect()) as connection:
            under = Under(server, subject.prepare(connection), bench.recorder, bench.size)
            say("warms up")
            under.repeat(round(subject.warm_up * bench.size.warm_up))
            costs = _sweeps(under, subject, attach_modes, say)
            say("by the kernel's accounts")
            without = under.accounts(AttachMode.NONE)
            for attach_mode in attach_modes:
                costs[attach_mode].accounts = under.accounts(attach_mode).over(without)
    return costs


def _sweeps(
    under: Under, subject: Subject, attach_modes: Sequence[AttachMode], say: Callable[[str], None]
) -> dict[AttachMode, Costs]:
    costs = {attach_mode: Costs(subject.version) for attach_mode in attach_modes}
    warm_up = round(subject.turn_warm_up * under.size.warm_up) or under.size.queries
    for number, order in enumerate(orders(attach_modes, under.size.sweeps), 1):
        say(f"sweep {number} of {under.size.sweeps}")
        ns_by_kind: dict[AttachMode | None, float] = {}
        for kind in order:
            ns_by_kind[kind], recorded = under.turn(kind, warm_up)
            if kind and recorded is not None:
                costs[kind].version = subject.version or recorded.version
                costs[kind].lose(recorded.lost_records or {})
        for attach_mode in attach_modes:
            costs[attach_mode].add(
                ns_by_kind[None], ns_by_kind[AttachMode.NONE], ns_by_kind[attach_mode]
            )
    return costs
