# SPDX-License-Identifier: Apache-2.0
"""All servers under one recording: each has all of its own queries, and no other's."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from servers.process import DatabaseServer
from tracing.mongodb_client import clients_gone
from tracing.recording import Run, attribute, recording

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
        clients = {name: stack.enter_context(one.connect()) for name, one in servers.items()}
        clients["voltdb"].sql("CREATE TABLE five (id INTEGER)")
        chosen = (word for one in servers.values() for word in ("--pid", str(one.pid)))
        options = ("--ring-mb", "64", "--energy", CURVE)
        stack.enter_context(recording(tmp_path / "t", *chosen, *options))
        threads = [
            threading.Thread(target=_repeat, args=(clients[name], load))
            for name, load in LOADS.items()
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        clients["voltdb"].sql("DROP TABLE five")
        clients["ferretdb"].close()
        clients_gone(servers["ferretdb"])
    _each_has_its_own_queries(Run(tmp_path / "t"))
    _all_time_and_energy_is_somebodys(attribute(tmp_path / "t"), servers)


def _repeat(client: Any, load: Load) -> None:
    for number in range(1, load.times + 1):
        load.run(client, number)


def _each_has_its_own_queries(run: Run) -> None:
    assert not run.loss.keys() & {"query", "framing", "state"}, run.loss
    for name, load in LOADS.items():
        found = run.queries[run.queries["text"].str.casefold() == load.shape.casefold()]
        told = int(found["executions"].sum())
        assert told == load.times, (name, run.executions().most_common(12))
        assert found["server"].nunique() == 1, name


def _all_time_and_energy_is_somebodys(
    document: dict[str, Any], servers: dict[str, DatabaseServer]
) -> None:
    rows = document["rows"] + document["fixed"]
    coverage = document["coverage_by_server"]
    assert len(coverage) == len(servers)
    assert {label.rpartition(":")[2] for label in coverage} == {
        str(server.port) for server in servers.values()
    }
    for label, told in coverage.items():
        assert told["named"] >= NAMED, (label, told)
        assert told["cpu_ns"] == sum(row["cpu_ns"] for row in rows if row["server"] == label)
    totals = document["totals_j"]
    measured = totals.pop("measured")
    assert measured > 0
    assert sum(totals.values()) == pytest.approx(measured, rel=1e-9)
    assert sum(row["energy_j"] for row in rows) == pytest.approx(measured, rel=1e-9)
