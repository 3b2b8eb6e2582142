# SPDX-License-Identifier: Apache-2.0
"""Energies and samples of rows, added up over the last minute (the live view) or over each minute
(the agent's profiles).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from qjoule.engine.stacks import Name, RecentStacks, RowStacks
from qjoule.live.sampled_stacks import NO_ROW, StackCounts, Stacks
from qjoule.model.labels import Identity
from qjoule.model.result import Attribution, Row

MOST_ROWS = 4_096  #: that have energy or samples in a part
HALF_S, MINUTE_S = 30.0, 60.0
#: Why samples are lost.
NO_ROOM = "the kernel side had no room for them"
TOO_MANY = "more came at once than are taken"
ROWS_FULL = f"their statements are beyond the {MOST_ROWS:,} that are kept"


@dataclass
class _Energy:
    """Energy and CPU time of one row within a part."""

    row: Row  #: as it was last
    energy_nj: int = 0
    low_nj: float = 0.0
    high_nj: float = 0.0
    cpu_ns: int = 0

    def add(self, row: Row) -> None:
        self.row = row
        self.energy_nj += row.energy_nj
        self.low_nj += row.energy_nj_ci95[0]
        self.high_nj += row.energy_nj_ci95[1]
        self.cpu_ns += row.cpu_ns

    @property
    def summed(self) -> Row:
        ends_nj = self.low_nj, self.high_nj
        return replace(
            self.row, energy_nj=self.energy_nj, energy_nj_ci95=ends_nj, cpu_ns=self.cpu_ns
        )


@dataclass
class _Part:
    """Whole intervals that follow each other: at most half a minute or a minute, or one longer
    interval.
    """

    seconds: float = 0.0
    losses: Counter[str] = field(default_factory=Counter)
    unknown: int = 0  #: samples of no known row
    left_out_nj: int = 0  #: of rows beyond `MOST_ROWS`
    energies: dict[Identity, _Energy] = field(default_factory=dict)
    stacks: StackCounts[Identity] = field(default_factory=StackCounts)

    def add(self, interval: Attribution, stacks: Stacks, dropped: int) -> None:
        """`dropped`: samples that were too many."""
        self.seconds += interval.trace.duration_s
        for row in interval.tabled:
            key = row.identity
            counts = stacks.get(key, Counter())
            if key in self.energies or len(self.energies) < MOST_ROWS:
                self.energies.setdefault(key, _Energy(row)).add(row)
                self.stacks.add_all(key, counts)
            else:
                self.losses[ROWS_FULL] += counts.total()
                self.left_out_nj += row.energy_nj
        self.unknown += stacks.get(NO_ROW, Counter()).total()
        self.losses[NO_ROOM] += interval.trace.loss.get("stack", 0)
        self.losses[TOO_MANY] += dropped


class LastMinute:
    """Adds up rows' energies and samples over the last 30 to 60 seconds. An interval of 30 seconds
    or more is shown alone until those after it have 30. Sums are kept in halves, so memory does not
    grow with the number of intervals."""

    def __init__(self, missing: Callable[[], tuple[str, ...]] = tuple) -> None:
        self._missing = missing
        self._by = ""
        self._halves = [_Part()]

    def reset(self) -> None:
        self._halves = [_Part()]

    def add(self, by: str, interval: Attribution, stacks: Stacks, dropped: int = 0) -> RecentStacks:
        """Adds an interval whose rows are grouped by `by`; returns the sums so far. `dropped`:
        samples that were too many."""
        if by != self._by:
            self._by = by
            self.reset()
        if interval.trace.duration_s >= HALF_S:
            self.reset()
        elif self._halves[-1].seconds + interval.trace.duration_s > HALF_S:
            self._halves = [self._halves[-1], _Part()]
        self._halves[-1].add(interval, stacks, dropped)
        return _combined(self._halves, self._missing(), sampled=True)


class WholeMinutes:
    """Adds up rows' energies and samples by minute. Each minute has whole intervals, so it is
    longer by less than an interval. It has all rows that have energy."""

    def __init__(self, missing: Callable[[], tuple[str, ...]] = tuple) -> None:
        self._missing = missing
        self._minute = _Part()

    def reset(self) -> None:
        self._minute = _Part()

    def add(
        self, by: str, interval: Attribution, stacks: Stacks, dropped: int = 0
    ) -> RecentStacks | None:
        """Like `LastMinute.add`, but for fixed keys. Returns None until the minute has ended."""
        del by
        self._minute.add(interval, stacks, dropped)
        if self._minute.seconds < MINUTE_S:
            return None
        ended = self._minute
        self.reset()
        return _combined([ended], self._missing(), sampled=False)


@dataclass(frozen=True)
class StackOptions:
    """`name` names a frame by its module and its offset, or raises `NotYetNamed`; `missing` returns
    `RecentStacks.missing`; `history`: the period that snapshots cover."""

    name: Name
    missing: Callable[[], tuple[str, ...]] = tuple
    history: type[LastMinute] | type[WholeMinutes] = LastMinute


def _combined(parts: Sequence[_Part], missing: tuple[str, ...], *, sampled: bool) -> RecentStacks:
    """`sampled`: leaves out rows without samples."""
    stacks: StackCounts[Identity] = StackCounts()
    for part in parts:
        for key, counts in part.stacks.rows.items():
            stacks.add_all(key, counts)
    energies: dict[Identity, _Energy] = {}
    for part in parts:
        for key, energy in part.energies.items():
            if not sampled or key in stacks.rows:
                energies.setdefault(key, _Energy(energy.row)).add(energy.summed)
    return RecentStacks(
        {
            key: RowStacks(energy.summed, stacks.rows.get(key, Counter()))
            for key, energy in energies.items()
        },
        sum(part.seconds for part in parts),
        sum((part.losses for part in parts), Counter()),
        missing,
        sum(part.unknown for part in parts),
        sum(part.left_out_nj for part in parts),
    )
