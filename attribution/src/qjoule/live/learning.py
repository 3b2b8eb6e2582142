# SPDX-License-Identifier: Apache-2.0
"""The memory of a live view: used by all groupings, extended by what the first of them learns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from qjoule.engine.memory_adapter import MemoryAdapter
from qjoule.model.coefficients_used import Remembered
from qjoule.model.fit.cells import Cell
from qjoule.model.labels import GroupLabel
from qjoule.trace.meta import Meta

#: Called with what the view has told since the last call.
Told = Callable[[tuple[Cell, ...]], object]
#: What was learned is told this often, in the stream's time: a crash loses no more.
TELL_NS = 600_000_000_000


def nobody(_cells: tuple[Cell, ...]) -> None:
    pass


@dataclass
class LiveMemory:
    """`used`: evidence of earlier traces; `told`: takes the evidence of this view."""

    used: Remembered
    meta: Meta
    told: Told = nobody
    _first: Sequence[GroupLabel] | None = None
    _mine: list[MemoryAdapter] = field(default_factory=list)
    _since_ns: int | None = None

    def of(self, labels: Sequence[GroupLabel]) -> MemoryAdapter:
        """The memory of an account whose groups have these labels.

        All groupings see the same windows, so only the accounts of the first tell about them.
        """
        if self._first is None:
            self._first = labels
        one = MemoryAdapter.of(self.used, labels, self.meta, "live", str(len(self._mine)))
        if labels is self._first:
            self._mine.append(one)
        else:
            one.tells = False
        return one

    def tell(self, now_ns: int, *, at_once: bool = False) -> None:
        """Passes on what was learned, if it is time. `now_ns`: of the stream."""
        if self._since_ns is None:
            self._since_ns = now_ns
        if at_once or now_ns - self._since_ns >= TELL_NS:
            self._since_ns = now_ns
            if cells := [cell for one in self._mine for cell in one.take()]:
                self.told(tuple(cells))
