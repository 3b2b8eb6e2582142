"""Where the cost arises: what each BPF program costs per run, and how often a query runs it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from bench.overhead.generator import Generator
from bench.overhead.modes import Subject, attached

_SWITCH = Path("/proc/sys/kernel/bpf_stats_enabled")


@dataclass(frozen=True)
class Firing:
    """A program under a load. The kernel's own clock reads are part of `ns_per_run`."""

    program: str
    runs_per_transaction: float
    ns_per_run: float
    share: float  #: of the CPU time of server and client

    @property
    def ns_per_transaction(self) -> float:
        return self.runs_per_transaction * self.ns_per_run


@dataclass(frozen=True)
class Inside:
    """What a mode adds to a load by the kernel's own accounts, which noise moves little.

    In the programs' time is the reading of the clock around them, and not the way to them: look
    at that of the empty ones.
    """

    firings: list[Firing]
    tracing_share: float  #: CPU time of tracer and reader, as a part of the load's

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
    with _statistics(), attached(mode, subject) as state:
        generator.tracing = state.pids
        generator.skip()
        ours = _programs_of(state.pids)
        before = {number: one for number, one in _programs().items() if number in ours}
        taken = generator.take(seconds)
        after = _programs()
    generator.tracing = ()
    transactions = max(sum(one.transactions for one in taken), 1.0)
    load_ns = max(sum(one.load_ns for one in taken), 1)
    found = []
    for number, (name, runs, ns) in before.items():
        if number not in after or after[number][1] == runs:
            continue
        ran, took = after[number][1] - runs, after[number][2] - ns
        found.append(Firing(name, ran / transactions, took / ran, took / load_ns))
    found.sort(key=lambda one: -one.ns_per_transaction)
    return Inside(found, sum(one.tracing_ns for one in taken) / load_ns)


@contextmanager
def _statistics() -> Iterator[None]:
    before = _SWITCH.read_text()
    _SWITCH.write_text("1")
    try:
        yield
    finally:
        _SWITCH.write_text(before)


def _programs_of(pids: Iterable[int]) -> set[int]:
    """Ids of the BPF programs that these processes hold (bpf_prog_show_fdinfo(), syscall.c)."""
    found: set[int] = set()
    for pid in pids:
        for info in Path(f"/proc/{pid}/fdinfo").iterdir():
            with suppress(OSError):
                lines = info.read_text().splitlines()
                found.update(int(line.split()[1]) for line in lines if line.startswith("prog_id:"))
    return found


def _programs() -> dict[int, tuple[str, int, int]]:
    """Loaded programs by id: name, runs, ns."""
    done = subprocess.run(
        ["bpftool", "-j", "prog", "show"], capture_output=True, text=True, check=True
    )
    return {
        one["id"]: (one.get("name", "?"), one.get("run_cnt", 0), one.get("run_time_ns", 0))
        for one in json.loads(done.stdout)
    }
