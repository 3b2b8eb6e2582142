# SPDX-License-Identifier: Apache-2.0
"""Several servers under one recording, and successive clients of one: each has its own queries.
Also: several recorders on one server.
"""

from __future__ import annotations

import json
import re
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from exclusive.test_faults_end import bpf_ids, nothing_is_attached
from qjoule_studies.servers.process import DatabaseServer
from tracing.live_top import live_top
from tracing.mongodb_client import clients_gone
from tracing.mysql_client import mysql_client
from tracing.recording import Recorder, Run, at_once, attribute, qjoule, recording
from waiting import in_background

pytestmark = [pytest.mark.root, pytest.mark.server]

#: The share of every server's CPU time that must have a named owner.
NAMED = 0.98
CURVE = "estimated:10,12,20,30"  #: W; any value will do, because the test is about sums


@dataclass(frozen=True)
class Load:
    """A statement that no other server gets, so that misattributed queries are noticed."""

    run: Callable[[Any, int], object]  #: client, and number of the execution, from 1
    times: int
    shape: str

    def repeat(self, client: Any, times: int) -> None:
        for number in range(1, times + 1):
            self.run(client, number)


def _sql(column: str) -> Load:
    def run(connection: Any, number: int) -> object:
        with connection.cursor() as cursor:
            return cursor.execute(f"SELECT {number} AS {column}")

    return Load(run, 2000, f"SELECT ? AS {column}")


#: By fixture.
LOADS = {
    "mariadb": _sql("one"),
    "mysql80": _sql("two"),
    "postgres": _sql("three"),
    "redis": Load(lambda client, number: client.get(f"four:{number}"), 2000, "GET four:?"),
    "voltdb": Load(
        lambda client, number: client.sql(f"SELECT COUNT(*) FROM five WHERE id = {number}"),
        50,
        "SELECT COUNT(*) FROM five WHERE id = ?",
    ),
    "cassandra": Load(
        lambda client, number: client.execute(
            f"SELECT key AS six FROM system.local WHERE key = 'local{number}'"
        ),
        500,
        "SELECT key AS six FROM system.local WHERE key = ?",
    ),
    "ferretdb": Load(
        lambda client, number: client.shop.orders.find_one({"seven": number}),
        500,
        "shop.orders find {seven: ?} limit ?",
    ),
}


