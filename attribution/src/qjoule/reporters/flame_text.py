# SPDX-License-Identifier: Apache-2.0
"""Joules by stack as text: a line per stack for other tools, and a table of functions."""

from __future__ import annotations

from collections.abc import Sequence

from qjoule.engine.flame import Flame, RowStacks, functions
from qjoule.model.result import Row
from qjoule.reporters import format as fmt
from qjoule.reporters.labels import FIXED_NAMES, query_label
from qjoule.shapes.safe_text import shorten

_NAME = 72  #: columns of a function
QUERIES = "queries"


def first_frames(row: Row) -> tuple[str, ...]:
    """What stands below a row's stacks: which part of the total it is, and its name there."""
    if row.kind == "queries":
        return QUERIES, query_label(row)
    part = FIXED_NAMES[row.kind]
    name = " ".join(fmt.one_line(value) for value in row.keys.values())
    return (part, name) if name else (part,)


def collapsed(rows: Sequence[RowStacks]) -> str:
    """A line per stack: its frames, the outermost first, with `;` between them, and nanojoules.

    Such lines are what Brendan Gregg's flamegraph.pl and the tools after it read. A part that took
    nothing is left out; one below 0 (a residual) cannot be drawn, but is there.
    """
    lines = [
        f"{';'.join(_frame(name) for name in (*first_frames(one.row), *stack))} {energy_nj}\n"
        for one in rows
        for stack, energy_nj in one.energies_nj()
        if energy_nj
    ]
    return "".join(sorted(lines))


def _frame(name: str) -> str:
    return name.replace(";", ",")


def table(found: Flame, top: int) -> str:
    """The functions that took most, with those that they called."""
    listed = functions(found.rows)
    total_nj = sum(one.row.energy_nj for one in found.rows)
    heads = ("joules", 12), ("share", 6), ("± samples", 10), ("± model", 10), ("self J", 10)
    lines = ["  ".join((*(name.rjust(width) for name, width in heads), "function"))]
    for one in listed[:top]:
        share = f"{one.total_nj / total_nj:.1%}" if total_nj else ""
        lines.append(
            f"{one.total_nj / 1e9:12.4f}  {share:>6}  {one.sampling_nj / 1e9:10.4f}  "
            f"{one.model_nj / 1e9:10.4f}  {one.self_nj / 1e9:10.4f}  {shorten(one.name, _NAME)}"
        )
    if len(listed) > top:
        lines.append(f"{len(listed) - top} more functions: --top")
    return "\n".join(lines) + "\n"
