# SPDX-License-Identifier: Apache-2.0
"""What Ctrl-C does: before a command runs it ends the process, then it raises `KeyboardInterrupt`.

An import that is interrupted fails in many ways, some of which hide the interrupt.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

#: sudo and the root part pass on what the terminal has sent us, too.
_SAME_S = 1.0


class _Interrupt:
    """Raises `KeyboardInterrupt` once. An interrupt soon after it is the same one; a later one ends
    the process, whose cleanup may hang."""

    raised_s: float | None = None

    def __call__(self, _number: int, _frame: FrameType | None) -> None:
        now_s = time.monotonic()
        if self.raised_s is None:
            self.raised_s = now_s
            raise KeyboardInterrupt
        if now_s - self.raised_s > _SAME_S:
            end_by_interrupt()


_INTERRUPT = _Interrupt()


def end_at_once() -> None:
    """An interrupt ends this process silently, until `raise_interrupts`. It was blocked while
    Python started, as far as who started it could do so."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def raise_interrupts() -> None:
    """From here on, an interrupt raises `KeyboardInterrupt` in the main thread; it is not lost even
    in a finalizer, whose exceptions Python only prints."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, _INTERRUPT)
        sys.unraisablehook = _again


@contextmanager
def imports() -> Iterator[None]:
    """Modules are imported in the block."""
    if signal.getsignal(signal.SIGINT) is not _INTERRUPT:
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, _INTERRUPT)


def interrupted() -> bool:
    """Whether `KeyboardInterrupt` was raised, whatever became of it."""
    return _INTERRUPT.raised_s is not None


def end_by_interrupt() -> NoReturn:
    """Ends as programs do that know nothing of the signal, so that a shell's loop ends, too."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGINT)
    sys.exit(130)  # the signal is blocked


def _again(lost: UnraisableHookArgs) -> None:
    if issubclass(lost.exc_type, KeyboardInterrupt):
        _INTERRUPT.raised_s = None
        signal.raise_signal(signal.SIGINT)
    else:
        sys.__unraisablehook__(lost)
