# SPDX-License-Identifier: Apache-2.0
"""Parses untrusted files and memory in sandboxed child processes.

One process is forked per candidate. It has one descriptor for this candidate and a pipe for its
findings, and limited memory and time. Fork before any other thread runs.

It is confined to computing and to using its open descriptors (seccomp(2)). Calls not on the list
fail with EPERM; calls that only an attacker would try kill the process. The filter is written as
numbers for `prctl(2)`, because a library that builds filters would also be loaded into the sandbox.
"""

from __future__ import annotations

import array  # noqa: F401 - `socket` imports it at its first message, which is too late there
import ctypes
import errno
import os
import platform
import resource
import select
import signal
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from qjoule.children import FIRST, Child, write_all
from qjoule.errors import QjouleError
from qjoule.process import hide

#: Numbers on (x86-64, arm64): asm/unistd_64.h, asm-generic/unistd.h.
_ALLOWED = {
    "read": (0, 63),
    "write": (1, 64),
    "close": (3, 57),
    "fstat": (5, 80),
    "poll": (7, None),
    "ppoll": (271, 73),
    "lseek": (8, 62),
    "munmap": (11, 215),
    "brk": (12, 214),
    "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139),
    "pread64": (17, 67),
    "sched_yield": (24, 124),
    "mremap": (25, 216),
    "madvise": (28, 233),
    "dup": (32, 23),
    "getpid": (39, 172),
    "sendmsg": (46, 211),
    "recvmsg": (47, 212),
    "exit": (60, 93),
    "sigaltstack": (131, 132),
    "gettid": (186, 178),
    "futex": (202, 98),
    "getdents64": (217, 61),
    "restart_syscall": (219, 128),
    "clock_gettime": (228, 113),
    "exit_group": (231, 94),
    "getrandom": (318, 278),
}
_KILLED = {
    "execve": (59, 221),
    "execveat": (322, 281),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
}
_MMAP, _MPROTECT, _FCNTL, _NEWFSTATAT = (9, 222), (10, 226), (72, 25), (262, 79)
#: F_GETFD, F_SETFD, F_GETFL, F_DUPFD_CLOEXEC
_FCNTL_COMMANDS = (1, 2, 3, 1030)
_PROT_EXEC, _AT_EMPTY_PATH = 4, 0x1000
_SHARED_ANONYMOUS = 0x21  #: refused, since RLIMIT_DATA does not count such memory

_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # linux/audit.h
_X32 = 0x40000000  #: numbers from here on are x32 system calls of x86-64
_ALLOW, _KILL = 0x7FFF0000, 0x80000000  # linux/seccomp.h: _RET_ALLOW, _RET_KILL_PROCESS
_REFUSE = 0x00050000 | errno.EPERM
#: struct seccomp_data: the low halves of the arguments.
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
#: linux/filter.h: BPF_LD|W|ABS, BPF_ALU|AND|K, BPF_JMP|{JEQ,JGE,JSET}|K, BPF_RET|K
_LOAD, _AND, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06
_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, _PR_SET_NO_NEW_PRIVS = 22, 2, 38

_Step = tuple[int, int, int, int]  #: code, jump if true, jump if false, operand
ANSWER_BYTES_MAX = 1 << 20
AT_ONCE = 2
MEMORY_BYTES = 512 << 20  #: more than the process has when it starts
_ADDRESSES_BYTES = 1 << 30
_WALL_PER_CPU = 3  #: deadline per CPU second, for a busy machine and slow files


