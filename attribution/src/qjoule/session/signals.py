# SPDX-License-Identifier: Apache-2.0
"""What ends a recording from outside."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


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
            if signal.getsignal(number) is asked:  # the block may have decided otherwise
                signal.signal(number, handler)
