# SPDX-License-Identifier: Apache-2.0
"""Makes commands end cleanly when they get a signal."""

from __future__ import annotations

import signal
from collections.abc import Iterator
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
def terminable() -> Iterator[None]:
    """SIGTERM and a closed terminal (unless nohup) end the block like Ctrl-C: by
    `KeyboardInterrupt`.
    """
    signals = [signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signals.append(signal.SIGHUP)
    before = [signal.signal(each, signal.default_int_handler) for each in signals]
    try:
        yield
    finally:
        for each, handler in zip(signals, before, strict=True):
            signal.signal(each, handler)
