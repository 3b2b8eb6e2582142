# SPDX-License-Identifier: Apache-2.0
"""Attribution of many traces, and of parts of a long one, by several processes.

The tasks are plain functions of plain data, so a task that died with its worker is simply done
again. The results are joined here, in the order of the traces and of their windows, so nothing
depends on who did what, or when.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol, TypeAlias

from qjoule.engine import parts
from qjoule.engine.attribute import Asked, attribute, result
from qjoule.engine.blocks_held import HeldBlocks
from qjoule.engine.parts import Division, Joined, Learned, Swept, Whole
from qjoule.model.fit.cells import Cell
from qjoule.model.ledger import Ledger
from qjoule.model.result import Attribution
from qjoule.trace.reader import Trace

#: A trace of fewer segments is one task: it takes less than a second.
SMALL_SEGMENTS = 3_000_000
#: A part has about so many segments, and at least one cell of time.
PART_SEGMENTS = 2_000_000

#: An attribution, and what it tells the machine's memory.
Found: TypeAlias = tuple[Attribution, tuple[Cell, ...]]
#: From the numbers of the first windows of cells, and of windows, those of parts.
Partition = Callable[[Sequence[int]], Sequence[int]]


class Task(Protocol):
    """A task that was given to a worker. It may be an argument of another one."""

    def result(self) -> Any:
        """What it returned; waits for it. Raises what it raised."""


class Workers(Protocol):
    """Who does the tasks."""

    @property
    def count(self) -> int:
        """How many there are now."""

    def submit(self, function: Callable[..., Any], *given: object, soon: bool = False) -> Task:
        """Gives a task to a worker; `soon`: before others that were given earlier."""


@dataclass(frozen=True)
class Order:
    """One trace to be attributed. `partition` None: by the number of segments."""

    trace: Trace
    asked: Asked
    partition: Partition | None = None


def attributed(
    orders: Sequence[Order], workers: Workers, done: Callable[[Trace], None] = lambda _trace: None
) -> list[Found]:
    """The attributions, in the order given. `done` is called for each trace that is finished.

    Raises what a task raised, after the workers have retried it as often as they do.
    """

    def one(order: Order) -> Found:
        found = _attributed(order, workers)
        done(order.trace)
        return found

    # A thread only waits for its trace's tasks, and joins their results.
    with ThreadPoolExecutor(max_workers=max(2, workers.count)) as pool:
        futures = [pool.submit(one, order) for order in orders]
        try:
            return [future.result() for future in futures]
        except BaseException:
            for future in futures:
                future.cancel()
            raise


def _attributed(order: Order, workers: Workers) -> Found:
    trace, asked, path = order.trace, order.asked, str(order.trace.path.resolve())
    joined = None
    if order.partition is not None or trace.rows("segments") >= SMALL_SEGMENTS:
        problems = list(trace.problems)
        division = workers.submit(Division, path, asked)
        about: Whole = workers.submit(Division.whole, division).result()
        # What is damaged is found, and told, in the order of reading.
        if not about.undivided and list(about.problems) == problems:
            edges = (order.partition or _by_segments(trace))(about.cells)
            run = _Run(workers, division, Joined(trace, asked, about), edges, problems)
            joined = run.joined()
    if joined is None:
        joined = workers.submit(whole, path, asked).result()
    return joined


def whole(path: str, asked: Asked) -> Found:
    """A task: a whole trace."""
    cells: list[Cell] = []
    found = attribute(
        Trace(path),
        asked.by,
        asked.idle,
        asked.coefficients,
        calibrated=asked.calibrated,
        where=asked.where,
        learned=cells.extend,
    )
    return found, tuple(cells)


def _sweep(
    division: Division, first: int, last: int, state: bytes | None
) -> tuple[Swept, HeldBlocks]:
    return division.sweep(first, last, state)


def _told(swept: tuple[Swept, HeldBlocks]) -> Swept:
    return swept[0]


def _learn(
    division: Division, swept: tuple[Swept, HeldBlocks], number: int, before: Learned | None
) -> Learned:
    return division.learn(swept[1][number], before)


def _split(
    division: Division, swept: tuple[Swept, HeldBlocks], number: int, learned: Learned | None
) -> Ledger:
    return division.split(swept[1][number], learned)


def _by_segments(trace: Trace) -> Partition:
    """Parts of about `PART_SEGMENTS`, as if segments were spread evenly."""

    def partition(cells: Sequence[int]) -> Sequence[int]:
        per_cell = max(trace.rows("segments") // max(len(cells) - 1, 1), 1)
        step = max(PART_SEGMENTS // per_cell, 1)
        return (*cells[:-1:step], cells[-1])

    return partition


class _Run:
    """The tasks of one trace. At most `ahead` parts are swept before they are needed."""

    def __init__(
        self,
        workers: Workers,
        division: Task,
        joined: Joined,
        edges: Sequence[int],
        problems: list[str],
    ) -> None:
        self._workers, self._division, self._joined = workers, division, joined
        self._edges, self._problems = list(pairwise(edges)), problems
        self._ahead = 2 * workers.count
        self._swept: dict[int, tuple[Task, Task]] = {}
        self._splits: deque[Task] = deque()
        self._learned: Task | None = None

    def joined(self) -> Found | None:
        """The attribution; None if a part found damage."""
        state = b""
        for number in range(len(self._edges)):
            for later in range(number, min(number + self._ahead, len(self._edges))):
                if later not in self._swept:
                    self._swept[later] = self._sweep(later, None)
            swept, told = self._swept.pop(number)
            seen: Swept = told.result()
            if number and seen.began != state:
                # The guess was wrong, so the part is done again from the state that is known.
                swept, told = self._sweep(number, state)
                seen = told.result()
            if list(seen.problems) != self._problems:
                return None
            state = seen.ended
            self._joined.sweep(seen)
            for block in range(seen.blocks):
                self._block(swept, block)
        self._merge(0)
        return self._finished()

    def _sweep(self, number: int, state: bytes | None) -> tuple[Task, Task]:
        first, last = self._edges[number]
        swept = self._workers.submit(_sweep, self._division, first, last, state)
        return swept, self._workers.submit(_told, swept, soon=True)

    def _block(self, swept: Task, block: int) -> None:
        if self._joined.whole.learns:
            self._learned = self._workers.submit(
                _learn, self._division, swept, block, self._learned, soon=True
            )
        split = self._workers.submit(_split, self._division, swept, block, self._learned, soon=True)
        self._splits.append(split)
        self._merge(self._ahead)

    def _merge(self, left: int) -> None:
        """Joins blocks that are split, in order, until only so many are left."""
        while len(self._splits) > left:
            self._joined.block(self._splits.popleft().result())

    def _finished(self) -> Found:
        joined, asked = self._joined, self._joined.asked
        cells: tuple[Cell, ...] = ()
        ledger, labels = joined.ledger, joined.whole.labels
        if self._learned is not None:
            learned: Learned = self._learned.result()
            ledger.notes = dict(learned.carried.notes)
            cells = parts.told(joined.trace, asked, labels, learned)
        calls, seen = joined.whole.calls, (joined.coverage, joined.anomalies)
        found = result(joined.trace, asked, ledger, (labels, calls), seen)
        return asked.calibrated.said_in(found), cells
