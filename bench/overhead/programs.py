# SPDX-License-Identifier: Apache-2.0
"""The kernel's own accounts of BPF programs: how often each ran and for how long."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

_SWITCH = Path("/proc/sys/kernel/bpf_stats_enabled")


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
    found: set[int] = set()
    for pid in pids:
        for info in Path(f"/proc/{pid}/fdinfo").iterdir():
            with suppress(OSError):
                lines = info.read_text().splitlines()
                found.update(int(line.split()[1]) for line in lines if line.startswith("prog_id:"))
    return found


def accounts(numbers: Iterable[int]) -> dict[int, Account]:
    """Accounts of these programs, by id."""
    done = subprocess.run(
        ["bpftool", "-j", "prog", "show"], capture_output=True, text=True, check=True
    )
    wanted = set(numbers)
    return {
        one["id"]: Account(one.get("name", "?"), one.get("run_cnt", 0), one.get("run_time_ns", 0))
        for one in json.loads(done.stdout)
        if one["id"] in wanted
    }


def between(before: dict[int, Account], after: dict[int, Account]) -> list[Account]:
    """What the programs did between two snapshots, for those that ran and existed in both."""
    return [
        Account(one.name, after[number].runs - one.runs, after[number].ns - one.ns)
        for number, one in before.items()
        if number in after and after[number].runs > one.runs
    ]
