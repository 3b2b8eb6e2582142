# SPDX-License-Identifier: Apache-2.0
"""Handmade traces with hardware counters, whose figures can be checked with pencil and paper."""

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


def segments(counts: Counts | None = None, calls: int = 2) -> list[dict[str, Any]]:
    """Each shape's calls one after another on one CPU, then background work for 5 ms.

    The background work retires a million instructions in ten million cycles, with 5,000 misses.
    """
    of_shapes = SHAPES if counts is None else counts
    rows, now = [], 0.0
    for number, (ms, *counted) in enumerate(of_shapes.values(), 1):
        for call in range(calls):
            rows.append(_counted(now, now + ms, 1, 1 + call * len(of_shapes) + number, counted))
            now += ms
    rows.append(_counted(now, now + 5, 2, None, [10_000_000, 1_000_000, 5_000]))
    return rows


def write(directory: Path, counts: Counts | None = None, calls: int = 2, **changed: Any) -> Path:
    """Writes a trace of those segments. `changed`: as in `attribute_trace.write`."""
    of_shapes = SHAPES if counts is None else counts
    ran = segments(counts, calls)
    names = [name for name in of_shapes for _ in range(calls)]
    numbers = {name: number for number, name in enumerate(of_shapes, 1)}
    meta = {
        "counters": ("cycles", "instructions", "llc_misses"),
        "end_ns": ran[-1]["t1_ns"],
        **changed.pop("meta", {}),
    }
    tables = {
        "segments": ran,
        "queries": [
            {**hand.query(0, 0, segment["query"], name, "query", {}), "shape": numbers[name]}
            | {"begin_ns": segment["t0_ns"], "end_ns": segment["t1_ns"]}
            for segment, name in zip(ran, names, strict=False)
        ],
        "shapes": [
            {"shape": number, "fingerprint": name, "text": f"select {name}"}
            for name, number in numbers.items()
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
