# SPDX-License-Identifier: Apache-2.0
"""Open loop: sends operations when they arrive, on as many connections as there are."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from qjoule_studies.workloads.arrivals import ArrivalQueue

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
