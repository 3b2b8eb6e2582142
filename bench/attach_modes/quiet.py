# SPDX-License-Identifier: Apache-2.0
"""A CPU on which a server and its client take turns, so that a query's cost is reproducible.

If server and client have separate CPUs, each wake-up is an interrupt from one to the other, and the
target CPU may have to leave idle first. On a virtual machine that takes longer than the query. The
sender pays for it, and it changes with whatever else keeps CPUs awake, such as tracing. On one CPU
a wake-up is only an entry in a list. The client belongs to the batch class (sched(7)): when it is
woken, it waits until the server sleeps. A thread of the idle class runs when both sleep.
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
from qjoule_studies.servers.process import with_parent

_FIRST = -20  #: nice(1): a process that waits for a CPU in between lets its caches get cold


@dataclass(frozen=True)
class Places:
    """One CPU for server and client, others for the tracer; the same one if there is only one."""

    served: int
    tracing: frozenset[int]

    @property
    def all(self) -> frozenset[int]:
        return self.tracing | {self.served}


def places(cpus: Iterable[int]) -> Places:
    """Chooses among these CPUs. The last is the server's: interrupts tend to go to the
    first ones.
    """
    ordered = sorted(cpus)
    return Places(ordered[-1], frozenset(ordered[:-1] or ordered))


def pin(pids: Iterable[int], cpu: int, policy: int = os.SCHED_OTHER) -> None:
    """Pins all threads of these processes to this CPU, with priority over all others that want it.

    Threads that they start later inherit this.
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
    """Keeps one spinning thread of the idle class on each of these CPUs."""
    chrt = shutil.which("chrt")
    if chrt is None:
        raise QjouleError("chrt is not installed (package util-linux)")
    spinners = []
    try:
        for cpu in cpus:
            command = [*with_parent(), chrt, "--idle", "0", "sh", "-c", "while :; do :; done"]
            spinners.append(subprocess.Popen(command, stdin=subprocess.DEVNULL))
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
    """Makes this process the server's client, on the server's CPU."""
    cpus, nice = os.sched_getaffinity(0), os.getpriority(os.PRIO_PROCESS, 0)
    pin([os.getpid()], cpu, os.SCHED_BATCH)
    try:
        yield
    finally:
        os.sched_setaffinity(0, cpus)
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
        os.setpriority(os.PRIO_PROCESS, 0, nice)
