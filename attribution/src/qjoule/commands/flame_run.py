# SPDX-License-Identifier: Apache-2.0
"""`qjoule flame`: what it does with the options."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from qjoule.commands.attribute_run import request_of
from qjoule.commands.conversion import readable
from qjoule.commands.option_groups import Shown
from qjoule.contract import NODE, NODE_KIND
from qjoule.engine.flame import Flame, Name, PlanNode, RowStacks, flame
from qjoule.errors import QjouleError, UsageError
from qjoule.model.result import Attribution
from qjoule.process import keep_freed_memory
from qjoule.reporters import flame_text, missing
from qjoule.reporters.provenance import graded
from qjoule.servers.registered import supported
from qjoule.servers.symbols import Symbols
from qjoule.trace.meta import Meta
from qjoule.trace.reader import Trace

NO_STACKS = "no stacks: record it with --stacks"


def run(
    path: Path, shape: str | None, shown: Shown, form: str, top: int
) -> tuple[str, Sequence[str]]:
    """The text in one of the formats, and lines that say what is missing.

    Raises:
        UsageError, QjouleError: as the command says them.
    """
    if shape is not None and "fingerprint" not in shown.keys:
        raise UsageError("--shape is a fingerprint: group by it, with --by")
    keep_freed_memory()
    trace = Trace(readable([path])[0])
    if not trace.rows("samples"):
        raise QjouleError(f"{path} has {NO_STACKS}")
    found = divided(trace, shown)
    if shape is not None:
        found = replace(found, rows=_of_shape(found.rows, shape))
    return _text(found, form, top, str(path)), tuple(notes(found))


def divided(trace: Trace, shown: Shown) -> Flame:
    """A trace's rows, divided over the stacks that were sampled."""
    return flame(trace, request_of(trace, shown), frame_names(trace.meta))


def _text(found: Flame, form: str, top: int, title: str) -> str:
    if form == "table":
        return flame_text.table(found, top)
    if form == "nodes":
        return flame_text.nodes(found)
    if form == "html":
        from qjoule.report.flame_page import flame_page  # noqa: PLC0415 (an extra)

        return flame_page(found, title)
    return flame_text.collapsed(found.rows)


def frame_names(meta: Meta) -> Name:
    modules = {one.id: (one.path, one.build_id) for one in meta.modules}
    symbols = Symbols(lambda number: modules.get(number, ("", "")))
    kinds = cache(lambda number: _node_kinds(*modules.get(number, ("", ""))))

    def named(module: int, offset: int) -> str:
        if not offset & NODE:
            return symbols.name(module, offset)
        kind, number = divmod(offset - NODE, 1 << NODE_KIND)
        return PlanNode(f"{kinds(module).get(kind, f'node {kind}')} #{number}")

    return named


def _node_kinds(path: str, build_id: str) -> Mapping[int, str]:
    found = (one.node_kinds(path, build_id) for one in supported() if one.node_kinds)
    return next(filter(None, found), {})


def _of_shape(rows: Sequence[RowStacks], shape: str) -> tuple[RowStacks, ...]:
    found = tuple(one for one in rows if one.row.keys.get("fingerprint", "").startswith(shape))
    if not found:
        raise QjouleError(f"no statement of the trace has the fingerprint {shape}")
    return found


def notes(found: Flame) -> Iterator[str]:
    """Lines that say where the figures come from, and what is missing."""
    yield from about(found.result)
    if found.samples:
        share = found.whole / found.samples
        yield f"{found.samples} samples, {share:.1%} of them to their thread's entry"
    else:
        yield NO_STACKS
    if lost := found.result.trace.loss.get("stack"):
        yield f"{lost} samples were lost"


def about(result: Attribution) -> Iterator[str]:
    """Those of an attribution."""
    policy, loss = result.policy.get("idle", ""), missing.loss(result)
    yield f"{graded(result)}, idle {policy}, loss {loss}"
    if words := missing.alarm(result):
        yield f"ALARM: {words}"
