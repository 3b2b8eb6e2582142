# SPDX-License-Identifier: Apache-2.0
"""When the loads of a simulated machine run, in cells of time, and their segments and queries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

BEGIN_NS = 10**12
CELL_NS = 50_000  #: everything begins and ends at multiples of it
TICK_NS = 4_000_000  #: slices are cut at least this often
GHZ = 2.5
COUNTERS = ("cycles", "instructions", "llc_misses")


@dataclass(frozen=True)
class SimulatedLoad:
    """A load that keeps one core busy for `call_ns`, pauses for `pause_ns`, and begins again.

    `instructions` and `misses` are per nanosecond.
    """

    fingerprint: str
    instructions: float
    misses: float
    call_ns: int = 40_000_000
    pause_ns: int = 0
    server: int = 1


def run(
    random: np.random.Generator,
    load: SimulatedLoad,
    busy: npt.NDArray[np.bool_],
    call: npt.NDArray[np.int64],
) -> None:
    """Fills the cells in which each call runs; lengths vary by a tenth."""
    at, number = 0, 0
    while at < len(busy):
        length = max(round(load.call_ns / CELL_NS * random.uniform(0.9, 1.1)), 1)
        busy[at : at + length] = True
        call[at : at + length] = number
        at += length
        if load.pause_ns:
            at += max(round(load.pause_ns / CELL_NS * random.uniform(0.8, 1.2)), 1)
        number += 1


def slices(
    busy: npt.NDArray[np.bool_], call: npt.NDArray[np.int64]
) -> Sequence[tuple[int, int, int]]:
    """(first cell, end, call) of every stretch of one call, cut at ticks."""
    cells = np.arange(len(busy))
    tick = cells // (TICK_NS // CELL_NS)
    new = np.ones(len(busy), bool)
    new[1:] = (busy[1:] != busy[:-1]) | (call[1:] != call[:-1]) | (tick[1:] != tick[:-1])
    first = np.flatnonzero(new)
    end = np.append(first[1:], len(busy))
    some = busy[first]
    return list(
        zip(first[some].tolist(), end[some].tolist(), call[first[some]].tolist(), strict=True)
    )


def segment(
    cpu: int, load: SimulatedLoad | None, cells: tuple[int, int], number: int
) -> dict[str, Any]:
    t0_ns, t1_ns = (BEGIN_NS + cell * CELL_NS for cell in cells)
    ran_ns = t1_ns - t0_ns
    counts = (GHZ, load.instructions, load.misses) if load else (GHZ, 0.0, 0.0)
    row: dict[str, Any] = {"t0_ns": t0_ns, "t1_ns": t1_ns, "cpu": cpu, "counted": 1.0}
    row |= {"owner": cpu if load else 4, "query": _query(cpu, number) if load else None}
    return row | {name: round(rate * ran_ns) for name, rate in zip(COUNTERS, counts, strict=True)}


def queries_of(cpu: int, load: SimulatedLoad, call: npt.NDArray[np.int64]) -> list[dict[str, Any]]:
    numbers = np.arange(int(call.max(initial=-1)) + 1)
    first = np.array([np.argmax(call == number) for number in numbers], np.int64)
    size = np.bincount(call[call >= 0], minlength=len(numbers))
    return [
        {
            "query": _query(cpu, number),
            "begin_ns": BEGIN_NS + at * CELL_NS,
            "end_ns": BEGIN_NS + (at + length) * CELL_NS,
            "server": load.server,
            "fingerprint": load.fingerprint,
            "command": "query",
            "status": "ok",
            "attach_mode": "symbol",
        }
        for number, at, length in zip(numbers.tolist(), first.tolist(), size.tolist(), strict=True)
    ]


def _query(cpu: int, number: int) -> int:
    return 1 + cpu + 16 * number


def named(name: str, count: int) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(np.zeros(count, np.int32), [name])
