# SPDX-License-Identifier: Apache-2.0
"""Forks processes: those that stay beside a command, and those that do one piece of work.

Each ends with the process that forked it, however that ends (`PR_SET_PDEATHSIG`), and runs no other
code than it is given. Unless it is to have everything, it keeps the descriptors that it is given
and no others, no capability, and is not ended by the terminal's signals.
"""

from __future__ import annotations

import ctypes
import faulthandler
import fcntl
import gc
import os
import pickle
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, TypeVar

from qjoule.errors import QjouleError
from qjoule.process import drop_capability, return_freed_memory

FIRST = 3  #: the number of the first descriptor that a process keeps
_PR_SET_PDEATHSIG = 1  #: prctl(2)
_SHELL = "/bin/sh"
#: Blocked from the fork until the process has given up what it inherited.
_ENDING = (signal.SIGINT, signal.SIGTERM)
_OF_TERMINALS = (*_ENDING, signal.SIGHUP, signal.SIGQUIT)
_END_TRIES, _END_PAUSE_S = 100, 0.01
_KILLED_S = 2.0  #: how long a process that was killed is waited for
_T = TypeVar("_T")


def fork(
    life: Callable[[], object], descriptors: Sequence[int] | None, *, runs_a_program: bool = False
) -> int:
    """Starts a process, while this one has one thread; returns its pid.

    Args:
        life: runs in it.
        descriptors: those that it has, as numbers from `FIRST` on; None: it has all that this
            process has, rights included.
        runs_a_program: it keeps the capability that hides it until then (`process.hide`).

    Raises:
        QjouleError: no process can be started.
    """
    parent = os.getpid()
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    try:
        pid = os.fork()
        if not pid:
            _run_child(
                life,
                descriptors,
                parent,
                blocked,
                drops=descriptors is not None and not runs_a_program,
            )
    except OSError as error:
        raise QjouleError(f"no process can be started: {error.strerror}") from None
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    return pid


def fork_helper(
    life: Callable[[], object], descriptors: Sequence[int], *, runs_a_program: bool = False
) -> int:
    """`fork` of a process that stays as long as this one, and shares its memory."""
    if not runs_a_program:
        share_memory()
    return fork(life, descriptors, runs_a_program=runs_a_program)


def become_python(code: str, script: str = "") -> NoReturn:
    """Replaces this process by Python with `code`, which has none of its memory. Raises `OSError`.

    `script`: a shell runs it instead, and Python where the script has `"$@"`. A shell that waits
    for a line holds 0.3 MB, Python 7. It reads nothing but that line's end, and keeps its
    capability, which hides it, until Python runs.
    """
    places = [*sys.path, str(Path(__file__).parents[1])]
    code = f"import sys; sys.path[:] = {places!r}; {code}"
    environment = {name: value for name, value in os.environ.items() if "QJOULE" not in name}
    # Without site: the paths that it would find are given, and it takes memory.
    arguments = [sys.executable, "-I", "-S", "-c", code]
    if script:
        arguments = [_SHELL, "-c", script, _SHELL, *arguments]
    os.execve(arguments[0], arguments, environment)


def share_memory() -> None:
    """Returns free memory, and excludes all objects from garbage collection for good: the collector
    writes to each object, and pages shared with a forked process would be copied."""
    gc.collect()
    gc.freeze()
    return_freed_memory()


def memory_to_share(name: str, size: int) -> int:
    """A descriptor of new memory for other processes. Its size stays; further seals are the
    caller's.
    """
    descriptor = os.memfd_create(name[:200], os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, size)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
    return descriptor


def wait_shortly(pid: int) -> None:
    """Waits shortly for a process to end: at the latest it ends with this one."""
    with suppress(ChildProcessError):
        for _ in range(_END_TRIES):
            if os.waitpid(pid, os.WNOHANG)[0]:
                break
            time.sleep(_END_PAUSE_S)


