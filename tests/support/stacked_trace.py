# SPDX-License-Identifier: Apache-2.0
"""The handwritten trace with stacks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attribute_trace as hand
from qjoule.trace.meta import Module

#: main calls read and write; deep is called by read. (frame, caller, module, offset)
FRAMES = [(10, None, 1, 100), (11, 10, 1, 200), (12, 10, 1, 300), (13, 11, 2, 7)]


def sample(
    t_ms: float, frame: int | None, query: int | None, owner: int = 1, *, parts: str = "whole"
) -> dict[str, Any]:
    return {
        "t_ns": hand.at(t_ms),
        "cpu": 0,
        "owner": owner,
        "query": query,
        "frame": frame,
        "kernel": "kernel" in parts,
        "whole": "whole" in parts,
    }


SAMPLES = [
    sample(1, 13, 1),
    sample(3, 13, 1),
    sample(5, 12, 1, parts="whole kernel"),
    sample(22, 11, 3),  # the same statement
    sample(12, 11, 2, parts="cut"),
    sample(14, None, 2, parts="cut"),
    sample(2, 12, None, 2),
    sample(25, 77, 99),  # of a frame, and of a query, that nothing else tells of
]


def wait(
    t_ms: float, frame: int | None, query: int, ms: float | None = None, **other: Any
) -> dict[str, Any]:
    """A sampled wait for a lock; without `ms` its end is not known."""
    row: dict[str, Any] = {"t_ns": hand.at(t_ms), "cpu": 0, "owner": 1}
    row |= {"query": query, "frame": frame}
    row |= {"whole": True, "probability": 1.0}
    if ms is not None:
        row |= {"ns": round(ms * hand.MS), "run_queue_ns": 0, "kind": "lock"}
    return row | other


def write_stacked_trace(
    directory: Path, samples: list[dict[str, Any]] | None = None, **other: Any
) -> Path:
    columns = ("frame", "caller", "module", "offset")
    frames = [dict(zip(columns, row, strict=True)) for row in FRAMES]
    modules = (Module(1, "/usr/sbin/serverd", "ab" * 20), Module(2, "/nowhere/x"))
    rows = SAMPLES if samples is None else samples
    meta = {"modules": modules}
    return hand.write(directory, frames=frames, samples=rows, meta=meta, **other)
