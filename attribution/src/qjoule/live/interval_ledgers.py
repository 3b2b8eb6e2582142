# SPDX-License-Identifier: Apache-2.0
"""Two ledgers side by side: one for the current interval, one for the total since the last
reset."""

from __future__ import annotations

from collections.abc import Callable

from qjoule.model.account import Account
from qjoule.model.arrays import WindowBatch
from qjoule.model.ledger import Ledger
from qjoule.model.renumbering import Renumbering
from qjoule.model.spans import Learned, apply_regression_costs, learn


class IntervalLedgers:
    """`new_account` makes an empty account of the session's series, packages and policy.

    Both ledgers, and the interval's open windows, are split by what the account has learned so far.
    """

    def __init__(
        self, new_account: Callable[[], Account], counted: Callable[[], bool] = lambda: True
    ) -> None:
        """`counted`: whether any requests are only counted, so that their costs are learned."""
        self._new_account, self._counted = new_account, counted
        self._account = new_account()
        self._batches: list[WindowBatch] = []  #: of the current interval
        self._moves: list[tuple[int, int]] = []
        self._total: Ledger | None = None
        self._interval: Ledger | None = None
        self._learned: dict[str, Learned] = {}  #: costs of requests, learned from the total

    @property
    def total(self) -> Ledger:
        if self._total is None:
            self._total = self._account.snapshot()
            self._learned = learn(self._total)
            apply_regression_costs(self._total, self._learned)
        return self._total

    @property
    def interval(self) -> Ledger:
        if self._interval is None:
            if self._counted():
                _ = self.total  # the costs of requests are learned from the whole total
            self._interval = self._account.split(self._batches)
            for source, target in self._moves:
                self._interval.move(source, target)
            apply_regression_costs(self._interval, self._learned)
        return self._interval

    def add(self, batch: WindowBatch) -> None:
        self._batches.append(batch)
        self.catch_up(batch)

    def catch_up(self, batch: WindowBatch) -> None:
        """Adds windows that earlier intervals have already shown."""
        self._account.add(batch)
        self._total = self._interval = None

    def move(self, source: int, target: int) -> None:
        """Moves everything of group `source` to group `target`."""
        self._account.move(source, target)
        self._moves.append((source, target))
        self._total = self._interval = None

    def renumber(self, renumbering: Renumbering) -> None:
        """Renumbers the groups in all sums."""
        self._account.renumber(renumbering)
        moved = renumbering.after(self._moves)
        self._batches = [moved.batch(batch) for batch in self._batches]
        self._moves.clear()
        self._total = self._interval = None

    def next_interval(self) -> None:
        self._batches, self._interval = [], None
        self._moves.clear()

    def reset(self) -> None:
        self._account, self._total = self._new_account(), None
        self.next_interval()
