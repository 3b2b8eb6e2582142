# SPDX-License-Identifier: Apache-2.0
"""Adds windows to a ledger, block by block: learn from the whole block, split it, close it.

Live and recorded windows take the same path. The open block can be inspected at any time: it is
then split as if it ended at that point.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from qjoule.model.arrays import Entries, Requests, WindowBatch
from qjoule.model.coarse import ends
from qjoule.model.coefficients import Coefficients, IdlePolicy
from qjoule.model.energy import I64, UPDATE_PERIOD_NS, Series
from qjoule.model.fit.learner import Learner
from qjoule.model.fit.rows import ClassOf, itself
from qjoule.model.ledger import Ledger
from qjoule.model.power_model import PowerModel
from qjoule.model.renumbering import Renumbering
from qjoule.model.slow import slow_of
from qjoule.model.span_sums import Roles, SpanSums
from qjoule.model.split import Split

#: Called for every batch that is closed, with its windows, the ledger, and each series' split.
Closed = Callable[[WindowBatch, Ledger, Sequence[Split]], None]

#: A block ends after this much time and this many windows, or when it has this many entries.
BLOCK_NS = 30_000_000_000
BLOCK_WINDOWS = 512
BLOCK_ENTRIES = 1 << 18


def windows(batch: WindowBatch) -> int:
    """Number of windows in a batch."""
    return len(batch.idle_ns)


def cut(batch: WindowBatch, first: int, last: int) -> WindowBatch:
    """Windows `first` to `last` - 1 of a batch, counted from the batch's own first window."""
    if first == 0 and last == windows(batch):
        return batch
    low, high = np.searchsorted(batch.entries.window, (first, last))
    entries = batch.entries.take(slice(low, high))
    return WindowBatch(
        batch.first + first,
        batch.energy.slice(first, last),
        batch.packages,
        batch.idle_ns[first:last],
        batch.lost_ns[first:last],
        replace(entries, window=entries.window - first),
        batch.active_ns[first:last],
        batch.core_ns[first:last],
        _cut_requests(batch.requests, first, last),
    )


def _cut_requests(requests: Requests | None, first: int, last: int) -> Requests | None:
    if requests is None:
        return None
    low, high = np.searchsorted(requests.window, (first, last))
    taken = requests.take(slice(low, high))
    return replace(taken, window=taken.window - first)


