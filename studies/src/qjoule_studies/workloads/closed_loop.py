# SPDX-License-Identifier: Apache-2.0
"""Closed loop: each connection begins its next operation when its last one has ended."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from qjoule_studies.workload import Latencies

#: Runs the operation of this number (from 0, over all connections); returns its command's name.
Operation = Callable[[int], str]

ALL = "all"  #: the operations of every command together


@dataclass
class Loop:
    """Results of a closed loop. `latencies_ns` holds those of operations that succeeded."""

    wall_s: float
    latencies_ns: dict[str, list[int]] = field(default_factory=dict)
    errors: int = 0
    first_error: BaseException | None = None

    @property
    def operations(self) -> int:
        return sum(map(len, self.latencies_ns.values()))


def closed_loop(connections: Sequence[Operation], seconds: float, operations: int) -> Loop:
    """Runs operations on all connections, a thread each.

    Args:
        seconds: no operation begins after this time; those that run are waited for.
        operations: how many there are in all; 0 for as many as `seconds` allow. If it is given,
            time does not end the loop.

    Returns:
        `wall_s` is from the first operation's start to the last one's end.
    """
    lock = threading.Lock()
    loop = Loop(0.0)
    begin_ns = time.monotonic_ns()
    deadline_ns = begin_ns + round(seconds * 1e9)
    ends = [begin_ns]
    taken = 0

    def next_number() -> int | None:
        nonlocal taken
        with lock:
            over = taken >= operations if operations else time.monotonic_ns() >= deadline_ns
            taken += not over
            return None if over else taken - 1

    def work(run: Operation) -> None:
        while (number := next_number()) is not None:
            start_ns = time.monotonic_ns()
            try:
                command = run(number)
            except Exception as error:  # whatever a driver raises is a failed operation
                with lock:
                    loop.errors += 1
                    loop.first_error = loop.first_error or error
                return  # the connection's state is not known any more
            end_ns = time.monotonic_ns()
            with lock:
                loop.latencies_ns.setdefault(command, []).append(end_ns - start_ns)
                ends.append(end_ns)

    threads = [threading.Thread(target=work, args=(run,), daemon=True) for run in connections]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    loop.wall_s = (max(ends) - begin_ns) / 1e9
    return loop


def latencies(
    by_command: Mapping[str, Sequence[int] | npt.NDArray[np.int64]],
) -> dict[str, Latencies]:
    """Latencies of each command with operations, and of `all` where several have, in ns."""
    present = {command: each for command, each in sorted(by_command.items()) if len(each)}
    if len(present) > 1:
        present[ALL] = np.concatenate([np.asarray(each) for each in present.values()])
    return {command: latencies_of(each) for command, each in present.items()}


def latencies_of(times_ns: Sequence[int] | npt.NDArray[np.int64]) -> Latencies:
    """Mean and percentiles of at least one operation's."""
    values = np.asarray(times_ns, dtype=float)
    p50, p95, p99 = (float(value) for value in np.percentile(values, [50, 95, 99]))
    return Latencies(len(values), float(values.mean()), p50, p95, p99)
