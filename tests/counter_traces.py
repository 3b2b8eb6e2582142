"""Traces by hand with hardware counters whose figures can be checked with pencil and paper."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attribute_trace as hand

#: Fingerprint to (milliseconds, cycles, instructions, LLC misses) of each of its calls.
SHAPES: dict[str, tuple[int, int, int, int]] = {
    "scan": (4, 8_000_000, 4_000_000, 40_000),
    "point": (1, 3_000_000, 6_000_000, 600),
    "sort": (2, 5_000_000, 10_000_000, 10_000),
    "join": (3, 6_000_000, 3_000_000, 27_000),
}
Counts = dict[str, tuple[int, int, int, int]]


def write(directory: Path, counts: Counts | None = None, calls: int = 2, **changed: Any) -> Path:
    """One CPU that runs each shape's calls one after another, then background work for 5 ms.

    The background work retires a million instructions in ten million cycles, with 5,000 misses.
    """
    of_shapes = SHAPES if counts is None else counts
    segments, queries, now = [], [], 0.0
    for number, (name, (ms, *counted)) in enumerate(of_shapes.items(), 1):
        for call in range(calls):
            query = 1 + call * len(of_shapes) + number
            segments.append(_counted(now, now + ms, 1, query, counted))
            queries.append(_query(now, now + ms, query, name, number))
            now += ms
    segments.append(_counted(now, now + 5, 2, None, [10_000_000, 1_000_000, 5_000]))
    meta = {
        "counters": ("cycles", "instructions", "llc_misses"),
        "end_ns": hand.at(now + 5),
        **changed.pop("meta", {}),
    }
    tables = {
        "segments": segments,
        "queries": queries,
        "shapes": [
            {"shape": number, "fingerprint": name, "text": f"select {name}"}
            for number, name in enumerate(of_shapes, 1)
        ],
    }
    return hand.write(directory, **(tables | changed), meta=meta)


def _counted(
    t0: float, t1: float, owner: int, query: int | None, counts: list[int]
) -> dict[str, Any]:
    cycles, instructions, misses = counts
    return {
        **hand.segment(t0, t1, 0, owner, query),
        "cycles": cycles,
        "instructions": instructions,
        "llc_misses": misses,
        "counted": 1.0,
    }


def _query(begin: float, end: float, number: int, name: str, shape: int) -> dict[str, Any]:
    return {**hand.query(begin, end, number, name, "query", {}), "shape": shape}
