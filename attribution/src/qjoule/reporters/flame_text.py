# SPDX-License-Identifier: Apache-2.0
"""Formats joules by stack: a line per stack for other tools, and a table of functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from qjoule.engine.plan_nodes import plan_nodes
from qjoule.engine.stacks import PlanNode, RowStacks, functions
from qjoule.model.result import Row
from qjoule.reporters import format as fmt
from qjoule.reporters.labels import FIXED_NAMES, query_label
from qjoule.shapes.safe_text import shorten

if TYPE_CHECKING:
    from qjoule.engine.flame import Flame

_NAME = 72  #: columns for a function's name
QUERIES = "queries"


def first_frames(row: Row) -> tuple[str, ...]:
    """Returns the outermost frames of a row's stacks: its part of the total, and the row's name."""
    if row.kind == "queries":
        return QUERIES, query_label(row)
    part = FIXED_NAMES[row.kind]
    name = " ".join(fmt.one_line(value) for value in row.keys.values())
    return (part, name) if name else (part,)


def collapsed(rows: Sequence[RowStacks]) -> str:
    """Returns a line per stack: frames from the outermost, separated by `;`, and nanojoules.

    Brendan Gregg's flamegraph.pl and related tools read such lines. Parts of 0 are left out; parts
    below 0 (a residual) are included, although they cannot be drawn.
    """
    lines = [
        f"{';'.join(_frame(name) for name in (*first_frames(stacks.row), *stack))} {energy_nj}\n"
        for stacks in rows
        for stack, energy_nj in stacks.energies_nj()
        if energy_nj
    ]
    return "".join(sorted(lines))


def _frame(name: str) -> str:
    return name.replace(";", ",")


def nodes(flame: Flame) -> str:
    """Returns the nodes of each statement's plan, each with its energy without its children.

    The model's error is shown for the statement only: it is common to all of its nodes.
    """
    heads = ("joules", 12), ("share", 6), ("± samples", 9), ("CPU s", 9), ("J/call", 10)
    lines = ["  ".join((*(name.rjust(width) for name, width in heads), "node"))]
    for row_stacks in flame.rows:
        if not any(isinstance(frame, PlanNode) for stack in row_stacks.samples for frame in stack):
            continue
        row = row_stacks.row
        low, high = (nj / 1e9 for nj in row.energy_nj_ci95)
        joules = fmt.with_interval(row.energy_nj / 1e9, (low, high))
        lines += ["", f"{shorten(query_label(row), _NAME)}: {joules} by the model"]
        for node in plan_nodes(row_stacks):
            share = node.samples / row_stacks.count
            part = node.sampling_nj / row.energy_nj if row.energy_nj else 0.0
            per_call = f"{node.energy_nj / 1e9 / row.calls:10.3g}" if row.calls else " " * 10
            lines.append(
                f"{node.energy_nj / 1e9:12.4f}  {share:6.1%}  {part:9.1%}  "
                f"{share * row.cpu_ns / 1e9:9.3f}  {per_call}  "
                f"{'  ' * node.depth}{node.name.label if node.name else '(no node)'}"
            )
    if len(lines) == 1:
        return "no statement has nodes of a plan\n"
    return "\n".join(lines) + "\n"


def table(flame: Flame, top: int) -> str:
    """Returns the functions with the most energy, including that of functions they called."""
    listed = functions(flame.rows)
    total_nj = sum(row_stacks.row.energy_nj for row_stacks in flame.rows)
    heads = ("joules", 12), ("share", 6), ("± samples", 10), ("± model", 10), ("self J", 10)
    lines = ["  ".join((*(name.rjust(width) for name, width in heads), "function"))]
    for function in listed[:top]:
        share = f"{function.total_nj / total_nj:.1%}" if total_nj else ""
        lines.append(
            f"{function.total_nj / 1e9:12.4f}  {share:>6}  {function.sampling_nj / 1e9:10.4f}  "
            f"{function.model_nj / 1e9:10.4f}  {function.self_nj / 1e9:10.4f}  "
            f"{shorten(function.name, _NAME)}"
        )
    if len(listed) > top:
        lines.append(f"{len(listed) - top} more functions: --top")
    return "\n".join(lines) + "\n"
