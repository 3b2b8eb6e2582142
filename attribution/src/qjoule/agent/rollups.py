# SPDX-License-Identifier: Apache-2.0
"""Adds intervals up to minutes, and has a thread write them: a slow disk never delays the engine.

An interval belongs to the minute, by the wall clock, in which it ends. After a clock's step a
minute may have rows from before and after it; their sums are true.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from qjoule.agent.store import Retention, Store
from qjoule.agent.store_rows import MAX_ROWS, Minute
from qjoule.metrics.counters import Counters
from qjoule.metrics.exposition import Family, Sample, plain
from qjoule.metrics.interval import Interval, Query, Tagged
from qjoule.trace.meta import Server

_MINUTE_S = 60
#: Minutes that wait for a slow disk; further ones are dropped and counted.
MAX_WAITING = 5
_END_S = 10.0


#: The table, a row's values, and since when they hold (Unix time).
_Described = tuple[str, tuple[str, ...], int]
_Batch = tuple[Minute, str, list[_Described]]


class Rollups:
    """Keeps minutes in `store`. Call `start` once this process may make threads."""

    def __init__(self, store: Store, say: Callable[[str], object]) -> None:
        self.path, self._store, self._say = store.path, store, say
        self._minute: Minute | None = None
        self._main = ""
        self._dropped = self._written = self._samples = 0
        self._waiting: queue.Queue[_Batch | None] = queue.Queue(MAX_WAITING)
        self._known: dict[tuple[str, ...], tuple[str, ...]] = {}  #: what was described, by key
        self._news: list[_Described] = []
        self._thread = threading.Thread(target=self._write, name="qjoule-store", daemon=True)
        self._said = ""

    def start(self) -> None:
        self._thread.start()

    def keep(self, kept: Retention) -> None:
        """Other bounds from the next minute on."""
        self._store.kept = kept

    def take(self, found: Interval, wall_s: float) -> None:
        start_s = int(wall_s) // _MINUTE_S * _MINUTE_S
        if self._minute is not None and self._minute.start_s != start_s:
            self._pass_on()
        if self._minute is None:
            self._minute = Minute(start_s)
        self._main = found.main or self._main
        self._minute.add(found)

    def take_tagged(self, found: Mapping[Tagged, Query], counters: Counters) -> None:
        """Of the interval that was just taken: its statements by a tag."""
        if self._minute is not None:
            folded: dict[Tagged, Query] = {}
            for key, query in found.items():
                own = key._replace(shape=counters.series_of(key.shape))
                folded.setdefault(own, Query()).add(query)
            self._minute.add_tagged(folded)

    def take_samples(self, rows: list[dict[str, Any]]) -> None:
        """Queries that were drawn in the interval that was just taken."""
        if self._minute is not None:
            self._minute.samples += rows
            self._samples += len(rows)

    def describe(self, counters: Counters, servers: Sequence[Server], wall_s: float) -> None:
        """What is known of the shapes and servers now."""
        now_s = int(wall_s)
        for shape, one in counters.queries.items():
            if one.text:
                ids = " ".join(f"{other.name}={other.id}" for other in one.ids if other.id)
                key = (shape.fingerprint, shape.server, shape.database)
                self._tell("shapes", key, (*key, one.text, one.attach_mode, ids), now_s)
        for its in servers:
            values = (its.name, its.kind, its.version, its.exe, its.attach_mode)
            self._tell("servers", (its.name,), values, now_s)

    def families(self) -> Iterator[Family]:
        store = self._store
        yield plain("qjoule_store_bytes", "Size of the rollups.", store.bytes, "bytes")
        for name, about, value in (
            ("qjoule_store_minutes", "Minutes that were written.", self._written),
            ("qjoule_store_failed_writes", "Minutes that could not be written.", store.failures),
            (
                "qjoule_store_dropped_minutes",
                "Minutes that the disk was too slow for.",
                self._dropped,
            ),
            ("qjoule_store_samples", "Queries that were drawn for the sample.", self._samples),
            (
                "qjoule_store_dropped_samples",
                "Of these, beyond what an hour's file has room for.",
                store.dropped_samples,
            ),
            ("qjoule_store_damaged_files", "Files that were put aside.", store.damaged),
            (
                "qjoule_store_moved_minutes",
                "Minutes of an hour that was closed, which count in a later one.",
                store.moved,
            ),
        ):
            yield Family(name, "counter", about, samples=[Sample((), str(value))])

    def close(self) -> None:
        """Writes what is left, if the disk takes it in time."""
        self._pass_on()
        if self._thread.is_alive():
            try:
                self._waiting.put(None, timeout=_END_S)
                self._thread.join(_END_S)
            except queue.Full:
                self._say("the store's disk does not answer: the last minutes are lost")
                return
        self._store.close()

    def _pass_on(self) -> None:
        minute, self._minute = self._minute, None
        if minute is not None:
            try:
                self._waiting.put_nowait((minute, self._main, self._news))
                self._news = []
            except queue.Full:
                self._dropped += 1

    def _tell(self, table: str, key: tuple[str, ...], values: tuple[str, ...], now_s: int) -> None:
        if self._known.get(key) != values:
            if len(self._known) >= MAX_ROWS:
                self._known.clear()
            self._known[key] = values
            self._news = [*self._news[-MAX_ROWS:], (table, values, now_s)]

    def _write(self) -> None:
        """The thread."""
        while (batch := self._waiting.get()) is not None:
            minute, main, news = batch
            for table, values, now_s in news:
                self._store.tables[table].tell(values, now_s)
            self._written += self._store.write(minute, main)
            if self._store.trouble != self._said:  # once, not every minute
                self._said = self._store.trouble
                self._say(f"store: {self._said}" if self._said else "store: writes again")
