# SPDX-License-Identifier: Apache-2.0
"""Divides the joules of a trace's rows over the stacks that were sampled while they ran. The parts
add up to what was measured.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from qjoule.engine import recorded, tables
from qjoule.engine.attribute import AttributionContext, AttributionRequest
from qjoule.engine.grouped import SegmentReader
from qjoule.engine.sampled_waits import as_segments, sampled_waits
from qjoule.engine.stack_waits import WaitSum
from qjoule.engine.stacks import Frames, Name, RowStacks, Stack
from qjoule.model.labels import GroupLabel
from qjoule.model.result import Attribution
from qjoule.trace.columns import view
from qjoule.trace.reader import Trace


@dataclass(frozen=True)
class Flame:
    """Stacks of a whole trace. `rows`: in the table's order, queries first. `whole`: how many of
    the `samples` were unwound to their thread's entry. `waits`: number of sampled waits; None: not
    recorded; `endless`: how many of them have no end, and do not count."""

    result: Attribution
    rows: tuple[RowStacks, ...]
    samples: int
    whole: int
    waits: int | None = None
    endless: int = 0


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
        group = reader.read(as_segments(table)).group
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
    waits = sampled_waits(trace, reader, frames)
    result = context.result(ledger, recorded.summary(trace, recording))
    rows = tuple(_rows(result, labels, samples, waits.by_group))
    return Flame(result, rows, count, whole, waits.count, waits.endless)


_COLUMNS = ("t_ns", "cpu", "owner", "query", "frame", "kernel", "whole")


def _frames(trace: Trace, name: Name) -> Frames:
    frames = Frames(name)
    for table in trace.iter_table("frames", ("frame", "caller", "module", "offset")):
        columns = (view(table.column(field)).tolist() for field in ("frame", "module", "offset"))
        callers = tables.ids(table.column("caller")).filled.tolist()
        for frame, module, offset, caller in zip(*columns, callers, strict=True):
            frames.add(frame, caller, module, offset)
    return frames


def _rows(
    result: Attribution,
    labels: Sequence[GroupLabel],
    samples: Mapping[int, Counter[Stack]],
    waits: Mapping[int, Mapping[Stack, WaitSum]],
) -> Iterator[RowStacks]:
    by_row: dict[object, Counter[Stack]] = {}
    for group, stacks in samples.items():
        by_row.setdefault(_identity(labels[group]), Counter()).update(stacks)
    waits_by_row: dict[object, dict[Stack, WaitSum]] = {}
    for group, sums in waits.items():
        of_row = waits_by_row.setdefault(_identity(labels[group]), {})
        for stack, wait_sum in sums.items():
            of_row.setdefault(stack, WaitSum()).add_all(wait_sum)
    for row in (*result.rows, *result.fixed):
        identity = row.identity
        yield RowStacks(row, by_row.get(identity, Counter()), waits_by_row.get(identity, {}))


def _identity(label: GroupLabel) -> object:
    """As `Row.identity`."""
    kind, keys, apart = label.identity
    return kind, tuple(sorted(keys)), apart