class Account:
    """A ledger that learns. With `refit` False, windows are split by the coefficients alone.

    `class_of` maps groups to classes; each class has one learned power factor. `roles` is given
    where sums over spans of time are needed, for requests that own no CPU time. `closed` is
    called for every batch of windows after its final split.
    """

    def __init__(
        self,
        series: tuple[Series, ...],
        packages: tuple[int, ...],
        coefficients: Coefficients,
        idle: IdlePolicy = "separate",
        period_ns: int = UPDATE_PERIOD_NS,
        *,
        class_of: ClassOf = itself,
        refit: bool = True,
        roles: Roles | None = None,
        closed: Closed | None = None,
    ) -> None:
        self._tell = closed
        self._class_of = class_of
        self._roles = roles
        self._targets: dict[int, int] = {}
        self._empty = Ledger(series, packages, coefficients, idle, period_ns, self._class)
        self._refit = refit and bool(series)
        self._slow = slow_of(series)
        self._learner = Learner(series, packages, coefficients, period_ns, self._class)
        self._closed = self._new()
        self._open: list[WindowBatch] = []
        self._open_ns = self._open_entries = self._open_windows = 0
        self._moves: list[tuple[int, int]] = []
        self._models: Mapping[str, PowerModel] | None = None  #: of the open block, if up to date

    def add(self, batch: WindowBatch) -> None:
        """Adds consecutive windows; closes the blocks that they fill."""
        if not self._refit and not self._slow:
            self._told(batch, self._closed.add(batch))
            return
        at = 0
        while at < windows(batch):
            end = self._block_end(batch, at)
            if end <= windows(batch):
                self._hold(cut(batch, at, end))
                self._close()
                at = end
            else:
                self._hold(cut(batch, at, windows(batch)))
                return

    def finish(self) -> Ledger:
        """Closes the open block and returns the ledger of all windows."""
        if self._open:
            self._close()
        self._closed.notes = dict(self._learner.notes)
        return self._closed

    def look(self) -> Ledger:
        """Returns what `finish` would return now, without changing the account."""
        out = self._closed.copy()
        out.notes = dict(self._learner.notes)
        if self._open:
            out.add_block([joined(self._open)], self.models())
        for source, target in self._moves:
            out.move(source, target)
        return out

    def split(self, batches: Sequence[WindowBatch]) -> Ledger:
        """Returns a ledger of `batches` alone, split by the current models."""
        out = self._new()
        out.notes = dict(self._learner.notes)
        if batches:
            out.add_block([joined(batches)], self.models())
        return out

    def models(self) -> Mapping[str, PowerModel]:
        """Returns the current model of each domain, including the evidence of the open block."""
        if not self._refit:
            return {}
        if not self._open:
            return self._learner.last
        if self._models is None:
            self._models = self._learner.learn([joined(self._open)], keep=False)
        return self._models

    def move(self, source: int, target: int) -> None:
        """Moves everything of group `source` to group `target`, now and in the open block."""
        self._closed.move(source, target)
        self._moves.append((source, target))
        self._targets[source] = target
        self._models = None

    def renumber(self, renumbering: Renumbering) -> None:
        """Renumbers the groups of closed and open windows."""
        self._closed.renumber(renumbering)
        moved = renumbering.after(self._moves)
        self._open = [moved.batch(batch) for batch in self._open]
        self._open_entries = sum(len(batch.entries.window) for batch in self._open)
        self._learner.renumber(renumbering)
        self._moves.clear()
        self._targets.clear()
        self._models = None

    def _new(self) -> Ledger:
        empty = self._empty
        out = Ledger(
            empty.series,
            empty.packages,
            empty.coefficients,
            empty.idle,
            empty.period_ns,
            self._class,
        )
        out.spans = SpanSums(self._roles) if self._roles else None
        return out

    def _class(self, groups: I64) -> I64:
        if self._targets:
            known = np.array(sorted(self._targets), np.int64)
            at = np.minimum(np.searchsorted(known, groups), len(known) - 1)
            targets = np.array([self._targets[source] for source in known.tolist()], np.int64)
            groups = np.where(known[at] == groups, targets[at], groups)
        return self._class_of(groups)

    def _block_end(self, batch: WindowBatch, first: int) -> int:
        """The window of the batch that the open block ends before; past the batch if none."""
        # Differences first: the times of a hostile trace could overflow when added up.
        ns = np.minimum(
            batch.energy.boundaries_ns[first + 1 :] - batch.energy.boundaries_ns[first], BLOCK_NS
        )
        ns = ns + self._open_ns
        last = len(batch.entries.window)
        upto = np.searchsorted(batch.entries.window, np.arange(first, windows(batch)), "right")
        begin = int(np.searchsorted(batch.entries.window, first)) if last else 0
        count = self._open_windows + 1 + np.arange(len(ns))
        full = ((ns >= BLOCK_NS) & (count >= BLOCK_WINDOWS)) | (
            self._open_entries + upto - begin >= BLOCK_ENTRIES
        )
        if self._slow:  # a block ends only where no slow counter is within a window of its own
            full &= ends(batch.energy)[first:]
        at = np.flatnonzero(full)
        return first + int(at[0]) + 1 if len(at) else windows(batch) + 1

    def _hold(self, batch: WindowBatch) -> None:
        self._models = None
        if windows(batch):
            self._open.append(batch)
            bounds = batch.energy.boundaries_ns
            self._open_ns = min(self._open_ns + int(bounds[-1]) - int(bounds[0]), BLOCK_NS)
            self._open_entries += len(batch.entries.window)
            self._open_windows += windows(batch)

    def _close(self) -> None:
        block = [joined(self._open)]
        models = self._learner.learn(block, keep=True) if self._refit else {}
        self._told(block[0], self._closed.add_block(block, models)[0])
        for source, target in self._moves:
            self._closed.move(source, target)
        self._moves.clear()
        self._open, self._models = [], None
        self._open_ns = self._open_entries = self._open_windows = 0

    def _told(self, batch: WindowBatch, splits: Sequence[Split]) -> None:
        if self._tell:
            self._tell(batch, self._closed, splits)


def joined(batches: Sequence[WindowBatch]) -> WindowBatch:
    """Joins consecutive batches, so that the way a trace was cut does not affect the result."""
    if len(batches) == 1:
        return batches[0]
    firsts = [batch.first for batch in batches]
    energies = [batch.energy for batch in batches]
    entries = [
        replace(batch.entries, window=batch.entries.window + batch.first - firsts[0])
        for batch in batches
    ]
    edges = [one.boundaries_ns[1:] for one in energies]

    def stacked(name: str) -> Any:
        return np.concatenate([getattr(batch, name) for batch in batches])

    def along(name: str) -> Any:
        return np.concatenate([getattr(one, name) for one in energies], axis=1)

    return WindowBatch(
        first=firsts[0],
        energy=replace(
            energies[0],
            boundaries_ns=np.concatenate([energies[0].boundaries_ns[:1], *edges]),
            energy_nj=along("energy_nj"),
            cause=along("cause"),
            half_width_ns=along("half_width_ns"),
        ),
        packages=batches[0].packages,
        idle_ns=stacked("idle_ns"),
        lost_ns=stacked("lost_ns"),
        entries=Entries(
            **{
                item.name: np.concatenate([getattr(one, item.name) for one in entries])
                for item in fields(Entries)
            }
        ),
        active_ns=stacked("active_ns"),
        core_ns=stacked("core_ns"),
        requests=_joined_requests(batches),
    )


def _joined_requests(batches: Sequence[WindowBatch]) -> Requests | None:
    some = [
        replace(one.requests, window=one.requests.window + one.first - batches[0].first)
        for one in batches
        if one.requests is not None
    ]
    if not some:
        return None
    return Requests(
        *(np.concatenate([getattr(one, item.name) for one in some]) for item in fields(Requests))
    )