def confine() -> None:
    """Applies the filter to this thread for good.

    Raises:
        QjouleError: the kernel or the machine does not support such filters.
    """
    program = b"".join(struct.pack("=HBBI", *step) for step in _program(platform.machine()))
    steps = ctypes.create_string_buffer(program, len(program))
    #: struct sock_fprog
    whole = ctypes.create_string_buffer(
        struct.pack("@HP", len(program) // 8, ctypes.addressof(steps))
    )
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(
        _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(whole), 0, 0
    ):
        raise QjouleError(f"cannot be confined: {os.strerror(ctypes.get_errno())}")


def _program(machine: str) -> list[_Step]:
    if machine not in _ARCHITECTURES:
        raise QjouleError(f"cannot be confined on {machine}")
    column, architecture = _ARCHITECTURES[machine]
    return [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
        (_AT_LEAST, 0, 1, _X32),
        (_RETURN, 0, 0, _KILL),
        *_verdicts(_KILLED, column, _KILL),
        *_verdicts(_ALLOWED, column, _ALLOW),
        *_allow(_MPROTECT[column], [(_LOAD, 0, 0, _argument(2)), (_ANY_BIT, 0, 1, _PROT_EXEC)]),
        *_allow(
            _NEWFSTATAT[column], [(_LOAD, 0, 0, _argument(3)), (_ANY_BIT, 1, 0, _AT_EMPTY_PATH)]
        ),
        *_allow(_MMAP[column], _mmap_refused()),
        *_allow(_FCNTL[column], _fcntl_refused()),
        (_RETURN, 0, 0, _REFUSE),
    ]


def _argument(number: int) -> int:
    return _ARGUMENTS + 8 * number


def _verdicts(
    calls: Mapping[str, tuple[int, int | None]], column: int, verdict: int
) -> Iterator[_Step]:
    for numbers in calls.values():
        number = numbers[column]
        if number is not None:
            yield _EQUAL, 0, 1, number
            yield _RETURN, 0, 0, verdict


def _allow(number: int, refused: list[_Step]) -> Iterator[_Step]:
    """Allows one call unless `refused` applies, whose last jump goes to the refusal."""
    yield _EQUAL, 0, len(refused) + 2, number
    yield from refused
    yield _RETURN, 0, 0, _REFUSE
    yield _RETURN, 0, 0, _ALLOW


def _mmap_refused() -> list[_Step]:
    return [
        (_LOAD, 0, 0, _argument(2)),
        (_ANY_BIT, 3, 0, _PROT_EXEC),
        (_LOAD, 0, 0, _argument(3)),
        (_AND, 0, 0, _SHARED_ANONYMOUS),
        (_EQUAL, 0, 1, _SHARED_ANONYMOUS),
    ]


def _fcntl_refused() -> list[_Step]:
    last = len(_FCNTL_COMMANDS)
    return [
        (_LOAD, 0, 0, _argument(1)),
        *((_EQUAL, last - at, 0, command) for at, command in enumerate(_FCNTL_COMMANDS)),
    ]


@dataclass(frozen=True)
class Task:
    """One job for a sandboxed process."""

    work: Callable[[int], bytes]  #: called in the process with the number of its descriptor
    descriptor: int  #: the parent's copy is closed at the start
    cpu_s: int = 8


class Failed(QjouleError):
    """There is no result; the message says why. `is_late`: the task used up its time."""

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
        """Reads available output. Returns true at its end or if it is too long."""
        block = os.read(self.child.pipe, 1 << 16)
        self.content += block
        return not block or len(self.content) > ANSWER_BYTES_MAX


def run_all(
    tasks: Sequence[Callable[[], Task]], done: Callable[[int, bytes | Failed], None]
) -> None:
    """Runs every task in its own process, up to `AT_ONCE` at a time.

    Args:
        tasks: factories, called when their turn comes. A factory may raise `QjouleError`.
        done: called as each task ends, with its index in `tasks` and its output (at most
            `ANSWER_BYTES_MAX`) or the failure.
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
            for number in _wait(running):
                done(number, _finish(running.pop(number)))
    finally:
        for job in running.values():
            _finish(job)


def _wait(running: dict[int, _Running]) -> list[int]:
    """Waits until a task is done or a deadline passes. Returns the numbers of finished tasks."""
    left_s = min((job.deadline_s for job in running.values()), default=0.0) - time.monotonic()
    readable, _, _ = select.select(
        [job.child for job in running.values()], [], [], max(0.0, left_s)
    )
    now = time.monotonic()
    return [
        number
        for number, job in running.items()
        if (job.child in readable and job.read()) or now >= job.deadline_s
    ]


def _start(task: Task) -> _Running:
    try:
        child = Child.start(lambda pipe: _work(task, pipe), (task.descriptor,))
    finally:
        os.close(task.descriptor)
    return _Running(task, child, time.monotonic() + _WALL_PER_CPU * task.cpu_s)


def _work(task: Task, pipe: int) -> None:
    """The entire life of the child process."""
    hide()
    limit(task.cpu_s)
    confine()
    write_all(pipe, task.work(FIRST))


def limit(cpu_s: int = resource.RLIM_INFINITY) -> None:
    """Limits this process's further memory, and forbids new processes and writing files."""
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


def _finish(job: _Running) -> bytes | Failed:
    """Ends the process if it has not ended, and returns its output."""
    late = time.monotonic() >= job.deadline_s
    content = bytes(job.content)
    status = job.child.end()
    if len(content) > ANSWER_BYTES_MAX:
        return Failed(f"it says more than {ANSWER_BYTES_MAX >> 20} MiB")
    if late:
        return Failed(f"it was not examined within {_WALL_PER_CPU * job.task.cpu_s} s", True)
    if status in (-signal.SIGXCPU, -signal.SIGKILL):
        # The kernel sends SIGKILL when the hard limit equals the soft one.
        return Failed(f"examining it takes more than {job.task.cpu_s} s of CPU time", True)
    if status == -signal.SIGSYS:
        return Failed("examining it tried what is forbidden")
    if status or not content:
        return Failed("examining it failed")
    return content
