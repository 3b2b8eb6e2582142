# SPDX-License-Identifier: Apache-2.0
"""The implementation of `qjoule flame`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from qjoule.commands.attribute_run import request_of
from qjoule.commands.conversion import readable
from qjoule.commands.frame_names import trace_frame_names
from qjoule.commands.option_groups import ResultOptions
from qjoule.engine.flame import Flame, flame
from qjoule.engine.stacks import RowStacks
from qjoule.errors import QjouleError, UsageError
from qjoule.model.result import Attribution
from qjoule.process import keep_freed_memory
from qjoule.reporters import flame_text, missing
from qjoule.reporters.provenance import graded
from qjoule.trace.reader import Trace

NO_STACKS = "no stacks: record it with --stacks"


def run(
    path: Path,
    shape: str | None,
    result_options: ResultOptions,
    form: str,
    top: int,
    *,
    symfs: Path | None,
) -> tuple[str, Sequence[str]]:
    """Returns the text in a format, and lines that say what is missing. Raises UsageError and
    QjouleError."""
    if shape is not None and "fingerprint" not in result_options.keys:
        raise UsageError("--shape is a fingerprint: group by it, with --by")
    keep_freed_memory()
    trace = Trace(readable([path])[0])
    if not trace.rows("samples"):
        raise QjouleError(f"{path} has {NO_STACKS}")
    stacks = divide_over_stacks(trace, result_options, symfs)
    if shape is not None:
        stacks = replace(stacks, rows=_of_shape(stacks.rows, shape))
    return _text(stacks, form, top, str(path)), tuple(notes(stacks))


def divide_over_stacks(trace: Trace, result_options: ResultOptions, symfs: Path | None) -> Flame:
    """Divides a trace's rows over the sampled stacks. `symfs`: as in `frame_names`."""
    return flame(trace, request_of(trace, result_options), trace_frame_names(trace, symfs))


def _text(stacks: Flame, form: str, top: int, title: str) -> str:
    if form == "table":
        return flame_text.table(stacks, top)
    if form == "nodes":
        return flame_text.nodes(stacks)
    if form == "html":
        from qjoule.report.flame_page import flame_page  # noqa: PLC0415 (an extra)

        return flame_page(stacks, title)
    return flame_text.collapsed(stacks.rows)


def _of_shape(rows: Sequence[RowStacks], shape: str) -> tuple[RowStacks, ...]:
    matches = tuple(
        row_stacks
        for row_stacks in rows
        if row_stacks.row.keys.get("fingerprint", "").startswith(shape)
    )
    if not matches:
        raise QjouleError(f"no statement of the trace has the fingerprint {shape}")
    return matches


def notes(stacks: Flame) -> Iterator[str]:
    """Yields lines on the source of the figures, and on missing data."""
    yield from about(stacks.result)
    if stacks.samples:
        share = stacks.whole / stacks.samples
        yield f"{stacks.samples} samples, {share:.1%} of them to their thread's entry"
    else:
        yield NO_STACKS
    if stacks.samples and stacks.waits is None:
        yield "waits by stack: not recorded"
    elif stacks.waits:
        without = f", {stacks.endless} without an end: not counted" if stacks.endless else ""
        yield f"{stacks.waits} sampled waits{without}"
    if lost := stacks.result.trace.loss.get("stack"):
        yield f"{lost} samples were lost"


def about(result: Attribution) -> Iterator[str]:
    """Yields the grade, idle policy, loss and alarm of an attribution."""
    policy, loss = result.policy.get("idle", ""), missing.loss(result)
    yield f"{graded(result)}, idle {policy}, loss {loss}"
    if alarm := missing.alarm(result):
        yield f"ALARM: {alarm}"
