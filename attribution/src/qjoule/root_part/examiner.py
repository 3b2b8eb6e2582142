# SPDX-License-Identifier: Apache-2.0
"""Parses strangers' bytes in processes that can do nothing else.

One process is forked per candidate. It holds one descriptor that reaches this candidate and a pipe
for its findings, within limits of memory and time. Fork before any other thread runs.
"""

from __future__ import annotations

import array  # noqa: F401 - `socket` imports it at its first message, which is too late there
import ctypes
import faulthandler
import gc
import os
import resource
import select
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from qjoule.errors import QjouleError
from qjoule.own_rights import drop_capability, hide
from qjoule.root_part.seccomp import confine

ANSWER_BYTES_MAX = 1 << 20
AT_ONCE = 2
MEMORY_BYTES = 512 << 20  #: more than the process has when it starts
_ADDRESSES_BYTES = 1 << 30
_WALL_PER_CPU = 3  #: for a busy machine, and for files that make it wait
_END_S = 2.0  #: for a process that was killed
_DESCRIPTOR, _PIPE = 3, 4
_PR_SET_PDEATHSIG = 1  # prctl(2)


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
    pid: int
    pipe: int
    deadline_s: float
    content: bytearray = field(default_factory=bytearray)

    def read(self) -> bool:
        """Reads what has been written. Returns whether that was the end."""
        block = os.read(self.pipe, 1 << 16)
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
    readable, _, _ = select.select([one.pipe for one in running.values()], [], [], max(0.0, left_s))
    now = time.monotonic()
    return [
        number
        for number, one in running.items()
        if (one.pipe in readable and one.read()) or now >= one.deadline_s
    ]


def _start(task: Task) -> _Running:
    ours, theirs = os.pipe()
    parent = os.getpid()
    # Pages that the garbage collector does not touch need not be copied.
    gc.freeze()
    try:
        pid = os.fork()
        if not pid:
            _work(task, theirs, parent)
    except OSError as error:
        os.close(ours)
        raise Failed(f"no process can be started: {error.strerror}") from None
    finally:
        gc.unfreeze()
        os.close(theirs)
        os.close(task.descriptor)
    return _Running(task, pid, ours, time.monotonic() + _WALL_PER_CPU * task.cpu_s)


def _work(task: Task, pipe: int, parent: int) -> NoReturn:
    """The whole life of the new process: no other code of ours runs in it."""
    try:
        _give_up(pipe, task.descriptor, parent)
        _limit(task.cpu_s)
        confine()
        answer = task.work(_DESCRIPTOR)
        while answer:
            answer = answer[os.write(_PIPE, answer) :]
        os._exit(0)
    finally:
        os._exit(1)


def _give_up(pipe: int, descriptor: int, parent: int) -> None:
    """Closes all descriptors but two. Dies with its parent and cannot be debugged."""
    if (
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        or os.getppid() != parent
    ):
        os._exit(1)
    hide()
    drop_capability()
    signal.set_wakeup_fd(-1)
    faulthandler.disable()
    for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(one, signal.SIG_DFL)
    nothing = os.open(os.devnull, os.O_RDWR)
    kept = [os.dup2(one, 100 + at) for at, one in enumerate((nothing, descriptor, pipe))]
    for number in range(3):
        os.dup2(kept[0], number)
    os.dup2(kept[1], _DESCRIPTOR)
    os.dup2(kept[2], _PIPE)
    os.closerange(_PIPE + 1, 1 << 30)


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
    os.close(one.pipe)
    # If it is about to end by itself, this changes nothing.
    os.kill(one.pid, signal.SIGKILL)
    status = _status(one.pid)
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


def _status(pid: int) -> int:
    """How it ended: its exit code, or minus the number of a signal."""
    ended = os.pidfd_open(pid)
    try:
        # A process that waits for a file system may not react to a signal; it is left behind.
        if not select.select([ended], [], [], _END_S)[0]:
            return -signal.SIGKILL
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    finally:
        os.close(ended)
