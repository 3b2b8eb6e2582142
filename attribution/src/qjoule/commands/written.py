# SPDX-License-Identifier: Apache-2.0
"""What a command says of a trace that it has written."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from qjoule.trace.meta import Meta

if TYPE_CHECKING:
    from qjoule.engine.calls import CallCount


def what_was_written(directory: Path, meta: Meta, counted: CallCount, *notes: str) -> str:
    """A trace in one line: its calls and segments, its energy source, and what was lost."""
    # A recording has not ended yet.
    from qjoule.reporters.changes import advice  # noqa: PLC0415
    from qjoule.reporters.missing import lost  # noqa: PLC0415

    missing = lost(meta.loss, meta.lost_cpu_ns, advice(meta.changes))
    parts = [
        _calls(counted),
        some(meta.rows.get("segments", 0), "segment", "segments"),
        f"energy {meta.energy.source} ({meta.energy.grade})",
        *notes,
        f"lost: {missing}" if missing else "nothing lost",
    ]
    return f"{directory}: {', '.join(parts)}"


def some(number: int, one: str, more: str) -> str:
    """A number with its unit, in the singular or plural."""
    return f"{number:,} {one if number == 1 else more}"


def _calls(counted: CallCount) -> str:
    """The number that `attribute` has in its total, and what else was recorded."""
    calls = some(counted.calls, "call", "calls")
    if not counted.others:
        return calls
    kinds = ", ".join(f"{number:,} {kind}" for kind, number in counted.others.most_common())
    return f"{calls} (not counted as calls: {kinds})"
