# SPDX-License-Identifier: Apache-2.0
"""Breaks the cost down: what each BPF program costs per run, and how often a query runs it.

The kernel's own accounts of BPF programs say how often each ran and for how long.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Container, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from bench.overhead.cpu import Watched
from bench.overhead.generator import Generator
from bench.overhead.modes import Subject, attached

_SWITCH = Path("/proc/sys/kernel/bpf_stats_enabled")
_START_S = 6  #: the first screens of `top` load libraries and learn from hardly any windows


@dataclass(frozen=True)
class Account:
    """What a program did, since it was loaded or between two snapshots."""

    name: str
    runs: int
    ns: int  #: including the kernel's clock reads around each run


@contextmanager
def statistics() -> Iterator[None]:
    """Makes the kernel keep accounts (sysctl kernel.bpf_stats_enabled), which makes runs more
    expensive.
    """
    before = _SWITCH.read_text()
    _SWITCH.write_text("1")
    try:
        yield
    finally:
        _SWITCH.write_text(before)


def programs_of(pids: Iterable[int]) -> set[int]:
    """Ids of the BPF programs that these processes hold (bpf_prog_show_fdinfo(), syscall.c)."""
    numbers: set[int] = set()
    for pid in pids:
        for info in Path(f"/proc/{pid}/fdinfo").iterdir():
            with suppress(OSError):
                lines = info.read_text().splitlines()
                numbers.update(
                    int(line.split()[1]) for line in lines if line.startswith("prog_id:")
                )
    return numbers


def accounts(numbers: Iterable[int]) -> dict[int, Account]:
    """Accounts of these programs, by id."""
    done = subprocess.run(
        ["bpftool", "-j", "prog", "show"], capture_output=True, text=True, check=True
    )
    chosen_numbers = set(numbers)
    return {
        program["id"]: Account(
            program.get("name", "?"), program.get("run_cnt", 0), program.get("run_time_ns", 0)
        )
        for program in json.loads(done.stdout)
        if program["id"] in chosen_numbers
    }


def between(
    before: dict[int, Account], after: dict[int, Account], numbers: Container[int] | None = None
) -> list[Account]:
    """What the programs did between two snapshots, for those that ran and existed in both.

    `numbers`: only these.
    """
    return [
        Account(account.name, after[number].runs - account.runs, after[number].ns - account.ns)
        for number, account in before.items()
        if (numbers is None or number in numbers)
        and number in after
        and after[number].runs > account.runs
    ]


@dataclass(frozen=True)
class Firing:
    """A program under a load. `ns_per_run` includes the kernel's own clock reads."""

    program: str
    runs_per_transaction: float
    ns_per_run: float

    @property
    def ns_per_transaction(self) -> float:
        return self.runs_per_transaction * self.ns_per_run


@dataclass(frozen=True)
class Inside:
    """What a mode adds to a load by the kernel's own accounts, which noise hardly affects.

    The programs' time includes reading the clock around them, but not the call path to them.
    """

    firings: list[Firing]
    #: Time per run of empty programs on the same hooks at the same time: the clock's readings.
    empty_ns_per_run: float
    #: CPU time per transaction in ns, one figure per interval
    tracer_ns: list[float] = field(default_factory=list)
    reader_ns: list[float] = field(default_factory=list)
    rate: list[float] = field(default_factory=list)  #: transactions a second

    @property
    def programs_ns(self) -> float:
        """ns of all programs per transaction, whichever threads ran them."""
        return sum(firing.ns_per_transaction for firing in self.firings)

    @property
    def empty_ns(self) -> float:
        """The part of `programs_ns` that empty programs run as often would take."""
        return self.empty_ns_per_run * sum(firing.runs_per_transaction for firing in self.firings)


def look_inside(
    generator: Generator,
    subject: Subject,
    mode: str,
    seconds: int,
) -> Inside:
    """Runs a mode with the kernel's statistics on (sysctl kernel.bpf_stats_enabled)."""
    with statistics(), attached("empty", subject) as empty, attached(mode, subject) as state:
        generator.tracing = state.watched
        generator.skip()
        generator.take(_START_S)
        own_programs, empties = programs_of(state.pids), programs_of(empty.pids)
        before = accounts(own_programs | empties)
        intervals = generator.take(seconds)
        after = accounts(own_programs | empties)
    generator.tracing = Watched()
    transactions = max(sum(interval.transactions for interval in intervals), 1.0)
    firings = [
        Firing(account.name, account.runs / transactions, account.ns / account.runs)
        for account in between(before, after, own_programs)
    ]
    firings.sort(key=lambda firing: -firing.ns_per_transaction)
    nothing = between(before, after, empties)
    return Inside(
        firings,
        sum(account.ns for account in nothing) / max(sum(account.runs for account in nothing), 1),
        [interval.spent.tracer / max(interval.transactions, 1.0) for interval in intervals],
        [interval.spent.reader / max(interval.transactions, 1.0) for interval in intervals],
        [interval.rate for interval in intervals],
    )
