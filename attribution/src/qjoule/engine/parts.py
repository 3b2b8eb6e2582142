# SPDX-License-Identifier: Apache-2.0
"""Attribution of a trace in parts, by processes that share nothing: the pieces of the work.

A part is a run of whole cells of time. Its segments are swept at once, from a guess of the state in
which the part before ends; the guess is almost always right, and whoever joins the parts compares.
Learning goes from block to block in order. Splitting a block needs only what was learned for it.
Each block's sums are then merged in order, as `Account` does. So the result is that of one process,
to the bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from qjoule.engine.attribute import Asked, Terms
from qjoule.engine.blocks_held import HeldBlocks
from qjoule.engine.grouped import Grouped
from qjoule.engine.remembering import Remembering
from qjoule.model.account import Account
from qjoule.model.arrays import Anomalies, WindowBatch
from qjoule.model.cells_of_time import Blocks
from qjoule.model.fit.cells import Cell
from qjoule.model.fit.learner import Carried
from qjoule.model.fit.rows import itself
from qjoule.model.labels import GroupLabel
from qjoule.model.latency import CallStats
from qjoule.model.ledger import Ledger
from qjoule.model.power_model import PowerModel
from qjoule.model.windows import SegmentWindows
from qjoule.trace.reader import Trace
from qjoule.trace.span import Span

#: How long a part is swept before it begins: as many windows, and so long.
LEAD_WINDOWS, LEAD_NS = 2, 60_000_000


@dataclass(frozen=True)
class Whole:
    """What is known of a trace before it is divided: whoever joins the parts needs it.

    `cells`: number of the first window of each cell, and the number of windows at the end.
    `undivided`: why the trace cannot be divided; empty if it can.
    """

    cells: tuple[int, ...]
    labels: Sequence[GroupLabel]
    calls: CallStats
    packages: tuple[int, ...]
    learns: bool
    problems: tuple[str, ...] = ()
    undivided: str = ""


@dataclass(frozen=True)
class Swept:
    """What is known of a part's sweep. `began`: the state at its first window, empty at the trace's
    beginning; `ended`: the state at its end."""

    began: bytes
    ended: bytes
    blocks: int
    anomalies: Anomalies
    time_ns: tuple[int, int]  #: of servers that have queries, and the part with a known statement
    problems: tuple[str, ...]


@dataclass(frozen=True)
class Learned:
    """What was learned up to a block, and the models that split it."""

    models: dict[str, PowerModel]
    carried: Carried
    memory: dict[str, object]


class Division:
    """A trace that is divided. May be copied to another process, and used by several threads."""

    def __init__(self, path: str, asked: Asked) -> None:
        trace = Trace(path)
        self._terms = Terms(trace, asked)
        self._machine = self._terms.windows().machine
        account = self._account()[0]
        ends = account.cells.ends(self._terms.energy)
        count = len(ends)
        cells = [0, *(np.flatnonzero(ends) + 1).tolist()]
        self._cells = (*(cell for cell in cells if cell < count), count)
        self._learns = account.learner is not None

    def __sizeof__(self) -> int:
        """About as many bytes as a copy would move."""
        rows = self._terms.grouped.queries.held_rows
        return 4 * rows + 32 * self._cells[-1] + 1000 * len(self._terms.labels)

    def whole(self) -> Whole:
        """What whoever joins the parts needs."""
        terms = self._terms
        labels = list(terms.labels)
        calls = terms.grouped.queries.stats(len(labels))
        return Whole(
            self._cells,
            labels,
            calls,
            self._machine.packages,
            self._learns,
            tuple(terms.trace.problems),
            self._undivided(),
        )

    def _undivided(self) -> str:
        terms = self._terms
        if terms.told:
            return "transactions are followed through the whole trace"
        if terms.requests.any:
            return "requests without CPU time of their own are told apart over the whole trace"
        if self._cells[-1] < 1:
            return "it has no windows"
        return ""

    def sweep(self, first: int, last: int, state: bytes | None) -> tuple[Swept, HeldBlocks]:
        """The blocks of windows `first` to `last` - 1, both beginnings of cells, or the end.

        `state`: that in which the part before ends; None: guess it.
        """
        grouped, stream = self._terms.grouped.fresh(), self._terms.windows()
        bounds_ns = self._terms.energy.boundaries_ns
        at_end = last == self._cells[-1]
        began = self._arrive(grouped, stream, first, state) if first else b""
        before = vars(stream.anomalies).copy()
        reader = grouped.reader
        reader.server_ns = reader.named_ns = 0
        blocks, held = Blocks(self._account()[0].cells), HeldBlocks()
        span = Span(
            int(bounds_ns[first]) if first else None, None if at_end else int(bounds_ns[last])
        )
        for segments in grouped.segments(span=span):
            for block in blocks.add(stream.add(segments)):
                held.add(block)
        for block in blocks.add(stream.finish() if at_end else stream.until(last)):
            held.add(block)
        for block in blocks.finish():
            held.add(block)
        seen = {name: value - before[name] for name, value in vars(stream.anomalies).items()}
        swept = Swept(
            began,
            b"" if at_end else stream.state,
            len(held),
            Anomalies(**seen),
            (reader.server_ns, reader.named_ns),
            tuple(grouped.problems),
        )
        return swept, held

    def _arrive(
        self, grouped: Grouped, stream: SegmentWindows, first: int, state: bytes | None
    ) -> bytes:
        """Brings a new stream to the beginning of a part; returns the state that it is in."""
        if state is not None:
            stream.resume(first, state)
            return state
        bounds_ns = self._terms.energy.boundaries_ns
        if warm := _warm(bounds_ns, first):
            stream.resume(warm, None)
        span = Span(int(bounds_ns[warm]) if warm else None, int(bounds_ns[first]))
        for segments in grouped.segments(span=span):
            stream.add(segments)
        stream.until(first)
        return stream.state

    def learn(self, block: WindowBatch, before: Learned | None) -> Learned:
        """Learns from the next block; `before`: what was learned up to the block before."""
        account, memory = self._account()
        learner = account.learner
        if learner is None:
            raise ValueError("nothing is learned from this trace")
        if before:
            learner.carry(before.carried)
            memory.carry(before.memory)
        models = learner.learn([block], keep=True)
        return Learned(models, learner.carried, memory.carried)

    def split(self, block: WindowBatch, learned: Learned | None) -> Ledger:
        """The sums of a block."""
        models = learned.models if learned else {}
        ledger, _ = self._account()[0].empty.summed([block], models)
        ledger.class_of = itself  # plain data, for another process
        return ledger

    def _account(self) -> tuple[Account, Remembering]:
        memory = self._terms.memory()
        return self._terms.account(self._machine.packages, memory), memory


@dataclass
class Joined:
    """The parts of a trace, joined in order."""

    trace: Trace
    asked: Asked
    whole: Whole
    anomalies: Anomalies = field(default_factory=Anomalies)
    server_ns: int = 0
    named_ns: int = 0

    def __post_init__(self) -> None:
        self._ledger: Ledger | None = None

    def sweep(self, swept: Swept) -> None:
        """Adds what is known of the next part."""
        self.anomalies.add(swept.anomalies)
        self.server_ns += swept.time_ns[0]
        self.named_ns += swept.time_ns[1]

    def block(self, sums: Ledger) -> None:
        """Adds the next block."""
        if self._ledger is None:
            self._ledger = sums.empty()
        self._ledger.merge(sums)

    @property
    def ledger(self) -> Ledger:
        """All blocks so far; there must be one."""
        if self._ledger is None:
            raise ValueError("no block")
        return self._ledger

    @property
    def coverage(self) -> float:
        """Share of the servers' CPU time that has a query whose statement is known."""
        return self.named_ns / self.server_ns if self.server_ns else 0.0


def told(
    trace: Trace, asked: Asked, labels: Sequence[GroupLabel], learned: Learned
) -> tuple[Cell, ...]:
    """What a whole trace tells the machine's memory, after its last block."""
    memory = Remembering.of(asked.calibrated.memory, labels, trace.meta)
    memory.carry(learned.memory)
    return memory.take()


def _warm(bounds_ns: np.typing.NDArray[np.int64], first: int) -> int:
    """The window from which a part that begins with `first` is swept, so that its guess is
    right."""
    early = int(np.searchsorted(bounds_ns, int(bounds_ns[first]) - LEAD_NS))
    return max(min(early, first - LEAD_WINDOWS), 0)
