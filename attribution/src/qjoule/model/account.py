# SPDX-License-Identifier: Apache-2.0
"""Adds windows to a ledger, block by block: learn from the whole block, split it, close it.

Live and recorded windows take the same path. The open block can be inspected at any time: it is
then split as if it ended at that point.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from qjoule.model.arrays import Renumbering, WindowBatch
from qjoule.model.batches import BLOCK_ENTRIES, Cells, OpenBlock, cut, joined, windows
from qjoule.model.coefficients import Coefficients, IdlePolicy
from qjoule.model.energy import I64, UPDATE_PERIOD_NS, Series
from qjoule.model.explain import RowWatch
from qjoule.model.fit.learner import Learner
from qjoule.model.fit.remembered import Memory
from qjoule.model.fit.rows import ClassOf, itself
from qjoule.model.idle_table import IdleTable
from qjoule.model.ledger import Ledger
from qjoule.model.per_core import CoreCounters, CoreWindows
from qjoule.model.power_model import PowerModel
from qjoule.model.slow import slow_of
from qjoule.model.span_sums import Roles, SpanSums
from qjoule.model.split import Split
from qjoule.model.zones import left_out

#: Called for every batch that is closed, with its windows, the ledger, and each series' split.
Closed = Callable[[WindowBatch, Ledger, Sequence[Split]], None]

_ROOM = BLOCK_ENTRIES * 9 // 8  #: a block's last window may exceed that number


@dataclass(frozen=True)
class AccountSettings:
    """What all accounts of one recording or stream share.

    Attributes:
        period_ns: how often the energy counters are updated; 0 if they are computed when read.
        refit: learn power factors from the windows; otherwise they are split by the coefficients.
        table: the machine's idle states, if known.
        refresh_ns: how long a model of the open block is reused when it is inspected, at first at
            most half of the time that it was learned from; 0: it is learned again each time.
        cores: energy counters of single cores, whose windows come by `Account.add_cores`.
        by_block: add windows block by block even without learning, so that no sum depends on how
            they were divided into batches.
    """

    series: tuple[Series, ...]
    packages: tuple[int, ...]
    coefficients: Coefficients
    idle: IdlePolicy = "separate"
    period_ns: int = UPDATE_PERIOD_NS
    refit: bool = True
    table: IdleTable | None = None
    refresh_ns: int = 0
    cores: CoreCounters | None = None
    by_block: bool = False


class Account:
    """A ledger that learns.

    `class_of` maps groups to classes; each class has one learned power factor. `roles` is given
    where sums over spans of time are needed, for requests that own no CPU time. `closed` is called
    for every batch of windows after its final split. `memory`: gives evidence of earlier traces and
    receives that of this one. `watch` records the sources of one row's joules.
    """

    def __init__(
        self,
        settings: AccountSettings,
        *,
        class_of: ClassOf = itself,
        roles: Roles | None = None,
        closed: Closed | None = None,
        memory: Memory | None = None,
        watch: RowWatch | None = None,
    ) -> None:
        series, packages = settings.series, settings.packages
        coefficients, period_ns = settings.coefficients, settings.period_ns
        self._on_closed = closed
        self._class_of = class_of
        self._roles = roles
        self._targets: dict[int, int] = {}
        self._empty = Ledger(series, packages, coefficients, settings.idle, period_ns, self._class)
        self._refit = settings.refit and bool(series)
        self._slow = slow_of(series)
        self._by_block = self._refit or bool(self._slow) or settings.by_block
        self._learner = Learner(
            *(series, packages, coefficients, period_ns, self._class),
            memory=memory,
            table=settings.table,
            cores=settings.cores,
        )
        self._cores = CoreWindows()
        self._left_out: dict[str, str] = {}  #: wrong domains of closed blocks: why
        self._closed = self._new()
        self._closed.watch = watch
        self._open, self._cells = OpenBlock(_ROOM), Cells(slow=bool(self._slow))
        self._moves: list[tuple[int, int]] = []
        self._latest: tuple[WindowBatch, Ledger] | None = None  #: added, if not by block
        self._models: Mapping[str, PowerModel] | None = None  #: of the open block, if up to date
        self._refresh_ns = settings.refresh_ns
        self._models_ns = 0  #: end of the last window that they were learned from
        self._begin_ns: int | None = None  #: of the first window

    def add(self, batch: WindowBatch) -> None:
        """Adds consecutive windows; closes the blocks that they fill."""
        if not self._by_block:
            part, (splits,) = self._closed.part([batch], {})
            self._closed.merge(part)
            self._latest = batch, part
            self._notify(batch, splits)
            return
        block_ends = self._cells.block_ends(batch)
        begin = 0
        while begin < windows(batch):
            end = block_ends.after(begin, self._open.entries)
            self._hold(cut(batch, begin, windows(batch) if end is None else end))
            if end is None:
                return
            self._close()
            begin = end

    def add_cores(self, batch: WindowBatch) -> None:
        """Adds windows of single cores, before all windows of packages that end later."""
        self._cores.add(batch)

    def finish(self) -> Ledger:
        """Closes the open block and returns the ledger of all windows."""
        if self._open.windows:
            self._close()
        self._closed.notes = dict(self._learner.notes)
        self._closed.core_blocks = self._learner.core_blocks
        return self._closed

    def snapshot(self) -> Ledger:
        """Returns what `finish` would return now, without changing the account."""
        ledger = self._closed.copy()
        ledger.notes = dict(self._learner.notes)
        block = self._open_block()
        ledger.left_out = self._wrong(block)
        if block:
            ledger.add_block(block, self.models())
            self._add_misfits(ledger)
        for source, target in self._moves:
            ledger.move(source, target)
        return ledger

    def _open_block(self) -> list[WindowBatch]:
        """The open block as one batch, or none."""
        return [self._open.joined()] if self._open.windows else []

    def _wrong(self, block: Sequence[WindowBatch]) -> dict[str, str]:
        """Domains whose counters are wrong according to a closed block or this one, with the
        reason."""
        invalid = left_out(block, self._empty.series) if self._refit else {}
        return invalid | self._left_out

    def _add_misfits(self, ledger: Ledger) -> None:
        """Adds the notes on misfits of the open block's models, as closing it would."""
        for domain, model in self.models().items():
            if model.first == self._open.first:  # the model is of this block
                for note in model.misfits(domain):
                    ledger.notes[note] = ledger.notes.get(note, 0) + 1

    def split(self, batches: Sequence[WindowBatch]) -> Ledger:
        """Returns a ledger of `batches` alone, split by the current models."""
        ledger = self._new()
        if (latest := self._take_latest(batches)) is not None:
            latest.spans, ledger = ledger.spans, latest
        elif batches:
            ledger, _ = ledger.part([joined(batches)], self.models())
        ledger.notes = dict(self._learner.notes)
        ledger.left_out = self._wrong(self._open_block())
        return ledger

    def _take_latest(self, batches: Sequence[WindowBatch]) -> Ledger | None:
        """The ledger that `add` made of `batches`, once: the caller may change it.

        Where it has requests, its sums over spans are part of the account's.
        """
        latest, self._latest = self._latest, None
        if latest is None or len(batches) != 1 or batches[0] is not latest[0]:
            return None
        requests = latest[0].requests
        return None if requests is not None and len(requests.group) else latest[1]

    def models(self) -> Mapping[str, PowerModel]:
        """Returns the current model of each domain, including the evidence of the open block."""
        if not self._refit:
            return {}
        if not self._open.windows:
            return self._learner.last
        if self._models is None:
            block = self._open.joined()
            self._models = self._learn(block, keep=False)
            self._models_ns = int(block.energy.boundaries_ns[-1])
        return self._models

    def move(self, source: int, target: int) -> None:
        """Moves everything of group `source` to group `target`, now and in the open block."""
        self._closed.move(source, target)
        self._moves.append((source, target))
        self._targets[source] = target
        if not self._refresh_ns:
            self._models = None

    def renumber(self, renumbering: Renumbering) -> None:
        """Renumbers the groups of closed and open windows."""
        self._closed.renumber(renumbering)
        moved = renumbering.after(self._moves)
        if self._open.windows:
            block, self._open = self._open.joined(), OpenBlock(_ROOM)
            self._open.add(moved.batch(block))
        self._learner.renumber(renumbering)
        self._cores.renumber(moved)
        self._moves.clear()
        self._targets.clear()
        if self._models is not None and self._refresh_ns:
            self._models = {
                name: model.renumbered(renumbering) for name, model in self._models.items()
            }
        else:
            self._models = None

    def _new(self) -> Ledger:
        ledger = self._empty.empty()
        ledger.spans = SpanSums(self._roles) if self._roles else None
        return ledger

    def _class(self, groups: I64) -> I64:
        if self._targets:
            sources = np.array(sorted(self._targets), np.int64)
            position = np.minimum(np.searchsorted(sources, groups), len(sources) - 1)
            targets = np.array([self._targets[source] for source in sources.tolist()], np.int64)
            groups = np.where(sources[position] == groups, targets[position], groups)
        return self._class_of(groups)

    def _hold(self, batch: WindowBatch) -> None:
        if windows(batch):
            self._open.add(batch)
            bounds = batch.energy.boundaries_ns
            if self._begin_ns is None:
                self._begin_ns = int(bounds[0])
            learned_from_ns = self._models_ns - self._begin_ns
            if int(bounds[-1]) - self._models_ns >= min(self._refresh_ns, learned_from_ns // 2):
                self._models = None

    def _close(self) -> None:
        block = [self._open.joined()]
        self._closed.left_out = self._left_out = self._wrong(block)
        models = self._learn(block[0], keep=True) if self._refit else {}
        self._notify(block[0], self._closed.add_block(block, models)[0])
        for source, target in self._moves:
            self._closed.move(source, target)
        self._moves.clear()
        self._open, self._models = OpenBlock(_ROOM), None
        if self._refresh_ns and self._learner.last:
            self._models = self._learner.last
            self._models_ns = int(block[0].energy.boundaries_ns[-1])

    def _learn(self, block: WindowBatch, *, keep: bool) -> Mapping[str, PowerModel]:
        end_ns = int(block.energy.boundaries_ns[-1])
        models = self._learner.learn([block], keep=keep, of_cores=self._cores.until(end_ns))
        if keep:
            self._cores.drop(end_ns)
        return models

    def _notify(self, batch: WindowBatch, splits: Sequence[Split]) -> None:
        if self._on_closed:
            self._on_closed(batch, self._closed, splits)
