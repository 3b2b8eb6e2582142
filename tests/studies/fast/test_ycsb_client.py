# SPDX-License-Identifier: Apache-2.0
"""YCSB's own client, the state that runs leave behind, and go-ycsb's output."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence

import numpy as np
import pytest

from qjoule.errors import QjouleError, UsageError
from qjoule.studies.workload import Target, Value
from qjoule.studies.workloads.ycsb import Ycsb, fill
from qjoule.studies.ycsb import own_client
from qjoule.studies.ycsb.own_client import GONE_AFTER, Newest
from qjoule.studies.ycsb.plan import DEFAULTS, Plan, Settings, plan, settings
from qjoule.studies.ycsb.records import Record, keys

TARGET = Target("redis", port=1)


def wanted(**changed: Value) -> Settings:
    return settings({**DEFAULTS, "operations": 400, "record_count": 100, **changed})


class Lost(Exception):
    """The toy store's error."""


class ToyStore:
    """A table in memory; its `fails`th operation and all later ones fail."""

    errors: tuple[type[Exception], ...] = (Lost,)

    def __init__(self, fails: int | None = None) -> None:
        self.rows: dict[str, list[str]] = {}
        self.marked = ""
        self.loads = self.operations = self.open = 0
        self.fails = fails
        self.lock = threading.Lock()
        self.scanned: list[int] = []

    def connect(self, fields: int) -> ToyStore:  # noqa: ARG002
        self.open += 1
        return self

    def close(self) -> None:
        self.open -= 1

    def mark(self) -> str:
        return self.marked

    def reset(self, fields: int, field_bytes: int) -> None:  # noqa: ARG002
        self.rows, self.marked = {}, ""

    def load(self, records: Sequence[Record]) -> None:
        self.loads += 1
        self.rows.update(records)

    def set_mark(self, mark: str) -> None:
        self.marked = mark

    def count(self) -> int:
        return len(self.rows)

    def remove(self, keys: Sequence[str]) -> None:
        for key in keys:
            self.rows.pop(key, None)

    def read(self, key: str) -> bool:
        return self._there(key)

    def update(self, key: str, field: int, value: str) -> bool:
        there = self._there(key)
        if there:
            self.rows[key][field] = value
        return there

    def insert(self, key: str, values: Sequence[str]) -> bool:
        self._there(key)
        assert key not in self.rows
        self.rows[key] = list(values)
        return True

    def scan(self, key: str, count: int) -> bool:
        self.scanned.append(count)
        return self._there(key)

    def _there(self, key: str) -> bool:
        with self.lock:
            self.operations += 1
            if self.fails is not None and self.operations >= self.fails:
                raise Lost("gone")
        return key in self.rows


def loaded(settings_: Settings, fails: int | None = None) -> ToyStore:
    store = ToyStore(fails)
    fill(store, settings_)
    return store


@pytest.mark.parametrize("workload", ["A", "B", "C", "D", "E", "F", "insert", "scan"])
@pytest.mark.parametrize("threads", [1, 7])
def test_every_operation_is_counted_once(workload: str, threads: int) -> None:
    settings_ = wanted(workload=workload, threads=threads)
    store = loaded(settings_)
    done = own_client.run(store, settings_)
    assert (done.operations, done.errors, store.open) == (400, 0, 0)
    assert set(done.commands) == set(settings_.mix.shares)
    assert done.wall_s > 0
    inserted = done.commands["insert"].operations if "insert" in done.commands else 0
    assert set(store.rows) == set(keys(0, 100 + inserted))
    for seen in done.commands.values():
        assert 0 < seen.p50_ns <= seen.p95_ns <= seen.p99_ns
    assert all(1 <= count <= 100 for count in store.scanned)
    assert {len(value) for values in store.rows.values() for value in values} == {100}


def test_records_that_are_not_there_are_errors() -> None:
    settings_ = wanted(workload="C", distribution="uniform")
    store = loaded(settings_)
    store.remove(keys(0, 50))
    done = own_client.run(store, settings_)
    assert done.operations + done.errors == 400
    assert 100 < done.errors < 300


@pytest.mark.parametrize("fails", [1, 50])
def test_a_server_that_goes_ends_the_run(fails: int) -> None:
    settings_ = wanted(threads=4)
    store = loaded(settings_, fails)
    with pytest.raises(QjouleError, match="has gone"):
        own_client.run(store, settings_)
    assert store.operations < fails + 4 * GONE_AFTER + 4
    assert store.open == 0


def latest(threads: int) -> tuple[Plan, list[str], int]:
    """Runs D: its plan, the keys that it read, in the order of the reads, and its errors."""
    settings_ = wanted(workload="D", operations=3_000, record_count=10, threads=threads)
    store = loaded(settings_)
    read: list[str] = []
    original = store.read
    store.read = lambda key: read.append(key) or original(key)  # type: ignore[method-assign,func-returns-value]
    return plan(settings_), read, own_client.run(store, settings_).errors


def test_latest_reads_what_was_inserted() -> None:
    """On one connection: with several, what is newest depends on the order of their threads."""
    drawn, read, errors = latest(threads=1)
    newest = 9 + (drawn.commands == own_client.INSERT).cumsum()
    reads = drawn.commands == own_client.READ
    expected = np.maximum(newest - drawn.records, 0)[reads]
    assert read == [keys(number, number + 1)[0] for number in expected.tolist()]
    assert errors == 0
    assert len(set(read) - set(keys(0, 10))) > 50


def test_latest_reads_only_what_is_there() -> None:
    _, read, errors = latest(threads=10)
    assert read
    assert errors == 0


def test_the_newest_is_that_below_which_all_are_there() -> None:
    newest = Newest(10)
    taken = [newest.take() for _ in range(50)]
    assert taken == list(range(10, 60))
    order = taken[1:]
    random.Random(1).shuffle(order)
    for number in order:
        newest.done(number)
        assert newest.last == 9
    newest.done(10)
    assert newest.last == 59


def test_data_that_are_there_are_not_loaded_again() -> None:
    settings_ = wanted(workload="insert", operations=50)
    store = loaded(settings_)
    before = {key: list(values) for key, values in store.rows.items()}
    own_client.run(store, settings_)
    assert len(store.rows) == 150
    fill(store, settings_)
    assert (store.loads, store.rows) == (1, before)


@pytest.mark.parametrize("change", ["lost", "many", "odd", "fields", "seed", "unfinished"])
def test_other_data_are_loaded_anew(change: str) -> None:
    settings_ = wanted()
    store = loaded(settings_)
    expected = set(store.rows)
    if change == "lost":
        store.remove(keys(3, 4))
    elif change == "many":
        store.rows.update({key: [] for key in keys(100, 1_000)})
    elif change == "odd":
        store.rows["somebody's"] = []
    elif change == "unfinished":
        store.marked = ""
    else:
        settings_ = wanted(**{"fields": {"fields": 5}, "seed": {"seed": 9}}[change])
    fill(store, settings_)
    assert (store.loads, set(store.rows)) == (2, expected)


def test_unknown_servers_are_refused() -> None:
    for flavour in ("", "oracle", "\x1b[2J"):
        with pytest.raises(UsageError, match="cannot be run"):
            Ycsb().prepare(Target(flavour), DEFAULTS)


def test_a_server_that_does_not_answer_is_named() -> None:
    for flavour in ("redis", "mariadb", "postgres", "voltdb"):
        with pytest.raises(QjouleError, match=f"{flavour} at 127.0.0.1:1 does not answer"):
            Ycsb().prepare(Target(flavour, port=1, user="u"), DEFAULTS)
