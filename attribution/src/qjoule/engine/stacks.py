# SPDX-License-Identifier: Apache-2.0
"""Sampled stacks with names: how a row's joules are divided over them, and over functions.

A row's energy goes to its samples in equal parts, in whole nanojoules, so what stands on the stacks
adds up to the row. A row without a sample keeps its energy as one frame that says so.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from qjoule.model.labels import Identity
from qjoule.model.result import Row
from qjoule.model.split import apportion
from qjoule.servers.decoding import plan_step

NO_SAMPLE = "[no sample]"
OTHER = "[other stacks]"  #: of a row that has more different ones than are remembered
KERNEL = "[kernel]"
CUT = "[callers unknown]"
_BELOW = " > "  #: between the nodes of a path
#: Nodes that functions show on a stack, and characters of a node's kind: a stranger's program may
#: have any functions, and each node's text has those of all nodes above it.
_MOST_NODES, _NODE_MAX = 24, 32
_NUMBER = re.compile(r"\d+")
BEYOND = "[more callers]"  #: of a stack that is deeper than is kept
_MOST_FRAMES = 2048
_MOST_STACKS = 1 << 14  #: that are kept with their names
Name = Callable[[int, int], str]
Stack = tuple[str, ...]


class PlanNode(str):
    """The frame of a node of a plan, such as "Hash Join #3": the functions after it execute it."""

    __slots__ = ()

    @property
    def number(self) -> int:
        """The node's id in its plan."""
        return int(self.rpartition("#")[2])

    @property
    def order(self) -> tuple[int, str]:
        """By which nodes of a plan are sorted."""
        return self.number, self

    @property
    def label(self) -> str:
        """Its text below the nodes that call it."""
        return self


class PlanPath(PlanNode):
    """A node that functions show: its kind behind those of the nodes that call it."""

    __slots__ = ()

    @property
    def order(self) -> tuple[int, str]:
        return 0, _NUMBER.sub(lambda number: number[0].zfill(4), self)

    @property
    def label(self) -> str:
        return self.rpartition(_BELOW)[2]


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
class FunctionEnergy:
    """What a function and all that it called took. `sampling_nj` and `model_nj` are half the widths
    of 95 % intervals: by how few samples there are, and by the model's errors."""

    name: str
    total_nj: float
    self_nj: float
    samples: int
    sampling_nj: float
    model_nj: float


@dataclass(frozen=True)
class RecentStacks:
    """What a live stream told of some seconds. A row's energy and CPU time are of this time.

    `rows`: by `Row.identity`. `losses`: samples, of all rows, by the reason. `unknown`: samples of
    no known row. `left_out_nj`: energy of rows that were too many.
    """

    rows: Mapping[Identity, RowStacks]
    seconds: float
    losses: Mapping[str, int] = field(default_factory=dict)
    missing: tuple[str, ...] = ()  #: lines that say of which servers stacks or names are missing
    unknown: int = 0
    left_out_nj: int = 0

    @property
    def lost(self) -> int:
        """Samples, for whatever reason."""
        return sum(self.losses.values())


class NotYetNamed(Exception):
    """A frame's name is not known yet: ask again later."""


class Frames:
    """Stacks by their innermost frame. Frames are (caller, module, offset)."""

    def __init__(self, name: Name, most: int = _MOST_FRAMES) -> None:
        """`most`: frames of a stack; of a deeper one the innermost are kept."""
        self._name, self._most = name, most
        self._frames: dict[int, tuple[int, int, int]] = {}
        self._stacks: dict[int, Stack] = {}

    def add(self, frame: int, caller: int, module: int, offset: int) -> None:
        self._frames[frame] = caller, module, offset

    def forget(self, frames: Iterable[int]) -> None:
        """Forgets these frames, and what is kept of any stack, if there are any frames."""
        forgotten = [self._frames.pop(frame, None) for frame in frames]
        if forgotten:
            self._stacks.clear()

    def stack(self, frame: int, *, whole: bool, in_kernel: bool = False) -> Stack:
        """The names from the outermost on. Raises what `name` raises."""
        stack = self._stacks.get(frame) or self._read(frame)
        if not whole and stack[:1] != (CUT,):  # which node this is depends on the callers
            stack = (CUT, *(name for name in stack if not isinstance(name, PlanPath)))
        return (*stack, KERNEL) if in_kernel else stack

    def _read(self, innermost: int) -> Stack:
        names: list[str] = []
        frame = innermost
        while frame in self._frames and len(names) < self._most:
            frame, module, offset = self._frames[frame]
            names.append(self._name(module, offset))
        if frame and frame not in self._frames:  # it may come later, so this is not kept
            return (CUT, *reversed(names))
        if frame:
            names.append(BEYOND)
        if len(self._stacks) >= _MOST_STACKS:
            self._stacks.clear()
        names.reverse()
        self._stacks[innermost] = tuple(names if frame else _with_nodes(names))
        return self._stacks[innermost]


def _with_nodes(functions: Sequence[str]) -> Iterator[str]:
    """A whole stack, with the nodes of a plan that its functions show: each before the function
    that executes it. What is below the last of `_MOST_NODES` belongs to that one.
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
    """What each function took over these rows, the most first. Rows are independent; the model's
    errors are taken as common.
    """
    total: defaultdict[str, float] = defaultdict(float)
    self_nj: defaultdict[str, float] = defaultdict(float)
    samples: Counter[str] = Counter()
    squares: defaultdict[str, float] = defaultdict(float)
    model: defaultdict[str, float] = defaultdict(float)
    for stacks in rows:
        low, high = stacks.row.energy_nj_ci95
        for name, (innermost, count) in samples_with(stacks).items():
            self_nj[name] += _part(stacks, innermost)
            total[name] += _part(stacks, count)
            samples[name] += count
            squares[name] += sampling_nj(stacks, count) ** 2
            model[name] += (high - low) / 2 * count / stacks.count
    return [
        FunctionEnergy(
            *(name, energy, self_nj[name], samples[name], math.sqrt(squares[name]), model[name])
        )
        for name, energy in sorted(total.items(), key=lambda item: (-item[1], item[0]))
    ]


def samples_with(row: RowStacks) -> dict[str, tuple[int, int]]:
    """By function or node of a plan: of how many samples it is the innermost, and in how many it
    is. Of a sample whose frames are not known the innermost is `CUT`.
    """
    innermost: Counter[str] = Counter()
    inside: Counter[str] = Counter()
    for stack, count in row.samples.items():
        innermost[stack[-1] if stack else CUT] += count
        for name in set(stack):
            inside[name] += count
    return {name: (innermost[name], inside[name]) for name in innermost | inside}


def sampling_nj(stacks: RowStacks, count: int) -> float:
    """Half the width of the 95 % interval of the energy of so many of a row's samples."""
    return stacks.row.energy_nj * sampling_share(count, stacks.count) if stacks.count else math.inf


def sampling_share(count: int, samples: int) -> float:
    """Half the width of the 95 % interval of the share of so many of some samples.

    The share k / n of a row's samples has the standard error sqrt(p (1 - p) / n) with
    p = (k + 2) / (n + 4), so that few samples are not taken for certain (Agresti and Coull, The
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
