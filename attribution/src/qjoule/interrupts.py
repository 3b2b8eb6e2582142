# SPDX-License-Identifier: Apache-2.0
"""What signals do to a command.

Before a command runs, Ctrl-C ends the process; then it raises `KeyboardInterrupt`. An import that
is interrupted fails in many ways, some of which hide the interrupt.

`stopping` ends a recording from outside.
"""

from __future__ import annotations

import _thread
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

#: An interrupt within this time is a copy: sudo and the root part pass on the terminal's.
_SAME_S = 1.0
_AGAIN_S = 0.01  #: longer than a hook runs, as a rule; if not, the signal is sent once more


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
    """Lets an interrupt end this process silently, until `raise_interrupts`. Its starter blocked
    it, where possible, while Python started."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def raise_interrupts() -> None:
    """Lets an interrupt raise `KeyboardInterrupt` in the main thread; it is not lost even in a
    finalizer, whose exceptions Python only prints."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, _INTERRUPT)
        sys.unraisablehook = _raise_again


@contextmanager
def imports() -> Iterator[None]:
    """Within the block, which imports modules, an interrupt ends the process."""
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


def _raise_again(lost: UnraisableHookArgs) -> None:
    if issubclass(lost.exc_type, KeyboardInterrupt):
        _INTERRUPT.raised_s = None
        _send_again(signal.SIGINT)
    else:
        sys.__unraisablehook__(lost)


def _send_again(number: int) -> None:
    """Sends a signal to this thread in a moment. One that came at once would be handled before the
    hook returns, and what its handler raises would be dropped as well."""
    this_thread = _thread.get_ident()

    def send() -> None:
        time.sleep(_AGAIN_S)
        signal.pthread_kill(this_thread, number)

    _thread.start_new_thread(send, ())  # the interrupted code may hold locks of `threading`


@contextmanager
def ending_in_order(
    signals: Sequence[signal.Signals] = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP),
) -> Iterator[None]:
    """A signal unwinds what was started; further signals do not interrupt the cleanup.

    The block is left by `SystemExit` with 128 plus the signal's number, which is not lost even in a
    finalizer.
    """
    hook = sys.unraisablehook
    number_of: dict[BaseException | None, int] = {}

    def stop(number: int, _frame: FrameType | None) -> None:
        for further in signals:
            signal.signal(further, signal.SIG_IGN)
        ending = SystemExit(128 + number)
        number_of[ending] = number
        raise ending

    def raise_again(lost: UnraisableHookArgs) -> None:
        number = number_of.get(lost.exc_value)
        if number is None:
            hook(lost)
            return
        signal.signal(number, stop)
        _send_again(number)

    sys.unraisablehook = raise_again
    try:
        with _handled_by(stop, signals):
            yield
    finally:
        sys.unraisablehook = hook


@contextmanager
def terminable(notify: Callable[[], object] = lambda: None) -> Iterator[None]:
    """SIGTERM and a closed terminal (unless nohup) end the block like Ctrl-C: by
    `KeyboardInterrupt`.

    `notify` is called first, and may take no lock: the interrupted code may hold it. A loop can so
    end even if Python drops the exception, as it does with one raised in a finalizer
    (documentation of `object.__del__`).
    """

    def end(_number: int, _frame: FrameType | None) -> None:
        notify()
        raise KeyboardInterrupt

    signals = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signals.append(signal.SIGHUP)
    with _handled_by(end, signals):
        yield


@contextmanager
def _handled_by(
    handler: Callable[[int, FrameType | None], None], signals: Sequence[signal.Signals]
) -> Iterator[None]:
    before = [signal.signal(number, handler) for number in signals]
    try:
        yield
    finally:
        for number, earlier in zip(signals, before, strict=True):
            signal.signal(number, earlier)


def outlive_the_root_part() -> None:
    """Ignores the SIGTERM by which the kernel says that the root part has ended (prctl(2),
    PR_SET_PDEATHSIG). To block it would not do: another thread of the process would get it.
    """
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


@contextmanager
def stopping(stop: Callable[[], object], duration: float | None) -> Iterator[None]:
    """Calls `stop` on Ctrl-C, termination, a closed terminal (unless nohup) or after `duration`
    (s).

    The tracer's stream then ends.
    """

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        stop()

    signals = [signal.SIGINT, signal.SIGTERM, signal.SIGALRM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signals.append(signal.SIGHUP)
    before = [signal.signal(number, on_signal) for number in signals]
    if duration is not None:
        signal.setitimer(signal.ITIMER_REAL, duration)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in zip(signals, before, strict=True):
            if signal.getsignal(number) is on_signal:  # the block may have decided otherwise
                signal.signal(number, handler)
