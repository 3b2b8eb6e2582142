# SPDX-License-Identifier: Apache-2.0
"""Lets one attribution use a machine's memory: recalls earlier evidence for its blocks, and
collects its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from qjoule.engine.class_keys import ClassKeys, hashed
from qjoule.model.arrays import F64
from qjoule.model.coefficients_used import Remembered
from qjoule.model.energy import I64
from qjoule.model.fit.cells import U64, Cell, Conditions
from qjoule.model.fit.evidence import Evidence, Nuisance
from qjoule.model.fit.remembered import (
    BlockEvidence,
    EvidenceQuery,
    Now,
    Recalled,
    by_key,
    combined_evidence,
    nothing,
)
from qjoule.model.labels import GroupLabel
from qjoule.trace.meta import Meta

#: Blocks in a cell: about the weight of the blocks that a trace itself uses.
BLOCKS = 4
#: Shapes in a cell; beyond that, those with the least evidence are integrated out.
MOST_SHAPES = 96
_TIME_BITS = 28  #: of a cell's id: its first block's time, in minutes since 1970
_MOST_CACHED = 64


@dataclass
class _OpenCell:
    """Sums evidence of blocks until the cell that they form is full."""

    names: tuple[str, ...]
    keys: list[int] = field(default_factory=list)
    releases: list[int] = field(default_factory=list)
    fresh: set[int] = field(default_factory=set)
    precision: F64 = field(default_factory=lambda: np.zeros((0, 0)))
    moment: F64 = field(default_factory=lambda: np.zeros(0))
    value: F64 = field(default_factory=lambda: np.zeros(0))
    spread: float = 1.0
    span_ns: tuple[int, int] = (0, 0)  #: end times of the first and last block
    blocks: int = 0
    refused: int = 0  #: blocks that contradicted earlier evidence

    def add(self, keys: U64, releases: U64, block: BlockEvidence) -> None:
        """Adds a block's evidence. `keys`: of its classes, 0 for a class without one."""
        f = len(self.names)
        keyed = np.flatnonzero(keys)
        _, first = np.unique(keys[keyed], return_index=True)
        distinct = np.sort(keyed[first])
        gone = np.setdiff1d(np.arange(len(keys)), distinct)
        evidence, _ = block.evidence.marginal(
            np.append(np.arange(f), f + distinct), Nuisance(f + gone, block.spread**-2.0, 1.0)
        )
        for key, release in zip(keys[distinct].tolist(), releases[distinct].tolist(), strict=True):
            if key not in self.keys:
                self.keys.append(key)
                self.releases.append(release)
        size = f + len(self.keys)
        precision, moment = np.zeros((size, size)), np.zeros(size)
        before = len(self.moment)
        precision[:before, :before], moment[:before] = self.precision, self.moment
        at = [*range(f), *(f + self.keys.index(key) for key in keys[distinct].tolist())]
        precision[np.ix_(at, at)] += evidence.precision
        moment[at] += evidence.moment
        self.precision, self.moment = precision, moment
        self.value, self.spread = block.value, block.spread
        self.span_ns = (self.span_ns[0] if self.blocks else block.end_ns, block.end_ns)
        self.blocks += 1

    def to_cell(self, ident: int, source: int, domain: str, when_s: float, on: Conditions) -> Cell:
        """Returns the evidence so far as a cell."""
        f, keys = len(self.names), np.array(self.keys, np.uint64)
        diagonal = np.diag(self.precision)
        used = np.flatnonzero(diagonal[:f] > 0)
        best = np.argsort(-diagonal[f:], kind="stable")[:MOST_SHAPES]
        shapes = best[np.argsort(keys[best])]
        stays = np.append(used, f + shapes).astype(np.int64)
        gone = np.setdiff1d(np.arange(f, f + len(keys)), f + shapes)
        whole = Evidence(self.precision, self.moment)
        stored, _ = whole.marginal(stays, Nuisance(gone, self.spread**-2.0, 1.0))
        n = len(used)
        empty = np.zeros(0)
        bare = Cell(
            source,
            domain,
            when_s,
            on,
            tuple(self.names[i] for i in used),
            self.value[used].astype(np.float32).astype(np.float64),
            keys[shapes],
            np.array(self.releases, np.uint64)[shapes],
            np.isin(keys[shapes], np.array(sorted(self.fresh), np.uint64)),
            *(empty, empty, empty, empty),
            float(np.float32(self.spread)),
            np.array([ident], np.uint64),
            self.refused == self.blocks,
        )
        parts = (stored.precision[:n, :n], stored.precision[n:, :n], stored.precision[n:, n:])
        return bare.holding(*parts, stored.moment).stored()


