# SPDX-License-Identifier: Apache-2.0
"""Names sampled stacks, and divides a row's joules over them and over functions.

A row's energy is divided equally over its samples, in whole nanojoules, so the parts add up to the
row. A row without samples keeps its energy, on the frame `NO_SAMPLE`.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from qjoule.engine.stack_waits import WaitSum
from qjoule.model.labels import Identity
from qjoule.model.result import Row
from qjoule.model.split import apportion
from qjoule.servers.decoding import plan_step

NO_SAMPLE = "[no sample]"
OTHER = "[other stacks]"  #: stacks of a row beyond the number that is remembered
KERNEL = "[kernel]"
CUT = "[callers unknown]"
_BELOW = " > "  #: between the nodes of a path
#: Most nodes on a stack and characters of a node's kind. They are bounded because a traced program
#: may have any functions, and a node's text includes those of all nodes above.
_MOST_NODES, _NODE_MAX = 24, 32
_NUMBER = re.compile(r"\d+")
BEYOND = "[more callers]"  #: the outer end of a stack that is too deep
_MOST_FRAMES = 2048
_MOST_STACKS = 1 << 14  #: stacks whose names are cached
Name = Callable[[int, int], str]
Stack = tuple[str, ...]


class PlanNode(str):
    """The frame of a plan's node, such as "Hash Join #3", which the next functions execute."""

    __slots__ = ()

    @property
    def number(self) -> int:
        """The node's id in its plan."""
        return int(self.rpartition("#")[2])

    @property
    def order(self) -> tuple[int, str]:
        """Sort key of a plan's nodes."""
        return self.number, self

    @property
    def label(self) -> str:
        """The node's own text, without that of the nodes that call it."""
        return self


class PlanPath(PlanNode):
    """A node that is known from functions: its kind, after the kinds of the nodes that call it."""

    __slots__ = ()

    @property
    def order(self) -> tuple[int, str]:
        return 0, _NUMBER.sub(lambda number: number[0].zfill(4), self)

    @property
    def label(self) -> str:
        return self.rpartition(_BELOW)[2]


@dataclass(frozen=True)
class RowStacks:
    """A row, and the number of samples of each stack, the outermost frame first. `waits`: those
    that began with a stack."""

    row: Row
    samples: Counter[Stack]
    waits: Mapping[Stack, WaitSum] = field(default_factory=dict)

    @property
    def count(self) -> int:
        return self.samples.total()

    def energies_nj(self) -> Iterator[tuple[Stack, int]]:
        """Yields each stack with its part of the row's energy. The parts add up to it."""
        return self.divided(self.row.energy_nj)

    def divided(self, total: int) -> Iterator[tuple[Stack, int]]:
        """Yields each stack, in order, with its part of `total`. The parts add up to it."""
        stacks = sorted(self.samples.items())
        if not stacks:
            yield (NO_SAMPLE,), total
            return
        counts = np.array([count for _, count in stacks])
        parts = apportion(np.array([total]), np.zeros(len(counts), np.int64), counts)
        yield from zip((stack for stack, _ in stacks), parts.tolist(), strict=True)


@dataclass(frozen=True)
class FunctionEnergy:
    """Energy of a function and its callees. `sampling_nj` and `model_nj` are half the widths of
    95 % intervals: from the number of samples, and from the model's errors."""

    name: str
    total_nj: float
    self_nj: float
    samples: int
    sampling_nj: float
    model_nj: float
    waits: WaitSum


@dataclass(frozen=True)
class RecentStacks:
    """Stacks of the last seconds of a live stream, with each row's energy and CPU time in them.

    `rows`: by `Row.identity`. `losses`: samples, of all rows, by reason. `unknown`: samples of
    unknown rows. `left_out_nj`: energy of rows beyond the limit.
    """

    rows: Mapping[Identity, RowStacks]
    seconds: float
    losses: Mapping[str, int] = field(default_factory=dict)
    missing: tuple[str, ...] = ()  #: lines that say of which servers stacks or names are missing
    unknown: int = 0
    left_out_nj: int = 0

    @property
    def lost(self) -> int:
        """Number of lost samples."""
        return sum(self.losses.values())


class NotYetNamed(Exception):
    """Raised while a frame's name is not known yet; the caller may try again later."""