@dataclass(frozen=True)
class Child:
    """A process that writes to a pipe. The pipe ends when the process does."""

    pid: int
    pipe: int

    @staticmethod
    def start(life: Callable[[int], object], descriptors: Sequence[int] | None = None) -> Child:
        """As `fork`; `life` gets the number of the pipe's end, after `descriptors`."""
        read_end, write_end = os.pipe()
        number = write_end if descriptors is None else FIRST + len(descriptors)
        everything = None if descriptors is None else (*descriptors, write_end)
        # Pages that the garbage collector does not touch need not be copied.
        is_frozen = gc.get_freeze_count() > 0
        gc.freeze()
        try:
            return Child(fork(lambda: life(number), everything), read_end)
        except BaseException:
            os.close(read_end)
            raise
        finally:
            if not is_frozen:
                gc.unfreeze()
            os.close(write_end)

    def fileno(self) -> int:
        return self.pipe

    def end(self) -> int:
        """Kills the process and closes the pipe. Returns its exit code, or minus a signal's number.

        If the pipe has ended, the process ends by itself, with its own exit code.
        """
        os.close(self.pipe)
        os.kill(self.pid, signal.SIGKILL)
        ended = os.pidfd_open(self.pid)
        try:
            # It may wait for a file system, and not react to a signal; it is left behind.
            if not select.select([ended], [], [], _KILLED_S)[0]:
                return -signal.SIGKILL
            return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        finally:
            os.close(ended)


def write_all(descriptor: int, content: bytes) -> None:
    """Writes everything to a pipe. Raises `OSError`."""
    unwritten = memoryview(content)
    while unwritten.nbytes:
        unwritten = unwritten[os.write(descriptor, unwritten) :]


def run_in_subprocess(work: Callable[[], _T], meanwhile: Callable[[], object] | None = None) -> _T:
    """Runs `work` in a process; returns its result, or raises its `QjouleError`. Call it with one
    thread.

    Its memory is given back with its process: planning loads a disassembler and parses files, and a
    recording would hold 15 MB of it until it ends. The process has all that this one has, and this
    one waits for it. Both are our own code with the same rights, so the result may be a pickle.

    Args:
        meanwhile: runs here while `work` runs there; it leaves one thread.

    Raises:
        QjouleError: also if no process can be started.
        RuntimeError: the work failed otherwise, with its traceback, or its process was killed.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    child = Child.start(lambda pipe: write_all(pipe, _pickled(work)))
    try:
        if meanwhile is not None:
            meanwhile()
        with os.fdopen(child.pipe, "rb", closefd=False) as pipe:
            content = pipe.read()
    finally:
        code = child.end()
    if code or not content:
        raise RuntimeError(f"the process that worked apart ended with status {code}")
    result, failure, trace = pickle.loads(content)
    if failure is not None:
        raise failure
    if trace:
        raise RuntimeError(trace)
    value: _T = result
    return value


def _pickled(work: Callable[[], object]) -> bytes:
    try:
        return pickle.dumps((work(), None, ""))
    except QjouleError as error:
        return pickle.dumps((None, error, ""))
    except Exception:
        return pickle.dumps((None, None, traceback.format_exc()))


def _run_child(
    life: Callable[[], object],
    descriptors: Sequence[int] | None,
    parent: int,
    blocked: Collection[int],
    *,
    drops: bool,
) -> NoReturn:
    """The whole life of the new process."""
    try:
        if ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0):
            os._exit(1)
        if os.getppid() != parent:
            os._exit(1)
        if drops:
            drop_capability()
        if descriptors is not None:
            _drop_inherited(descriptors)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        life()
        os._exit(0)
    finally:
        os._exit(1)


def _drop_inherited(descriptors: Sequence[int]) -> None:
    signal.set_wakeup_fd(-1)
    faulthandler.disable()
    for terminal_signal in _OF_TERMINALS:
        signal.signal(terminal_signal, signal.SIG_IGN)
    aside = [
        fcntl.fcntl(descriptor, fcntl.F_DUPFD, FIRST + len(descriptors))
        for descriptor in descriptors
    ]
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in range(FIRST):
        os.dup2(nothing, number)
    for number, descriptor in enumerate(aside):
        os.dup2(descriptor, FIRST + number)
    os.closerange(FIRST + len(descriptors), 1 << 30)
