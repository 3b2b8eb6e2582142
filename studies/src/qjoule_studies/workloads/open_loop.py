# SPDX-License-Identifier: Apache-2.0
"""Open loop: sends operations when they arrive, on as many connections as there are.

Arrivals are fixed before the first operation is sent. Nothing that the server does can move one: a
server that is slow makes operations wait, and their latency, which is counted from their arrival,
grows (no coordinated omission).
"""

from __future__ import annotations

import bisect
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

KINDS = ("poisson", "uniform")


def arrivals_s(
    per_s: Sequence[float], step_s: float, kind: str, rng: np.random.Generator
) -> npt.NDArray[np.float64]:
    """Times of arrival in seconds from the beginning, in order, for rates that change stepwise.

    Args:
        per_s: rate of each step. step_s: length of a step.
        kind: `poisson`: independent exponential intervals. `uniform`: at equal distances.

    Method: arrivals of unit rate, in the time in which the expected number of arrivals passes; the
    inverse of that cumulative rate gives their times (D. R. Cox, P. A. W. Lewis, The statistical
    analysis of series of events, 1966; time change of a Poisson process).
    """
    rates = np.asarray(per_s, float)
    expected = np.concatenate(([0.0], np.cumsum(rates * step_s)))
    if kind == "uniform":
        places = np.arange(round(expected[-1])) + 0.5
    else:
        # More than enough intervals but for one time in 10^15, and then some more are drawn.
        places = np.cumsum(rng.exponential(size=_enough(expected[-1])))
        while places[-1] < expected[-1]:
            more = np.cumsum(rng.exponential(size=_enough(expected[-1])))
            places = np.concatenate((places, places[-1] + more))
    places = places[places < expected[-1]]
    step = np.searchsorted(expected, places, side="right") - 1  # never a step of rate 0
    times: npt.NDArray[np.float64] = step * step_s + (places - expected[step]) / rates[step]
    return times


def _enough(expected: float) -> int:
    return int(expected + 8 * np.sqrt(expected)) + 64


class ArrivalQueue:
    """Hands out operations in the order in which they arrive; those that wait are bounded.

    Connections ask for an operation as soon as they are free, so an operation that has arrived and
    waits means that all of them are busy. One that arrives while `capacity` wait is dropped. For
    several threads.

    Attributes:
        dropped: numbers of the operations that met a full queue, in order.
    """

    def __init__(self, arrivals_ns: Sequence[int], capacity: int) -> None:
        self.dropped: list[int] = []
        self._arrivals_ns = arrivals_ns
        self._capacity = capacity
        self._waiting: deque[int] = deque()
        self._next = 0
        self._lock = threading.Lock()

    def take(self, now_ns: int) -> int | None:
        """The operation that a connection, free at `now_ns`, does next; None if there is no more.

        If it has not arrived yet, it is this connection's alone, which waits until it arrives.
        """
        with self._lock:
            self._admit(now_ns)
            if self._waiting:
                return self._waiting.popleft()
            if self._next == len(self._arrivals_ns):
                return None
            self._next += 1
            return self._next - 1

    def _admit(self, now_ns: int) -> None:
        """Queues arrivals up to now as far as there is room, and drops the latest beyond."""
        due = bisect.bisect_left(self._arrivals_ns, now_ns, self._next)
        last = min(due, self._next + self._capacity - len(self._waiting))
        self._waiting.extend(range(self._next, last))
        self.dropped.extend(range(last, due))
        self._next = due


#: Does the operation of this number. Raises whatever its driver raises if it fails.
Send = Callable[[int], None]


class Gone(Exception):
    """Raised by `Send`: the server has gone, no further operation makes sense."""


@dataclass(frozen=True)
class Sent:
    """What became of each operation, by its number; times in ns from the beginning, -1 for never.

    `done_ns` of an operation that failed is when it failed. `gone` says why the load was given up.
    """

    arrivals_ns: npt.NDArray[np.int64]
    sent_ns: npt.NDArray[np.int64]
    done_ns: npt.NDArray[np.int64]
    failed: npt.NDArray[np.bool_]
    dropped: npt.NDArray[np.bool_]
    first_error: str = ""
    gone: str = ""


def open_loop(
    arrivals_ns: npt.NDArray[np.int64],
    connections: Sequence[Send],
    capacity: int,
    begin_ns: int,
    last_ns: int,
) -> Sent:
    """Sends each operation when it arrives, or when a connection is free after that.

    Args:
        arrivals_ns: in order, from the beginning.
        capacity: how many operations may wait for a connection.
        begin_ns: by `time.monotonic_ns`, when the load begins.
        last_ns: from the beginning, after which nothing is sent any more.
    """
    scheduled = arrivals_ns.tolist()
    queue = ArrivalQueue(scheduled, capacity)
    sent = np.full(len(scheduled), -1, np.int64)
    done = np.full(len(scheduled), -1, np.int64)
    failed = np.zeros(len(scheduled), bool)
    given_up = threading.Event()
    errors: list[str] = []
    gone: list[str] = []

    def work(send: Send) -> None:
        while not given_up.is_set():
            number = queue.take(time.monotonic_ns() - begin_ns)
            if number is None:
                return
            wait_ns = begin_ns + scheduled[number] - time.monotonic_ns()
            if wait_ns > 0 and given_up.wait(wait_ns / 1e9):
                return
            now_ns = time.monotonic_ns() - begin_ns
            if now_ns > last_ns:
                return
            sent[number] = now_ns
            try:
                send(number)
            except Gone as error:
                failed[number] = True
                gone.append(str(error))
                given_up.set()
            except Exception as error:  # whatever a driver raises is a failed operation
                failed[number] = True
                errors.append(type(error).__name__)
            done[number] = time.monotonic_ns() - begin_ns

    threads = [threading.Thread(target=work, args=(send,), daemon=True) for send in connections]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    dropped = np.zeros(len(scheduled), bool)
    dropped[queue.dropped] = True
    first, why = (errors or [""])[0], (gone or [""])[0]
    return Sent(arrivals_ns, sent, done, failed, dropped, first, why)
