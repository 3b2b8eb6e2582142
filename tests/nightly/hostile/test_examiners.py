# SPDX-License-Identifier: Apache-2.0
"""A process that examines can compute and talk, within its limits, and nothing else."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import platform
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from qjoule.errors import QjouleError
from qjoule.root_part.examiner import (
    _ARCHITECTURES,
    _KILLED,
    ANSWER_BYTES_MAX,
    Failed,
    Task,
    run_all,
)

_libc = ctypes.CDLL(None, use_errno=True)


def run(tasks: Sequence[Callable[[], Task]]) -> list[bytes | Failed]:
    answers: dict[int, bytes | Failed] = {}
    run_all(tasks, answers.__setitem__)
    return [answers[number] for number in range(len(tasks))]


def answer_of(work: Callable[[int], bytes], cpu_s: int = 8) -> bytes | Failed:
    own_end, work_end = socket.socketpair()
    with own_end, work_end:
        return run([lambda: Task(work, os.dup(work_end.fileno()), cpu_s)])[0]


def failure_of(work: Callable[[int], bytes], cpu_s: int = 8) -> str:
    answer = answer_of(work, cpu_s)
    assert isinstance(answer, Failed), answer
    return str(answer)


def _open_and_running() -> tuple[set[str], str]:
    """Descriptors and children of this process."""
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
    return set(os.listdir("/proc/self/fd")), children  # noqa: PTH208


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    before = _open_and_running()
    yield
    assert _open_and_running() == before


def test_it_computes_and_answers_up_to_a_mebibyte() -> None:
    def work(descriptor: int) -> bytes:
        assert descriptor == 3
        numbers = np.arange(1_000_000, dtype="<u8")
        numbers = numbers[np.argsort(numbers[::-1])]
        return str(int(numbers.sum())).encode()

    assert answer_of(work) == str(999_999 * 1_000_000 // 2).encode()
    assert answer_of(lambda _: bytes(ANSWER_BYTES_MAX)) == bytes(ANSWER_BYTES_MAX)
    assert "more than 1 MiB" in failure_of(lambda _: bytes(ANSWER_BYTES_MAX + 1))


def test_it_holds_no_other_descriptor() -> None:
    def work(descriptor: int) -> bytes:
        usable = []
        for number in range(1000):
            with suppress(OSError):
                os.fstat(number)
                usable.append(number)
        return str((usable, os.read(0, 1), descriptor)).encode()

    with Path("/etc/passwd").open("rb"):
        assert answer_of(work) == b"([0, 1, 2, 3, 4], b'', 3)"


@pytest.mark.parametrize(
    "forbidden",
    [
        lambda: os.open("/etc/passwd", os.O_RDONLY),
        lambda: mmap.mmap(-1, 4096, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC),
        lambda: mmap.mmap(-1, 4096, mmap.MAP_SHARED | mmap.MAP_ANONYMOUS),
        *(os.fork, socket.socket, lambda: os.kill(1, 9), lambda: os.setuid(0)),
        *(lambda: os.memfd_create("x"), lambda: time.sleep(0.01)),
    ],
)
def test_what_is_not_on_the_list_is_refused(forbidden: Callable[[], object]) -> None:
    def work(descriptor: int) -> bytes:  # noqa: ARG001
        try:
            return repr(forbidden()).encode()
        except OSError as error:
            return errno.errorcode[error.errno or 0].encode()

    assert answer_of(work) == b"EPERM"


@pytest.mark.parametrize("name", sorted(_KILLED))
def test_what_only_an_attacker_tries_ends_it(name: str) -> None:
    number = _KILLED[name][_ARCHITECTURES[platform.machine()][0]]
    assert "forbidden" in failure_of(lambda _: bytes(_libc.syscall(number, 0, 0, 0, 0, 0)))


def test_too_much_memory_is_not_given() -> None:
    def work(descriptor: int) -> bytes:  # noqa: ARG001
        blocks = []
        try:
            for _ in range(160):
                blocks.append(bytearray(64 << 20))
        except MemoryError:
            return str(len(blocks)).encode()
        return b"all"

    answer = answer_of(work)
    assert isinstance(answer, bytes)
    assert 1 <= int(answer) <= 8


def loops(descriptor: int) -> bytes:
    while descriptor:
        pass
    return b""


def waits(descriptor: int) -> bytes:
    return os.read(descriptor, 1)


def writes(descriptor: int) -> bytes:
    while descriptor:
        os.write(4, bytes(1 << 16))
    return b""


def ends(descriptor: int) -> bytes:
    sys.exit(descriptor)


def raises(descriptor: int) -> bytes:
    raise QjouleError(f"{descriptor}")


def leaves_the_pipe(descriptor: int) -> bytes:
    os.close(4)
    return loops(descriptor)


def crashes(descriptor: int) -> bytes:
    ctypes.string_at(descriptor)
    return b"?"


def cannot_start() -> Task:
    raise QjouleError("its process has ended")


def test_a_failure_is_its_own_and_the_candidates_beside_it_are_answered() -> None:
    reading_end, writing_end = os.pipe()  # the examiner that reads from it waits

    def task_of(work: Callable[[int], bytes]) -> Callable[[], Task]:
        return lambda: Task(work, os.dup(reading_end), cpu_s=1)

    bad = [loops, waits, writes, ends, raises, leaves_the_pipe, crashes]
    good = task_of(lambda _: b"good")
    tasks = [task for work in bad for task in (task_of(work), good)]
    answers = run([*tasks, cannot_start, good])
    os.close(reading_end)
    os.close(writing_end)
    assert [answer for answer in answers if isinstance(answer, bytes)] == [b"good"] * 8
    failures = [answer for answer in answers if isinstance(answer, Failed)]
    late = [loops, waits, leaves_the_pipe]
    assert [failure.is_late for failure in failures] == [*(work in late for work in bad), False]
    why = dict(zip([*bad, cannot_start], map(str, failures), strict=True))
    # The machine decides which of its two limits a loop reaches first.
    limits = "examining it takes more than 1 s of CPU time", "it was not examined within 3 s"
    assert why[loops] in limits
    assert why[waits] == limits[1]
    assert why[writes] == "it says more than 1 MiB"
    assert {why[ends], why[raises], why[crashes]} == {"examining it failed"}
    assert why[cannot_start] == "its process has ended"
