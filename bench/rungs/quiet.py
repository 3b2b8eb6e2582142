# SPDX-License-Identifier: Apache-2.0
"""A CPU on which a server and its client take turns, so that a query costs what it costs.

Where they have CPUs of their own, each wake-up is an interrupt from one to the other, and the CPU
that it reaches may have to come out of idle. On a virtual machine that takes longer than the query,
is paid by whoever sends it, and changes with whatever else keeps CPUs awake, as tracing does. On
one CPU a wake-up is an entry in a list. The client belongs to the batch class (sched(7)): when it
is woken it waits until the server has gone to sleep. A thread of the idle class runs when both do.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from qjoule.errors import QjouleError
from servers.process import with_parent

_FIRST = -20  #: nice(1): who waits for a CPU in between cools its caches


@dataclass(frozen=True)
class Places:
    """A CPU for server and client; those for what traces: the same one if there is no other."""

    served: int
    tracing: frozenset[int]

    @property
    def all(self) -> frozenset[int]:
        return self.tracing | {self.served}


def places(cpus: Iterable[int]) -> Places:
    """Of these CPUs the last is the server's: interrupts tend to go to the first ones."""
    ordered = sorted(cpus)
    return Places(ordered[-1], frozenset(ordered[:-1] or ordered))


def pin(pids: Iterable[int], cpu: int, policy: int = os.SCHED_OTHER) -> None:
    """All threads of these processes to this CPU, before all others that want it.

    What they start later follows them.
    """
    for pid in pids:
        with suppress(FileNotFoundError):
            for task in Path(f"/proc/{pid}/task").iterdir():
                with suppress(ProcessLookupError):
                    os.sched_setaffinity(int(task.name), {cpu})
                    os.sched_setscheduler(int(task.name), policy, os.sched_param(0))
                    os.setpriority(os.PRIO_PROCESS, int(task.name), _FIRST)


@contextmanager
def kept_awake(cpus: Iterable[int]) -> Iterator[None]:
    """One spinning thread of the idle class on each of these CPUs."""
    chrt = shutil.which("chrt")
    if chrt is None:
        raise QjouleError("chrt is not installed (package util-linux)")
    spinners = []
    try:
        for cpu in cpus:
            words = [*with_parent(), chrt, "--idle", "0", "sh", "-c", "while :; do :; done"]
            spinners.append(subprocess.Popen(words, stdin=subprocess.DEVNULL))
            os.sched_setaffinity(spinners[-1].pid, {cpu})
        yield
        if any(spinner.poll() is not None for spinner in spinners):
            raise QjouleError("a thread that keeps a CPU out of idle has ended: not measured")
    finally:
        for spinner in spinners:
            spinner.kill()
            spinner.wait()


@contextmanager
def as_client(cpu: int) -> Iterator[None]:
    """This process as the server's client, on its CPU."""
    cpus, nice = os.sched_getaffinity(0), os.getpriority(os.PRIO_PROCESS, 0)
    pin([os.getpid()], cpu, os.SCHED_BATCH)
    try:
        yield
    finally:
        os.sched_setaffinity(0, cpus)
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
        os.setpriority(os.PRIO_PROCESS, 0, nice)