class MemoryAdapter:
    """A `Memory` for one attribution: `cells` of earlier traces, and new cells of this one.

    `source`: id of this trace or live view, whose own cells are not recalled. `offset_ns`: added to
    its clock gives the time since 1970; None if unknown: then no evidence is collected.
    """

    def __init__(
        self,
        cells: Sequence[Cell],
        keys: ClassKeys,
        source: int,
        now: Now,
        offset_ns: int | None,
    ) -> None:
        self._cells = tuple(cell for cell in cells if cell.source != source)
        self._keys, self._source, self._now, self._offset_ns = keys, source, now, offset_ns
        self.collects = True  #: collects evidence of this attribution
        self._open: dict[str, _OpenCell] = {}
        self._count: dict[str, int] = {}
        self._done: list[Cell] = []
        self._void: set[int] = set()
        self._refused: set[str] = set()
        self._cache: dict[tuple[object, ...], Recalled] = {}

    @staticmethod
    def of(used: Remembered, labels: Sequence[GroupLabel], meta: Meta, *more: str) -> MemoryAdapter:
        """Makes the memory of one attribution. `labels`: of its groups; `more`: distinguishes
        sources of one trace."""
        begin_ns, offset_ns = meta.begin_ns, meta.realtime_offset_ns
        when_s = (begin_ns or 0) * 1e-9 + (offset_ns or 0) * 1e-9
        has_clock = begin_ns is not None and offset_ns is not None and when_s > 0
        return MemoryAdapter(
            used.cells,
            ClassKeys.of(labels, meta.servers),
            hashed(meta.host, meta.cpu, str(begin_ns), str(offset_ns), *more),
            Now(max(when_s, 0.0), used.conditions),
            offset_ns if has_clock else None,
        )

    def recall(
        self, domain: str, names: Sequence[str], classes: I64, widened: float = 1.0
    ) -> Recalled:
        keys, releases = self._keys.of_classes(classes)
        if not self._cells:
            return nothing(len(names), len(classes))
        keys[np.isin(keys, np.array(sorted(self._void), np.uint64))] = 0
        now = self._now._replace(widened=widened)
        cache_key = (domain, widened, tuple(names), keys.tobytes(), releases.tobytes())
        if cache_key not in self._cache:
            if len(self._cache) >= _MOST_CACHED:
                self._cache.clear()

            def of_keys(chosen: U64, on: U64) -> Evidence:
                wanted = EvidenceQuery(domain, tuple(names), chosen, on)
                return combined_evidence(self._cells, wanted, now)

            self._cache[cache_key] = by_key(of_keys, len(names), keys, releases)
        return self._cache[cache_key]

    def refused(self, domain: str, *, at_once: bool = False) -> None:
        self._refused.add(domain)
        if at_once and domain in self._open:
            self._close(domain)

    def changed(self, classes: I64) -> list[str]:
        keys, _ = self._keys.of_classes(classes)
        self._void.update(key for key in keys.tolist() if key)
        return [self._keys.name(int(number)) for number in classes]

    def learned(
        self, domain: str, names: Sequence[str], classes: I64, block: BlockEvidence
    ) -> None:
        if self._offset_ns is None or not self.collects:
            return
        cell = self._open.get(domain)
        if cell is not None and cell.names != tuple(names):
            self._close(domain)
            cell = None
        if cell is None:
            cell = self._open[domain] = _OpenCell(tuple(names))
        cell.fresh |= self._void
        cell.refused += domain in self._refused
        self._refused.discard(domain)
        cell.add(*self._keys.of_classes(classes), block)
        if cell.blocks >= BLOCKS:
            self._close(domain)

    def take(self) -> tuple[Cell, ...]:
        """Returns the evidence collected since the last call. A cell that was not full is returned
        again, under the same id, once it has grown."""
        done, self._done = self._done, []
        return (*done, *(self._cell(domain) for domain in sorted(self._open)))

    def _close(self, domain: str) -> None:
        self._done.append(self._cell(domain))
        del self._open[domain]
        self._count[domain] = self._count.get(domain, 0) + 1

    def _cell(self, domain: str) -> Cell:
        cell, number = self._open[domain], self._count.get(domain, 0)
        begin_s, when_s = ((ns + (self._offset_ns or 0)) * 1e-9 for ns in cell.span_ns)
        tail = hashed(str(self._source), domain, str(number)) >> _TIME_BITS
        ident = (int(begin_s) // 60 << 64 - _TIME_BITS) | tail
        return cell.to_cell(ident, self._source, domain, when_s, self._now.conditions)


#: Called with the evidence that the view has collected since the last call.
OnLearned = Callable[[tuple[Cell, ...]], object]
#: Period, in the stream's time, at which evidence is passed on: a crash loses no more.
PUBLISH_NS = 600_000_000_000


def discard_evidence(_cells: tuple[Cell, ...]) -> None:
    pass


@dataclass
class LiveMemory:
    """Memory of a live view. `used`: earlier evidence; `on_learned`: receives the view's own."""

    used: Remembered
    meta: Meta
    on_learned: OnLearned = discard_evidence
    _first: Sequence[GroupLabel] | None = None
    _adapters: list[MemoryAdapter] = field(default_factory=list)
    _since_ns: int | None = None

    def of(self, labels: Sequence[GroupLabel]) -> MemoryAdapter:
        """Returns the memory of an account whose groups have these labels.

        All groupings see the same windows, so evidence is collected from the first one only.
        """
        if self._first is None:
            self._first = labels
        adapter = MemoryAdapter.of(self.used, labels, self.meta, "live", str(len(self._adapters)))
        if labels is self._first:
            self._adapters.append(adapter)
        else:
            adapter.collects = False
        return adapter

    def publish_evidence(self, now_ns: int, *, at_once: bool = False) -> None:
        """Passes on new evidence if the period is over. `now_ns`: the stream's time."""
        if self._since_ns is None:
            self._since_ns = now_ns
        if at_once or now_ns - self._since_ns >= PUBLISH_NS:
            self._since_ns = now_ns
            if cells := [cell for adapter in self._adapters for cell in adapter.take()]:
                self.on_learned(tuple(cells))
