# SPDX-License-Identifier: Apache-2.0
"""Makes commands end cleanly when they get a signal."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def ending_in_order() -> Iterator[None]:
    """A signal unwinds what was started; further signals do not interrupt the cleanup.

    The block is left by `SystemExit` with 128 plus the signal's number.
    """
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def stop(number: int, _frame: FrameType | None) -> None:
        for each in signals:
            signal.signal(each, signal.SIG_IGN)
        raise SystemExit(128 + number)

    before = [signal.signal(each, stop) for each in signals]
    try:
        yield
    finally:
        for each, handler in zip(signals, before, strict=True):
            signal.signal(each, handler)


@contextmanager
def terminable(told: Callable[[], object] = lambda: None) -> Iterator[None]:
    """SIGTERM and a closed terminal (unless nohup) end the block like Ctrl-C: by
    `KeyboardInterrupt`.

    `told` is called first, and may take no lock: the interrupted code may hold it. A loop can so
    end even if Python drops the exception, as it does with one raised in a finalizer
    (documentation of `object.__del__`).
    """

    def end(_number: int, _frame: FrameType | None) -> None:
        told()
        raise KeyboardInterrupt

    signals = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signals.append(signal.SIGHUP)
    before = [signal.signal(each, end) for each in signals]
    try:
        yield
    finally:
        for each, handler in zip(signals, before, strict=True):
            signal.signal(each, handler)
