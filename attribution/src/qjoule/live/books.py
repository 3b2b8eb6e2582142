"""Two ledgers side by side: the current interval's, and the total since the last reset."""

from __future__ import annotations

from collections.abc import Callable

from qjoule.model.arrays import WindowBatch
from qjoule.model.ledger import Ledger


class Books:
    """`new_ledger` makes an empty ledger of the session's series, packages and policy."""

    def __init__(self, new_ledger: Callable[[], Ledger]) -> None:
        self._new_ledger = new_ledger
        self.interval = new_ledger()
        self.total = new_ledger()

    def add(self, batch: WindowBatch) -> None:
        self.interval.add(batch)
        self.total.add(batch)

    def catch_up(self, batch: WindowBatch) -> None:
        """Adds what earlier intervals have shown already."""
        self.total.add(batch)

    def next_interval(self) -> None:
        self.interval = self._new_ledger()

    def reset(self) -> None:
        self.interval = self._new_ledger()
        self.total = self._new_ledger()
