# SPDX-License-Identifier: Apache-2.0
"""Parses strangers' bytes in processes that can do nothing else.

One process is forked per candidate. It holds one descriptor that reaches this candidate and a pipe
for its findings, within limits of memory and time. Fork before any other thread runs.
"""

from __future__ import annotations

import array  # noqa: F401 - `socket` imports it at its first message, which is too late there
import os
import resource
import select
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from qjoule.children import FIRST, Child, write_all
from qjoule.errors import QjouleError
from qjoule.process import hide
from qjoule.root_part.seccomp import confine

ANSWER_BYTES_MAX = 1 << 20
AT_ONCE = 2
MEMORY_BYTES = 512 << 20  #: more than the process has when it starts
_ADDRESSES_BYTES = 1 << 30
_WALL_PER_CPU = 3  #: for a busy machine, and for files that make it wait


@dataclass(frozen=True)
class Task:
    """The work of one process."""

    work: Callable[[int], bytes]  #: called with the number of the process's descriptor
    descriptor: int  #: closed here
    cpu_s: int = 8


class Failed(QjouleError):
    """There is no answer; the message gives the reason. `is_late`: it used up all its time."""

    def __init__(self, message: str, is_late: bool = False) -> None:
        super().__init__(message)
        self.is_late = is_late


@dataclass
class _Running:
    task: Task
    child: Child
    deadline_s: float
    content: bytearray = field(default_factory=bytearray)

    def read(self) -> bool:
        """Reads what has been written. Returns whether that was the end."""
        block = os.read(self.child.pipe, 1 << 16)
        self.content += block
        return not block or len(self.content) > ANSWER_BYTES_MAX


def run_all(
    tasks: Sequence[Callable[[], Task]], done: Callable[[int, bytes | Failed], None]
) -> None:
    """Runs every task in a process of its own, up to `AT_ONCE` at a time.

    Args:
        tasks: each is made when it starts. It may raise `QjouleError`, which fails it.
        done: called as each task ends, with its index in `tasks` and its output, at most
            `ANSWER_BYTES_MAX`, or the reason why there is none.
    """
    running: dict[int, _Running] = {}
    waiting = list(enumerate(tasks))
    try:
        while waiting or running:
            while waiting and len(running) < AT_ONCE:
                number, make = waiting.pop(0)
                try:
                    running[number] = _start(make())
                except (QjouleError, OSError) as error:
                    done(number, Failed(str(error)))
            for number in _ready(running):
                done(number, _end(running.pop(number)))
    finally:
        for one in running.values():
            _end(one)


def _ready(running: dict[int, _Running]) -> list[int]:
    """Waits until one is done or a deadline passes. Returns those that are done."""
    left_s = min((one.deadline_s for one in running.values()), default=0.0) - time.monotonic()
    readable, _, _ = select.select(
        [one.child for one in running.values()], [], [], max(0.0, left_s)
    )
    now = time.monotonic()
    return [
        number
        for number, one in running.items()
        if (one.child in readable and one.read()) or now >= one.deadline_s
    ]


def _start(task: Task) -> _Running:
    try:
        child = Child.start(lambda pipe: _work(task, pipe), (task.descriptor,))
    finally:
        os.close(task.descriptor)
    return _Running(task, child, time.monotonic() + _WALL_PER_CPU * task.cpu_s)


def _work(task: Task, pipe: int) -> None:
    """The whole life of the new process: no other code of ours runs in it."""
    hide()
    _limit(task.cpu_s)
    confine()
    write_all(pipe, task.work(FIRST))


def _limit(cpu_s: int) -> None:
    pages = [int(word) for word in Path("/proc/self/statm").read_text().split()]
    page = resource.getpagesize()
    for kind, most in (
        (resource.RLIMIT_AS, pages[0] * page + _ADDRESSES_BYTES),
        (resource.RLIMIT_DATA, pages[5] * page + MEMORY_BYTES),
        (resource.RLIMIT_CPU, cpu_s),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(kind, (most, most))


def _end(one: _Running) -> bytes | Failed:
    """Ends the process if it has not ended, and returns its output."""
    late = time.monotonic() >= one.deadline_s
    content = bytes(one.content)
    status = one.child.end()
    if len(content) > ANSWER_BYTES_MAX:
        return Failed(f"it says more than {ANSWER_BYTES_MAX >> 20} MiB")
    if late:
        return Failed(f"it was not examined within {_WALL_PER_CPU * one.task.cpu_s} s", True)
    if status in (-signal.SIGXCPU, -signal.SIGKILL):
        # The kernel sends SIGKILL when the hard limit equals the soft one.
        return Failed(f"examining it takes more than {one.task.cpu_s} s of CPU time", True)
    if status == -signal.SIGSYS:
        return Failed("examining it tried what is forbidden")
    if status or not content:
        return Failed("examining it failed")
    return content
