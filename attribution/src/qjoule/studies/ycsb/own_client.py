# SPDX-License-Identifier: Apache-2.0
"""YCSB's client of our own: a thread for each connection, on the server's ordinary driver.

Python runs one of its threads at a time, so this client cannot load a quick server as go-ycsb can.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from time import perf_counter_ns

from qjoule.errors import QjouleError
from qjoule.studies.latencies import latencies
from qjoule.studies.workload import Latencies, Outcome
from qjoule.studies.ycsb.plan import COMMANDS, LONGEST_SCAN, Plan, Settings, plan
from qjoule.studies.ycsb.records import keys, letters
from qjoule.studies.ycsb.store import Connection, Store

NAME = "qjoule"
READ, UPDATE, INSERT, SCAN, MODIFY = range(len(COMMANDS))
#: After so many failures in a row, the server is considered gone.
GONE_AFTER = 20
#: Written values are pieces of one text, so that making them costs nothing.
_POOL_BYTES = 1 << 20
_KEYS_MADE = 1_000_000  #: before the run; those of further records are made when they are needed


class Newest:
    """Numbers of the records that a run inserts, and the newest number below which all exist.

    As YCSB's AcknowledgedCounterGenerator.
    """

    def __init__(self, records: int) -> None:
        self._lock = threading.Lock()
        self._next = records
        self._ended: set[int] = set()
        self.last = records - 1

    def take(self) -> int:
        """The number of a new record."""
        with self._lock:
            self._next += 1
            return self._next - 1

    def done(self, number: int) -> None:
        """Its insertion has ended, in whichever way."""
        with self._lock:
            self._ended.add(number)
            while self.last + 1 in self._ended:
                self.last += 1
                self._ended.remove(self.last)


@dataclass
class Measured:
    """What one thread saw; times in ns of one clock."""

    began_ns: int = 0
    ended_ns: int = 0
    errors: int = 0
    latencies_ns: list[list[int]] = field(default_factory=lambda: [[] for _ in COMMANDS])
    gone: Exception | None = None


def run(store: Store, wanted: Settings) -> Outcome:
    """Runs the plan of these settings.

    Raises:
        QjouleError: the server has gone.
    """
    drawn, newest = plan(wanted), Newest(wanted.record_count)
    texts = (
        keys(0, min(wanted.record_count, _KEYS_MADE)),
        letters([wanted.seed, 0], _POOL_BYTES + wanted.fields * wanted.field_bytes),
    )
    connections: list[Connection] = []
    try:
        for _ in range(wanted.threads):
            connections.append(store.connect(wanted.fields))
        workers = [
            _Worker(
                store,
                connection,
                drawn.of_thread(i, wanted.threads),
                wanted=wanted,
                newest=newest,
                texts=texts,
            )
            for i, connection in enumerate(connections)
        ]
        start = threading.Barrier(wanted.threads)
        threads = [
            threading.Thread(target=worker.run, args=(start,), daemon=True) for worker in workers
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    except store.errors as error:
        raise QjouleError(f"the server refuses a connection: {error}") from error
    finally:
        for connection in connections:
            connection.close()
    return outcome([worker.measured for worker in workers])


def outcome(seen: list[Measured]) -> Outcome:
    """Of all threads together. Raises QjouleError if one of them saw the server go."""
    for one in seen:
        if one.gone is not None:
            raise QjouleError(f"the server has gone, or refuses everything: {one.gone}")
    commands: dict[str, Latencies] = {}
    for code, name in enumerate(COMMANDS):
        if times := [ns for one in seen for ns in one.latencies_ns[code]]:
            commands[name] = latencies(times)
    return Outcome(
        operations=sum(one.operations for one in commands.values()),
        errors=sum(one.errors for one in seen),
        wall_s=(max(one.ended_ns for one in seen) - min(one.began_ns for one in seen)) / 1e9,
        client=NAME,
        commands=commands,
    )


class _Worker:
    """One thread's part of the plan."""

    def __init__(
        self,
        store: Store,
        connection: Connection,
        part: Plan,
        *,
        wanted: Settings,
        newest: Newest,
        texts: tuple[list[str], str],
    ) -> None:
        self._connection, self._part, self._newest = connection, part, newest
        self._errors = store.errors
        self._wanted = wanted
        self._latest = wanted.distribution == "latest"
        self._keys, self._pool = texts
        self._at = 0
        self.measured = Measured()

    def run(self, start: threading.Barrier) -> None:
        part, measured = self._part, self.measured
        rows = zip(
            part.commands.tolist(),
            part.records.tolist(),
            part.fields.tolist(),
            part.lengths.tolist(),
            strict=True,
        )
        failed = 0
        start.wait()
        measured.began_ns = measured.ended_ns = perf_counter_ns()
        for command, record, written, length in rows:
            began_ns = perf_counter_ns()
            try:
                found = self._operate(command, record, written, length)
                failed = 0 if found else failed
            except self._errors as error:
                found, failed = False, failed + 1
                if failed == GONE_AFTER:
                    measured.gone = error
                    return
            measured.ended_ns = perf_counter_ns()
            if found:
                measured.latencies_ns[command].append(measured.ended_ns - began_ns)
            else:
                measured.errors += 1

    def _operate(self, command: int, record: int, written: int, length: int) -> bool:
        """Says whether the record was there."""
        if command == INSERT:
            return self._insert()
        if self._latest:
            record = max(self._newest.last - record, 0)
        key = self._key(record)
        if command == READ:
            return self._connection.read(key)
        if command == SCAN:
            return self._connection.scan(key, min(length, LONGEST_SCAN))
        if command == MODIFY and not self._connection.read(key):
            return False
        return self._connection.update(key, written, self._value(self._wanted.field_bytes))

    def _insert(self) -> bool:
        number, size = self._newest.take(), self._wanted.field_bytes
        text = self._value(size * self._wanted.fields)
        values = [text[at : at + size] for at in range(0, len(text), size)]
        try:
            return self._connection.insert(self._key(number), values)
        finally:
            self._newest.done(number)

    def _key(self, record: int) -> str:
        if record < len(self._keys):
            return self._keys[record]
        return keys(record, record + 1)[0]

    def _value(self, size: int) -> str:
        self._at = (self._at + 97) % _POOL_BYTES
        return self._pool[self._at : self._at + size]
