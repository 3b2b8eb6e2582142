# SPDX-License-Identifier: Apache-2.0
"""Divides the joules of a trace's rows over the stacks that were sampled while they ran. The parts
add up to what was measured.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from qjoule.engine import recorded, tables
from qjoule.engine.attribute import AttributionContext, AttributionRequest
from qjoule.engine.grouped import SegmentReader
from qjoule.engine.stacks import Frames, Name, RowStacks, Stack
from qjoule.model.labels import GroupLabel
from qjoule.model.result import Attribution
from qjoule.trace.columns import view
from qjoule.trace.reader import Trace


@dataclass(frozen=True)
class Flame:
    """Stacks of a whole trace. `rows`: in the table's order, queries first. `whole`: how many of
    the `samples` were unwound to their thread's entry."""

    result: Attribution
    rows: tuple[RowStacks, ...]
    samples: int
    whole: int


def flame(trace: Trace, request: AttributionRequest, name: Name) -> Flame:
    """`name` returns a frame's name from its module and its offset there."""
    recording = recorded.read(trace)
    context = AttributionContext(recording, request)
    ledger = context.run()
    labels = context.labels
    groups = context.grouped.reader
    reader = SegmentReader(groups.queries, groups.owners, with_counters=False)
    frames = _frames(trace, name)
    samples: dict[int, Counter[Stack]] = {}
    count = whole = 0
    for table in trace.iter_table("samples", _COLUMNS):
        group = reader.read(_as_segments(table)).group
        of = zip(
            group.tolist(),
            tables.ids(table.column("frame")).filled.tolist(),
            table.column("kernel").to_pylist(),
            table.column("whole").to_pylist(),
            strict=True,
        )
        for number, frame, in_kernel, is_whole in of:
            stack = frames.stack(frame, whole=is_whole, in_kernel=in_kernel)
            samples.setdefault(number, Counter())[stack] += 1
            count, whole = count + 1, whole + is_whole
    result = context.result(ledger, recorded.summary(trace, recording))
    return Flame(result, tuple(_rows(result, labels, samples)), count, whole)


_COLUMNS = ("t_ns", "cpu", "owner", "query", "frame", "kernel", "whole")


def _as_segments(table: pa.Table) -> pa.Table:
    """Converts samples to segments of length 0, which get the same groups."""
    times = table.column("t_ns")
    columns = [times, times, *(table.column(name) for name in ("cpu", "owner", "query"))]
    return pa.Table.from_arrays(columns, ["t0_ns", "t1_ns", "cpu", "owner", "query"])


def _frames(trace: Trace, name: Name) -> Frames:
    frames = Frames(name)
    for table in trace.iter_table("frames", ("frame", "caller", "module", "offset")):
        columns = (view(table.column(field)).tolist() for field in ("frame", "module", "offset"))
        callers = tables.ids(table.column("caller")).filled.tolist()
        for frame, module, offset, caller in zip(*columns, callers, strict=True):
            frames.add(frame, caller, module, offset)
    return frames


def _rows(
    result: Attribution, labels: Sequence[GroupLabel], samples: dict[int, Counter[Stack]]
) -> Iterator[RowStacks]:
    by_row: dict[object, Counter[Stack]] = {}
    for group, stacks in samples.items():
        kind, keys, apart = labels[group].identity
        by_row.setdefault((kind, tuple(sorted(keys)), apart), Counter()).update(stacks)
    for row in (*result.rows, *result.fixed):
        yield RowStacks(row, by_row.get(row.identity, Counter()))
