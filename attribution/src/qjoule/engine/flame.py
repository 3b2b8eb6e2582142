# SPDX-License-Identifier: Apache-2.0
"""Divides the joules of an attribution's rows over the stacks that were sampled while they ran.

A row's energy goes to its samples in equal parts, in whole nanojoules, so what stands on the stacks
adds up to the row, and all rows to what was measured. A row without a sample keeps its energy as
one frame that says so.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import pyarrow as pa

from qjoule.engine import recorded, tables
from qjoule.engine.attribute import AttributionContext, AttributionRequest
from qjoule.engine.grouped import SegmentReader
from qjoule.model.labels import GroupLabel
from qjoule.model.result import Attribution, Row
from qjoule.model.split import apportion
from qjoule.trace.columns import view
from qjoule.trace.reader import Trace

NO_SAMPLE = "[no sample]"
KERNEL = "[kernel]"
CUT = "[callers unknown]"
_MOST_FRAMES = 2048
Name = Callable[[int, int], str]
Stack = tuple[str, ...]


class PlanNode(str):
    """The frame of a node of a plan, such as "Hash Join #3": the functions after it execute it."""

    __slots__ = ()

    @property
    def number(self) -> int:
        """The node's id in its plan."""
        return int(self.rpartition("#")[2])


@dataclass(frozen=True)
class RowStacks:
    """A row, and the number of samples of each stack, the outermost frame first."""

    row: Row
    samples: Counter[Stack]

    @property
    def count(self) -> int:
        return self.samples.total()

    def energies_nj(self) -> Iterator[tuple[Stack, int]]:
        """Each stack with its part of the row's energy. They add up to it."""
        return self.divided(self.row.energy_nj)

    def divided(self, total: int) -> Iterator[tuple[Stack, int]]:
        """Each stack, in order, with its part of a total of the row. They add up to it."""
        stacks = sorted(self.samples.items())
        if not stacks:
            yield (NO_SAMPLE,), total
            return
        counts = np.array([count for _, count in stacks])
        parts = apportion(np.array([total]), np.zeros(len(counts), np.int64), counts)
        yield from zip((stack for stack, _ in stacks), parts.tolist(), strict=True)


@dataclass(frozen=True)
class Flame:
    """Of a whole trace: `rows` as the table has them, the queries first. `whole`: how many of the
    `samples` were followed to their thread's entry."""

    result: Attribution
    rows: tuple[RowStacks, ...]
    samples: int
    whole: int


@dataclass(frozen=True)
class FunctionEnergy:
    """What a function and all that it called took. `sampling_nj` and `model_nj` are half the widths
    of 95 % intervals: by how few samples there are, and by the model's errors."""

    name: str
    total_nj: float
    self_nj: float
    samples: int
    sampling_nj: float
    model_nj: float


def flame(trace: Trace, request: AttributionRequest, name: Name) -> Flame:
    """`name` names a frame by its module and its offset there."""
    recording = recorded.read(trace)
    context = AttributionContext(recording, request)
    ledger = context.run()
    labels = context.labels
    groups = context.grouped.reader
    reader = SegmentReader(groups.queries, groups.owners, with_counters=False)
    frames = _Frames(trace, name)
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
            stack = frames.stack(frame, whole=is_whole) + ((KERNEL,) if in_kernel else ())
            samples.setdefault(number, Counter())[stack] += 1
            count, whole = count + 1, whole + is_whole
    result = context.result(ledger, recorded.summary(trace, recording))
    return Flame(result, tuple(_rows(result, labels, samples)), count, whole)


_COLUMNS = ("t_ns", "cpu", "owner", "query", "frame", "kernel", "whole")


def _as_segments(table: pa.Table) -> pa.Table:
    """The samples as segments without length: they have the same groups."""
    times = table.column("t_ns")
    columns = [times, times, *(table.column(name) for name in ("cpu", "owner", "query"))]
    return pa.Table.from_arrays(columns, ["t0_ns", "t1_ns", "cpu", "owner", "query"])


class _Frames:
    """Stacks by their innermost frame."""

    def __init__(self, trace: Trace, name: Name) -> None:
        self._name = name
        self._frames: dict[int, tuple[int, int, int]] = {}  #: caller, module, offset
        self._stacks: dict[int, Stack] = {}
        for table in trace.iter_table("frames", ("frame", "caller", "module", "offset")):
            columns = (view(table.column(one)).tolist() for one in ("frame", "module", "offset"))
            callers = tables.ids(table.column("caller")).filled.tolist()
            for frame, module, offset, caller in zip(*columns, callers, strict=True):
                self._frames[frame] = caller, module, offset

    def stack(self, frame: int, *, whole: bool) -> Stack:
        """The names from the outermost on."""
        if frame not in self._stacks:
            self._stacks[frame] = self._read(frame)
        return self._stacks[frame] if whole else (CUT, *self._stacks[frame])

    def _read(self, frame: int) -> Stack:
        names: list[str] = []
        while frame in self._frames and len(names) < _MOST_FRAMES:
            frame, module, offset = self._frames[frame]
            names.append(self._name(module, offset))
        return tuple(reversed(names))


def _rows(
    result: Attribution, labels: Sequence[GroupLabel], samples: dict[int, Counter[Stack]]
) -> Iterator[RowStacks]:
    by_row: dict[object, Counter[Stack]] = {}
    for group, stacks in samples.items():
        kind, keys, apart = labels[group].identity
        by_row.setdefault((kind, tuple(sorted(keys)), apart), Counter()).update(stacks)
    for row in (*result.rows, *result.fixed):
        yield RowStacks(row, by_row.get(row.identity, Counter()))


def functions(rows: Sequence[RowStacks]) -> list[FunctionEnergy]:
    """What each function took over these rows, the most first. Rows are independent; the model's
    errors are taken as common.
    """
    total: defaultdict[str, float] = defaultdict(float)
    own: defaultdict[str, float] = defaultdict(float)
    seen: Counter[str] = Counter()
    squares: defaultdict[str, float] = defaultdict(float)
    model: defaultdict[str, float] = defaultdict(float)
    for one in rows:
        inside: Counter[str] = Counter()
        for stack, count in one.samples.items():
            own[stack[-1] if stack else CUT] += _part(one, count)
            for name in set(stack):
                inside[name] += count
        low, high = one.row.energy_nj_ci95
        for name, count in inside.items():
            total[name] += _part(one, count)
            seen[name] += count
            squares[name] += sampling_nj(one, count) ** 2
            model[name] += (high - low) / 2 * count / one.count
    return [
        FunctionEnergy(
            *(name, energy, own[name], seen[name], math.sqrt(squares[name]), model[name])
        )
        for name, energy in sorted(total.items(), key=lambda one: (-one[1], one[0]))
    ]


def sampling_nj(one: RowStacks, count: int) -> float:
    """Half the width of the 95 % interval of the energy of so many of a row's samples.

    The share k / n of a row's samples has the standard error sqrt(p (1 - p) / n) with
    p = (k + 2) / (n + 4), so that few samples are not taken for certain (Agresti and Coull, The
    American Statistician 52, 1998), and its interval is Student's.
    """
    if not one.count:
        return math.inf
    p = (count + 2) / (one.count + 4)
    return _quantile(one.count - 1) * one.row.energy_nj * math.sqrt(p * (1 - p) / one.count)


@cache
def _quantile(freedom: int) -> float:
    from scipy.special import stdtrit  # noqa: PLC0415 (slow to import)

    return float(stdtrit(max(freedom, 1), 0.975))


def _part(one: RowStacks, count: int) -> float:
    return one.row.energy_nj * count / one.count
