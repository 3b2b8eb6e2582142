"""YCSB's own client, the state that runs leave behind, and what go-ycsb says."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from qjoule.errors import QjouleError, UsageError
from qjoule.studies.workload import Outcome, Target, Value
from qjoule.studies.workloads.ycsb import Ycsb, fill
from qjoule.studies.ycsb import goycsb, own_client, stores
from qjoule.studies.ycsb.own_client import GONE_AFTER, Newest
from qjoule.studies.ycsb.plan import DEFAULTS, Settings, settings
from qjoule.studies.ycsb.records import Record, keys

TARGET = Target("redis", port=1)


def wanted(**changed: Value) -> Settings:
    return settings({**DEFAULTS, "operations": 400, "record_count": 100, **changed})


class Lost(Exception):
    """The toy's."""


class ToyStore:
    """A table in memory; the `fails`th operation and those after it fail."""

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


def test_latest_reads_what_was_inserted() -> None:
    settings_ = wanted(workload="D", operations=3_000, record_count=10)
    store = loaded(settings_)
    read: list[str] = []
    original = store.read
    store.read = lambda key: read.append(key) or original(key)  # type: ignore[method-assign,func-returns-value]
    done = own_client.run(store, settings_)
    assert done.errors == 0
    assert len(set(read) - set(keys(0, 10))) > 50


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


OUTPUT = """***************** properties *****************
"recordcount"="1000"
**********************************************
Using request distribution 'zipfian' a keyrange of [0 999]
Run finished, takes 1m2.5s
READ   - Takes(s): 62.5, Count: 507, OPS: 8.1, Avg(us): 91, Min(us): 30, Max(us): 2000, \
50th(us): 80, 90th(us): 150, 95th(us): 190, 99th(us): 800, 99.9th(us): 1900, 99.99th(us): 2000
UPDATE - Takes(s): 62.5, Count: 490, OPS: 7.8, Avg(us): 120, Min(us): 40, Max(us): 3000, \
50th(us): 100, 90th(us): 150, 95th(us): 200, 99th(us): 900, 99.9th(us): 1900, 99.99th(us): 2000
UPDATE_ERROR - Takes(s): 62.5, Count: 3, OPS: 0.0, Avg(us): 120, Min(us): 40, Max(us): 3000, \
50th(us): 100, 90th(us): 150, 95th(us): 200, 99th(us): 900, 99.9th(us): 1900, 99.99th(us): 2000
"""
BOTH = """Run finished, takes 812.5ms
READ   - Takes(s): 0.8, Count: 1000, OPS: 8.1, Avg(us): 91, 50th(us): 80, 95th(us): 190, 99th(us): 8
READ_MODIFY_WRITE - Takes(s): 0.8, Count: 480, Avg(us): 9, 50th(us): 8, 95th(us): 9, 99th(us): 8
UPDATE - Takes(s): 0.8, Count: 480, OPS: 8.1, Avg(us): 91, 50th(us): 80, 95th(us): 190, 99th(us): 8
"""


def test_go_ycsb_is_read() -> None:
    done = goycsb.read_output(OUTPUT, "go-ycsb 1.0.1")
    assert (done.operations, done.errors, done.wall_s) == (997, 3, 62.5)
    read = done.commands["read"]
    assert (read.operations, read.mean_ns, read.p50_ns) == (507, 91e3, 80e3)
    assert (read.p95_ns, read.p99_ns) == (190e3, 800e3)
    assert set(done.commands) == {"read", "update"}
    assert "drawn anew" in done.notes[0] or "draws" in done.notes[0]


def test_a_read_modify_write_is_one_operation() -> None:
    done = goycsb.read_output(BOTH, "go-ycsb")
    assert done.operations == 1_000
    assert {name: seen.operations for name, seen in done.commands.items()} == {
        "read": 520,
        "read-modify-write": 480,
    }
    assert done.wall_s == pytest.approx(0.8125)


@pytest.mark.parametrize("text", ["", "panic: connection refused", "Run finished, takes 1s\n"])
def test_no_report_is_an_error(text: str) -> None:
    with pytest.raises(QjouleError, match="no report"):
        goycsb.read_output(text, "go-ycsb")


def test_passwords_are_not_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "go-ycsb"
    program.write_text(
        f'#!/bin/sh\necho "$@" >{tmp_path}/argv\ncp "$4" {tmp_path}/file\n'
        f'stat -c %a "$4" >{tmp_path}/mode\nprintf "%s" "$OUTPUT"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("OUTPUT", OUTPUT)
    target = Target("mariadb", port=3306, user="u", password="hunter2")
    assert goycsb.run(program, target, wanted()).client == "go-ycsb"
    assert "hunter2" not in (tmp_path / "argv").read_text()
    assert "mysql.password=hunter2" in (tmp_path / "file").read_text()
    assert (tmp_path / "mode").read_text().strip() == "600"


def test_a_go_ycsb_that_fails_says_why(tmp_path: Path) -> None:
    program = tmp_path / "go-ycsb"
    program.write_text("#!/bin/sh\necho it is broken >&2\nexit 3\n")
    program.chmod(0o755)
    with pytest.raises(QjouleError, match="it is broken"):
        goycsb.run(program, TARGET, wanted())


@pytest.mark.parametrize(
    ("flavour", "database", "changed", "reason"),
    [
        ("redis", "", {"workload": "E"}, "cannot scan"),
        ("cassandra", "", {"workload": "scan"}, "cannot scan"),
        ("voltdb", "", {}, "no driver"),
        ("mongodb", "mine", {}, "no other MongoDB database"),
        ("redis", "3", {}, "database 0"),
        ("redis", "", {"operations": 401}, "equally many"),
    ],
)
def test_what_go_ycsb_cannot_do_the_own_client_does(
    monkeypatch: pytest.MonkeyPatch,
    flavour: str,
    database: str,
    changed: dict[str, Value],
    reason: str,
) -> None:
    options = {**DEFAULTS, "operations": 400, "record_count": 100, **changed}
    monkeypatch.setattr(goycsb, "installed", lambda: Path("/go-ycsb"))
    monkeypatch.setattr(stores, "open_store", lambda _: loaded(settings(options)))
    target = Target(flavour, database=database)
    done: Outcome = Ycsb().run(target, options)
    assert done.client == "qjoule"
    assert reason in done.notes[0]
    with pytest.raises(UsageError, match=reason):
        Ycsb().run(target, {**options, "client": "go-ycsb"})


def test_a_go_ycsb_that_is_asked_for_and_missing_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(goycsb, "installed", lambda: None)
    with pytest.raises(QjouleError, match="make servers"):
        Ycsb().run(TARGET, {**DEFAULTS, "client": "go-ycsb"})


def test_unknown_servers_are_refused() -> None:
    for flavour in ("", "oracle", "\x1b[2J"):
        with pytest.raises(UsageError, match="cannot be run"):
            Ycsb().prepare(Target(flavour), DEFAULTS)


def test_a_server_that_does_not_answer_is_named() -> None:
    for flavour in ("redis", "mariadb", "postgres", "voltdb"):
        with pytest.raises(QjouleError, match=f"{flavour} at 127.0.0.1:1 does not answer"):
            Ycsb().prepare(Target(flavour, port=1, user="u"), DEFAULTS)
