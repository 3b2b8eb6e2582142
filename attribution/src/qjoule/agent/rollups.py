# SPDX-License-Identifier: Apache-2.0
"""Adds intervals up to minutes, and has a thread pass them on: a slow disk never delays the engine.

Each minute waits in a file of its own. The first one, and then five at a time, are added to the
store's files by its writer (`commands.agent_writer`), and the last ones when the agent ends.

An interval belongs to the minute, by the wall clock, in which it ends. After a clock's step a
minute may have rows from before and after it; their sums are true.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from qjoule.agent.journal import Described, Journal, Outcome, Retention
from qjoule.agent.minute import Minute
from qjoule.metrics.counters import Counters
from qjoule.metrics.exposition import Family, Sample, unlabelled_gauge
from qjoule.metrics.interval import Interval, Query, Tagged
from qjoule.trace.meta import Server

_MINUTE_S = 60
#: Minutes that wait for a slow disk; further ones are dropped and counted.
MAX_WAITING = 5
#: Minutes that are written together: starting the writer takes a third of a second of CPU time.
TOGETHER = 5
#: Most descriptions of shapes and servers that wait.
_MAX_NEWS = 20_000
_END_S = 10.0


_Batch = tuple[Minute, str, list[Described]]


class Rollups:
    """Keeps minutes in the journal's store. Call `start` once this process may make threads.

    `write`: has the waiting minutes written, and returns when that is done. Raises `OSError`.
    """

    def __init__(
        self, journal: Journal, write: Callable[[], object], say: Callable[[str], object]
    ) -> None:
        self.path, self._journal, self._write, self._say = journal.path, journal, write, say
        self._minute: Minute | None = None
        self._main = ""
        self._dropped = self._samples = 0
        self._outcome = Outcome()  #: of all writers
        self._unwritten = 0  #: minutes that wait for the next writer
        self._begun = False  #: whether there was a writer
        self._waiting: queue.Queue[_Batch | None] = queue.Queue(MAX_WAITING)
        self._described: dict[tuple[str, ...], tuple[str, ...]] = {}  #: what was described, by key
        self._news: list[Described] = []
        self._thread = threading.Thread(target=self._pass_minutes, name="qjoule-store", daemon=True)
        self._last_trouble = ""

    def start(self) -> None:
        self._thread.start()

    def keep(self, retention: Retention) -> None:
        """Applies from the next minute on."""
        self._journal.retention = retention

    def take(self, interval: Interval, wall_s: float) -> None:
        start_s = int(wall_s) // _MINUTE_S * _MINUTE_S
        if self._minute is not None and self._minute.start_s != start_s:
            self._pass_on()
        if self._minute is None:
            self._minute = Minute(start_s)
        self._main = interval.main or self._main
        self._minute.add(interval)

    def take_tagged(self, tagged: Mapping[Tagged, Query], counters: Counters) -> None:
        """Adds the statements by a tag of the interval that `take` has just added."""
        if self._minute is not None:
            folded: dict[Tagged, Query] = {}
            for key, query in tagged.items():
                own = key._replace(shape=counters.series_of(key.shape))
                folded.setdefault(own, Query()).add(query)
            self._minute.add_tagged(folded)

    def take_samples(self, rows: list[dict[str, Any]]) -> None:
        """Adds queries that were drawn in the interval that was just taken."""
        if self._minute is not None:
            self._minute.add_samples(rows)
            self._samples += len(rows)

    def describe(self, counters: Counters, servers: Sequence[Server], wall_s: float) -> None:
        """Records what is known of the shapes and servers now."""
        now_s = int(wall_s)
        for shape, series in counters.queries.items():
            if series.text:
                ids = " ".join(f"{other.name}={other.id}" for other in series.ids if other.id)
                key = (shape.fingerprint, shape.server, shape.database)
                self._note("shapes", key, (*key, series.text, series.attach_mode, ids), now_s)
        for server in servers:
            values = (server.name, server.kind, server.version, server.exe, server.attach_mode)
            self._note("servers", (server.name,), values, now_s)

    def families(self) -> Iterator[Family]:
        store = self._outcome
        yield unlabelled_gauge("qjoule_store_bytes", "Size of the rollups.", store.bytes, "bytes")
        for name, about, value in (
            ("qjoule_store_minutes", "Minutes that were written.", store.written),
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
        self._journal.close()

    def _pass_on(self) -> None:
        minute, self._minute = self._minute, None
        if minute is not None:
            try:
                self._waiting.put_nowait((minute, self._main, self._news))
                self._news = []
            except queue.Full:
                self._dropped += 1

    def _note(self, table: str, key: tuple[str, ...], values: tuple[str, ...], now_s: int) -> None:
        if self._described.get(key) != values:
            if len(self._described) >= _MAX_NEWS:
                self._described.clear()
            self._described[key] = values
            self._news = [*self._news[-_MAX_NEWS:], (table, values, now_s)]

    def _pass_minutes(self) -> None:
        """Runs in the thread."""
        while (batch := self._waiting.get()) is not None:
            try:
                self._dropped += self._journal.add(*batch)
            except OSError as error:
                self._outcome = replace(
                    self._outcome.then(Outcome(failures=1)),
                    bytes=self._outcome.bytes,
                    trouble=f"{error.filename or self.path}: {error.strerror}",
                )
                self._log_trouble()
                continue
            self._unwritten += 1
            if not self._begun or self._unwritten >= TOGETHER:
                self._run_writer()
        if self._unwritten:
            self._run_writer()

    def _run_writer(self) -> None:
        self._begun, self._unwritten = True, 0
        try:
            self._write()
            self._outcome = self._outcome.then(self._journal.outcome())
        except OSError as error:
            self._outcome = replace(self._outcome, trouble=f"{self.path}: {error.strerror}")
        self._log_trouble()

    def _log_trouble(self) -> None:
        """Logs each trouble once, not every minute."""
        if self._outcome.trouble != self._last_trouble:
            self._last_trouble = self._outcome.trouble
            self._say(
                f"store: {self._last_trouble}" if self._last_trouble else "store: writes again"
            )