class Frames:
    """Finds stacks by their innermost frame. Frames are (caller, module, offset)."""

    def __init__(self, name: Name, most: int = _MOST_FRAMES) -> None:
        """`most`: frames of a stack; only the innermost of a deeper stack are used."""
        self._name, self._most = name, most
        self._frames: dict[int, tuple[int, int, int]] = {}
        self._stacks: dict[int, Stack] = {}

    def add(self, frame: int, caller: int, module: int, offset: int) -> None:
        self._frames[frame] = caller, module, offset

    def forget(self, frames: Iterable[int]) -> None:
        """Forgets these frames; if there are any, also all cached stacks."""
        forgotten = [self._frames.pop(frame, None) for frame in frames]
        if forgotten:
            self._stacks.clear()

    def stack(self, frame: int, *, whole: bool, in_kernel: bool = False) -> Stack:
        """Returns names from the outermost on. Raises what the function `name` raises."""
        stack = self._stacks.get(frame) or self._read(frame)
        if not whole and stack[:1] != (CUT,):  # the callers would identify the node
            stack = (CUT, *(name for name in stack if not isinstance(name, PlanPath)))
        return (*stack, KERNEL) if in_kernel else stack

    def _read(self, innermost: int) -> Stack:
        names: list[str] = []
        frame = innermost
        while frame in self._frames and len(names) < self._most:
            frame, module, offset = self._frames[frame]
            names.append(self._name(module, offset))
        if frame and frame not in self._frames:  # not cached: the frame may come later
            return (CUT, *reversed(names))
        if frame:
            names.append(BEYOND)
        if len(self._stacks) >= _MOST_STACKS:
            self._stacks.clear()
        names.reverse()
        self._stacks[innermost] = tuple(names if frame else _with_nodes(names))
        return self._stacks[innermost]


def _with_nodes(functions: Sequence[str]) -> Iterator[str]:
    """Adds the nodes of a plan to a whole stack, each before the function that executes it. After
    `_MOST_NODES` nodes, inner functions belong to the last.
    """
    path, caller, count = "", "", 0
    numbers: Counter[str] = Counter()
    for function in functions:
        step = plan_step(function)
        if step is not None and step.begins:
            numbers.clear()
        executes = step is not None and step.node and caller not in step.goes_on
        if step is not None and executes and count < _MOST_NODES:
            count += 1
            numbers[step.node] += 1
            number = f" #{numbers[step.node]}" if step.counted else ""
            node = step.node[:_NODE_MAX] + number
            path = f"{path}{_BELOW}{node}" if path else node
            yield PlanPath(path)
        yield function
        caller = function


def functions(rows: Sequence[RowStacks]) -> list[FunctionEnergy]:
    """Returns each function's energy over these rows, the most first. Errors of rows are
    independent, except the model's, which are taken as common.
    """
    total: defaultdict[str, float] = defaultdict(float)
    self_nj: defaultdict[str, float] = defaultdict(float)
    samples: Counter[str] = Counter()
    squares: defaultdict[str, float] = defaultdict(float)
    model: defaultdict[str, float] = defaultdict(float)
    waits: defaultdict[str, WaitSum] = defaultdict(WaitSum)
    for stacks in rows:
        for stack, wait_sum in stacks.waits.items():
            for name in set(stack):
                waits[name].add_all(wait_sum)
                total[name] += 0.0
        low, high = stacks.row.energy_nj_ci95
        for name, (innermost, count) in samples_with(stacks).items():
            self_nj[name] += _part(stacks, innermost)
            total[name] += _part(stacks, count)
            samples[name] += count
            squares[name] += sampling_nj(stacks, count) ** 2
            model[name] += (high - low) / 2 * count / stacks.count
    return [
        FunctionEnergy(
            *(name, energy, self_nj[name], samples[name], math.sqrt(squares[name]), model[name]),
            waits[name],
        )
        for name, energy in sorted(total.items(), key=lambda item: (-item[1], item[0]))
    ]


def samples_with(row: RowStacks) -> dict[str, tuple[int, int]]:
    """Returns, by function or node of a plan, the number of samples with it as innermost frame and
    the number with it anywhere. Samples without known frames count for `CUT`.
    """
    innermost: Counter[str] = Counter()
    inside: Counter[str] = Counter()
    for stack, count in row.samples.items():
        innermost[stack[-1] if stack else CUT] += count
        for name in set(stack):
            inside[name] += count
    return {name: (innermost[name], inside[name]) for name in innermost | inside}


def sampling_nj(stacks: RowStacks, count: int) -> float:
    """Returns half the width of the 95 % interval of the energy of `count` of a row's samples."""
    return stacks.row.energy_nj * sampling_share(count, stacks.count) if stacks.count else math.inf


def sampling_share(count: int, samples: int) -> float:
    """Returns half the width of the 95 % interval of the share `count` / `samples`.

    The share k / n of a row's samples has the standard error sqrt(p (1 - p) / n) with
    p = (k + 2) / (n + 4), so that few samples are not certain (Agresti and Coull, The
    American Statistician 52, 1998), and its interval is Student's.
    """
    p = (count + 2) / (samples + 4)
    return _quantile(samples - 1) * math.sqrt(p * (1 - p) / samples)


@cache
def _quantile(freedom: int) -> float:
    from scipy.special import stdtrit  # noqa: PLC0415 (slow to import)

    return float(stdtrit(max(freedom, 1), 0.975))


def _part(stacks: RowStacks, count: int) -> float:
    return stacks.row.energy_nj * count / stacks.count