def test_all_at_once(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    servers: dict[str, DatabaseServer] = {name: request.getfixturevalue(name) for name in LOADS}
    with ExitStack() as stack:
        clients = {name: stack.enter_context(server.connect()) for name, server in servers.items()}
        clients["voltdb"].sql("CREATE TABLE five (id INTEGER)")
        pid_options = (word for server in servers.values() for word in ("--pid", str(server.pid)))
        options = ("--ring-mb", "64", "--energy", CURVE)
        stack.enter_context(recording(tmp_path / "t", *pid_options, *options))
        at_once(lambda name: LOADS[name].repeat(clients[name], LOADS[name].times), LOADS)
        clients["voltdb"].sql("DROP TABLE five")
        clients["ferretdb"].close()
        clients_gone(servers["ferretdb"])
    _each_has_its_own_queries(Run(tmp_path / "t"))
    _all_time_and_energy_is_somebodys(attribute(tmp_path / "t"), servers)


def _each_has_its_own_queries(run: Run) -> None:
    assert not run.loss.keys() & {"query", "framing", "state"}, run.loss
    for name, load in LOADS.items():
        queries = run.queries[run.queries["text"].str.casefold() == load.shape.casefold()]
        assert queries["executions"].sum() == load.times, (name, run.executions().most_common(12))
        assert queries["server"].nunique() == 1, name


def _all_time_and_energy_is_somebodys(
    document: dict[str, Any], servers: dict[str, DatabaseServer]
) -> None:
    rows = document["rows"] + document["fixed"]
    coverage = document["coverage_by_server"]
    assert len(coverage) == len(servers)
    assert {label.rpartition(":")[2] for label in coverage} == {
        str(server.port) for server in servers.values()
    }
    for label, covered in coverage.items():
        assert covered["named"] >= NAMED, (label, covered)
        assert covered["cpu_ns"] == sum(row["cpu_ns"] for row in rows if row["server"] == label)
    totals = document["totals_j"]
    measured = totals.pop("measured")
    assert measured > 0
    assert sum(totals.values()) == pytest.approx(measured, rel=1e-9)
    assert sum(row["energy_j"] for row in rows) == pytest.approx(measured, rel=1e-9)


# ---- successive clients --------------------------------------------------------------------------

CONNECTIONS = 8
STATEMENTS = 3  #: of each connection
LOAD_OF = {**LOADS, "mariadb_pool": LOADS["mariadb"], "mysql8033": LOADS["mysql80"]}


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("mariadb", "--attach=socket"),
        ("mariadb", "--attach=symbol"),
        ("mariadb_pool", "--attach=symbol"),
        ("mysql80", "--attach=symbol"),
        ("mysql8033", "--attach=symbol"),
        ("postgres", "--attach=socket"),
        ("postgres", "--attach=symbol"),
        ("redis", ""),
        ("ferretdb", ""),
        ("cassandra", "--agent"),
    ],
)
def test_every_connection_is_a_session(
    name: str, options: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """This holds also where a server gives a new connection the thread and the memory of the one
    before."""
    server: DatabaseServer = request.getfixturevalue(name)
    load = LOAD_OF[name]
    with recording(tmp_path / "t", "--pid", str(server.pid), *options.split()):
        for _ in range(CONNECTIONS):
            with server.connect() as connection:
                load.repeat(connection, STATEMENTS)
    run = Run(tmp_path / "t")
    queries = run.queries[run.queries["text"].str.casefold() == load.shape.casefold()]
    by_session = queries.groupby("session")["executions"].sum()
    assert by_session.tolist() == [STATEMENTS] * CONNECTIONS
    rows = attribute(tmp_path / "t", "--by", "session")["rows"]
    assert set(by_session.index.astype(str)) <= {row["session"] for row in rows}


# ---- `doctor` traces running servers for a moment ------------------------------------------------


def test_requests_are_seen_where_there_are_some(redis: DatabaseServer) -> None:
    def work(stop: threading.Event) -> None:
        with redis.connect() as client:
            while not stop.is_set():
                client.get("doctor:1")

    with in_background(work):
        done = qjoule("doctor", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    traffic = document["traffic"]
    assert (traffic["problem"], traffic["seconds"]) == ("", 1.0)
    (of_redis,) = (
        server["traffic"] for server in document["servers"] if redis.pid in server["pids"]
    )
    assert of_redis["requests"] > 0
    assert of_redis["attach_modes"] == ["socket"]
    assert of_redis["proven_exact"] is (traffic["alarm"] == "")


# ---- `record` ends with the number of calls of `attribute` ---------------------------------------

CALLS = 7


def mysql_work(server: DatabaseServer) -> int:
    """Executes statements, beside logins, prepares, closes and pings; returns the number of
    statements without those inside a procedure.
    """
    with closing(server.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("create or replace database counted_calls")
        cursor.execute(
            "create procedure counted_calls.twice() begin do 1; select 1 as counted; end"
        )
        for _ in range(CALLS):
            cursor.execute("call counted_calls.twice()")
            connection.ping()
        cursor.execute("drop database counted_calls")
    with mysql_client(server.socket) as client:
        statement = client.prepare(b"select ? + 1 as counted")
        for number in range(CALLS):
            client.execute(statement, number)
        client.close_statement(statement)
    return 2 * CALLS + 3


def test_the_number_at_the_end_is_that_of_the_table(
    mariadb: DatabaseServer, tmp_path: Path
) -> None:
    with recording(tmp_path / "t", "--pid", str(mariadb.pid), "--children") as recorder:
        executed = mysql_work(mariadb)
    pattern = r": ([\d,]+) calls(?: \(not counted as calls: (.*?)\))?, "
    (summary,) = re.findall(pattern, recorder.messages)
    calls = int(summary[0].replace(",", ""))
    assert calls == sum(row["calls"] for row in attribute(tmp_path / "t")["rows"])
    assert calls >= executed
    counted = {
        kind: int(number.replace(",", ""))
        for number, kind in re.findall(r"(\d[\d,]*) (\w+)", summary[1])
    }
    assert counted["prepare"] >= 1 and counted["child"] == 2 * CALLS
    for kind, number in Run(tmp_path / "t").commands().items():
        assert kind in ("query", "execute") or counted[kind] == number


# --------------------------------------------------------------------------------------------------
#
# Several recorders on one server: each is exact, and none switches off what another attached.

ROUND_STATEMENTS = 400  #: of each round
ROUNDS = ("all", "without_second", "without_record")
ATTACH_MODES = ("socket", "symbol")


def work(server: DatabaseServer, word: str) -> None:
    with server.connect() as connection, connection.cursor() as cursor:
        for number in range(ROUND_STATEMENTS):
            cursor.execute(f"select {number} as beside_{word}")


def calls_by_server(rows: Iterator[dict[str, Any]]) -> dict[str, int]:
    """Calls of the rounds' statements, by round."""
    calls = dict.fromkeys(ROUNDS, 0)
    for row in rows:
        for word in ROUNDS:
            if row["shape"] == f"select ? as beside_{word}":
                calls[word] += row["calls"]
    return calls


def of_top(snapshots: list[dict[str, Any]]) -> dict[str, int]:
    return calls_by_server(row for snapshot in snapshots for row in snapshot["interval"]["rows"])


def has_all(word: str) -> Callable[[list[dict[str, Any]]], bool]:
    """True once a view shows all statements of a round. It must show no more later."""
    return lambda snapshots: of_top(snapshots)[word] >= ROUND_STATEMENTS


def wait_for_end(process: Any) -> None:
    """Stops a recorder and waits until its processes and BPF programs are gone."""
    family, ids = psutil.Process(process.pid).children(recursive=True), bpf_ids(process.pid)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 0
    assert not psutil.wait_procs(family, timeout=60)[1]
    nothing_is_attached(ids)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("attach_mode", ATTACH_MODES)
def test_top_beside_record_and_a_second_top(
    attach_mode: str, mariadb: DatabaseServer, tmp_path: Path
) -> None:
    options = ("--pid", str(mariadb.pid), "--attach", attach_mode, "--energy", "none")
    with ExitStack() as stack:
        first = stack.enter_context(live_top(*options))
        recorder = Recorder(tmp_path / "t", *options)
        stack.callback(recorder.end)
        recorder.attached()
        second = stack.enter_context(live_top(*options))
        work(mariadb, "all")
        second.until(has_all("all"))
        wait_for_end(second.process)
        work(mariadb, "without_second")
        wait_for_end(recorder.process)
        work(mariadb, "without_record")
        first.until(has_all("without_record"))
        wait_for_end(first.process)
    assert of_top(first.snapshots) == dict.fromkeys(ROUNDS, ROUND_STATEMENTS)
    assert of_top(second.snapshots) == {
        "all": ROUND_STATEMENTS,
        "without_second": 0,
        "without_record": 0,
    }
    run = Run(tmp_path / "t")
    assert run.loss == {}
    counted = {word: run.executions()[f"select ? as beside_{word}"] for word in ROUNDS}
    assert counted == {
        "all": ROUND_STATEMENTS,
        "without_second": ROUND_STATEMENTS,
        "without_record": 0,
    }
