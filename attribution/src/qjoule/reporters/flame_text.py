# SPDX-License-Identifier: Apache-2.0
"""Formats joules and waits by stack: a line per stack for other tools, functions, and nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from qjoule.engine.plan_nodes import plan_nodes
from qjoule.engine.stack_waits import WaitSum
from qjoule.engine.stacks import PlanNode, RowStacks, functions, sampling_share
from qjoule.model.result import Row
from qjoule.reporters import format as fmt
from qjoule.reporters.labels import FIXED_NAMES, query_label
from qjoule.reporters.waits import WAIT_TITLES
from qjoule.shapes.safe_text import shorten

if TYPE_CHECKING:
    from qjoule.engine.flame import Flame

_NAME = 72  #: columns for a function's name
_WAITS = ("wait s", 9), ("± wait", 8)
_KINDS = "wait for", 16
_MOST_KINDS, _LEAST_KIND = 2, 0.1  #: kinds of a wait that are shown, and least share of one
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
    """Returns the nodes of each statement's plan, each with its energy and the waits of all threads
    without its children.

    The model's error is shown for the statement only: it is common to all of its nodes.
    """
    heads = ("joules", 12), ("share", 6), ("± samples", 9), ("CPU s", 9), ("J/call", 10)
    lines = [_head(heads, flame, "node")]
    for row_stacks in flame.rows:
        stacks = (*row_stacks.samples, *row_stacks.waits)
        if not any(isinstance(frame, PlanNode) for stack in stacks for frame in stack):
            continue
        row = row_stacks.row
        low, high = (nj / 1e9 for nj in row.energy_nj_ci95)
        joules = fmt.with_interval(row.energy_nj / 1e9, (low, high))
        about = f"{joules} by the model"
        if flame.waits is not None and row.waits is not None:
            waited_ns = sum(row.waits[1:]) + sum((row.helpers or (0,))[1:])
            about += f", {waited_ns / 1e9:.3f} s of waits"
        lines += ["", f"{shorten(query_label(row), _NAME)}: {about}"]
        for node in plan_nodes(row_stacks):
            share = node.samples / row_stacks.count if row_stacks.count else 0.0
            part = sampling_share(node.samples, row_stacks.count) if row_stacks.count else 1.0
            per_call = f"{node.energy_nj / 1e9 / row.calls:10.3g}" if row.calls else " " * 10
            lines.append(
                f"{node.energy_nj / 1e9:12.4f}  {share:6.1%}  {part:9.1%}  "
                f"{share * row.cpu_ns / 1e9:9.3f}  {per_call}  {_wait_cells(flame, node.waits)}"
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
    lines = [_head(heads, flame, "function")]
    for function in listed[:top]:
        share = f"{function.total_nj / total_nj:.1%}" if total_nj else ""
        lines.append(
            f"{function.total_nj / 1e9:12.4f}  {share:>6}  {function.sampling_nj / 1e9:10.4f}  "
            f"{function.model_nj / 1e9:10.4f}  {function.self_nj / 1e9:10.4f}  "
            f"{_wait_cells(flame, function.waits)}{shorten(function.name, _NAME)}"
        )
    if len(listed) > top:
        lines.append(f"{len(listed) - top} more functions: --top")
    return "\n".join(lines) + "\n"


def _head(heads: Sequence[tuple[str, int]], flame: Flame, last: str) -> str:
    cells = [name.rjust(width) for name, width in heads]
    if flame.waits is not None:
        cells += [name.rjust(width) for name, width in _WAITS]
        cells.append(_KINDS[0].ljust(_KINDS[1]))
    return "  ".join((*cells, last))


def _wait_cells(flame: Flame, waits: WaitSum) -> str:
    """Returns the seconds of waits, half of their 95 % interval, and what they mostly were for;
    empty if waits were not recorded."""
    if flame.waits is None:
        return ""
    total_ns = waits.total_ns
    largest = sorted(waits.by_kind_ns.items(), key=lambda item: (-item[1], item[0]))[:_MOST_KINDS]
    kinds = ", ".join(WAIT_TITLES[kind] for kind, ns in largest if ns > _LEAST_KIND * total_ns)
    numbers = total_ns, waits.sampling_ns
    cells = [f"{ns / 1e9:{width}.3f}" for ns, (_, width) in zip(numbers, _WAITS, strict=True)]
    return "  ".join((*cells, kinds.ljust(_KINDS[1]), ""))
