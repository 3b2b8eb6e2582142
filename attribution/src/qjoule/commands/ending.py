# SPDX-License-Identifier: Apache-2.0
"""Makes a command that has started other processes end cleanly when it gets a signal."""

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
