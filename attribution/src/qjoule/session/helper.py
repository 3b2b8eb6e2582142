# SPDX-License-Identifier: Apache-2.0
"""Forks a process without rights that stays beside the command, with few descriptors."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import NoReturn

from qjoule.errors import QjouleError
from qjoule.own_rights import drop_capability

FIRST = 3  #: the number of the first descriptor that it keeps
_PR_SET_PDEATHSIG = 1  #: prctl(2)
#: Neither arrives between the fork and the time when the process has given up what it inherited.
_ENDING = (signal.SIGINT, signal.SIGTERM)
_END_TRIES, _END_PAUSE_S = 100, 0.01


def fork_helper(
    life: Callable[[], None], kept: Sequence[int], *, runs_a_program: bool = False
) -> int:
    """Starts it, while this process has one thread; returns its pid.

    `life` runs in it, with the descriptors `kept` as numbers from `FIRST` on and no others. It ends
    with this process, and not by the terminal's signals. It has no capability, unless
    `runs_a_program`, which needs the one that hides it (`own_rights`).

    Raises:
        QjouleError: no process can be started.
    """
    parent = os.getpid()
    if not runs_a_program:
        share_memory()
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    try:
        pid = os.fork()
        if not pid:
            if not runs_a_program:
                drop_capability()
            _live(life, kept, parent, blocked)
    except OSError as error:
        raise QjouleError(f"no process can be started: {error.strerror}") from None
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    return pid


def share_memory() -> None:
    """Gives free memory back, and keeps the collector from what is left, for good: it writes to
    every object that it looks at, and a page that a forked process has, too, is then copied.
    """
    gc.collect()
    gc.freeze()
    with suppress(AttributeError):  # not glibc
        ctypes.CDLL(None).malloc_trim(0)


def wait_shortly(pid: int) -> None:
    """Waits for its end, but not long: at the latest it ends with this process."""
    with suppress(ChildProcessError):
        for _ in range(_END_TRIES):
            if os.waitpid(pid, os.WNOHANG)[0]:
                break
            time.sleep(_END_PAUSE_S)


def _live(
    life: Callable[[], None], kept: Sequence[int], parent: int, blocked: Collection[int]
) -> NoReturn:
    try:
        _give_up(kept, parent)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        life()
        os._exit(0)
    finally:
        os._exit(1)


def _give_up(kept: Sequence[int], parent: int) -> None:
    if ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0):
        os._exit(1)
    if os.getppid() != parent:
        os._exit(1)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    aside = [os.dup2(one, 100 + at) for at, one in enumerate(kept)]
    nothing = os.open(os.devnull, os.O_RDWR)
    for at in range(FIRST):
        os.dup2(nothing, at)
    for at, one in enumerate(aside):
        os.dup2(one, FIRST + at)
    os.closerange(FIRST + len(kept), 1 << 30)
