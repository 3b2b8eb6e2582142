# SPDX-License-Identifier: Apache-2.0
"""What ends a recording from outside."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stopping(stop: Callable[[], object], duration: float | None) -> Iterator[None]:
    """Ctrl-C, a termination, a terminal that is closed (but for nohup) and the end of the duration
    (s) stop the tracer: its stream then ends.
    """

    def asked(_number: int, _frame: FrameType | None) -> None:
        stop()

    signals = [signal.SIGINT, signal.SIGTERM, signal.SIGALRM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signals.append(signal.SIGHUP)
    before = [signal.signal(number, asked) for number in signals]
    if duration is not None:
        signal.setitimer(signal.ITIMER_REAL, duration)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in zip(signals, before, strict=True):
            signal.signal(number, handler)
