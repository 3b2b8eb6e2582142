# SPDX-License-Identifier: Apache-2.0
"""Live equals offline for tags of clients on other hosts: `top` and `record` count alike."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from qjoule.model.labels import FORGOTTEN_VALUES
from qjoule_drivers import tag
from qjoule_drivers.comments import put_in_connections
from qjoule_studies.servers.process import DatabaseServer
from tracing.live_top import Top, live_top
from tracing.recording import Run, at_once, attribute, recording

pytestmark = [pytest.mark.root, pytest.mark.server, pytest.mark.timeout(180)]

CLIENTS = 4
CALLS = 50  #: for each client and server
ENDPOINTS = 3
#: A client that sends a new value each time.
NEW = 3000


def _client(connect: Callable[[], Any], number: int) -> None:
    """Comments change with each call; the connection's tags apply where there is no comment."""
    with tag(endpoint=f"/login {number}"):
        connection = connect()
    with closing(connection):
        for turn in range(CALLS):
            with tag(endpoint=f"/shop {turn % ENDPOINTS}"), connection.cursor() as cursor:
                cursor.execute("select %s + 0", (turn,))
                cursor.fetchall()
        with connection.cursor() as cursor:  # only the connection's tags
            cursor.execute("select 'untagged'")
            cursor.fetchall()


def _renames_itself(server: DatabaseServer) -> None:
    """A client whose comments override its connection's tags, and whose new names are refused."""
    with closing(server.connect(application_name="endpoint=session,release=2.0")) as connection:
        connection.autocommit = True
        for statement in (
            "select 1 /*endpoint='statement'*/",
            "select 2",
            "set application_name = 'endpoint=renamed'",
            "select 3",
            "select 4 /*tenant='7'*/",
            "reset application_name",
            "select 5",
        ):
            connection.execute(statement)
        with pytest.raises(Exception, match="unrecognized"):
            connection.execute("set nonsense = 'endpoint=refused'")
        connection.execute("select 6")


def _redis_client(server: DatabaseServer) -> None:
    """A client whose only tags are in its connection's name."""
    with tag(endpoint="redis"):
        client = server.connect()
    with closing(client):
        for _ in range(CALLS):
            client.get("live:1")
        client.client_setname("endpoint=renamed%20redis")
        client.get("live:1")


def _run(client: Callable[[], None]) -> None:
    client()


def _finish(top: Top, server: DatabaseServer) -> list[dict[str, Any]]:
    """Returns all snapshots; the last one also contains a statement that marks the end."""
    with closing(server.connect()) as connection, connection.cursor() as cursor:
        for _ in range(100):  # so that it is one of the statements with a name
            cursor.execute("select 9 /*endpoint='last'*/")
            cursor.fetchall()
    return top.finish(lambda row: row["tag:endpoint"] == "last" and row["calls"] > 0)


def _calls(rows: Sequence[dict[str, Any]], key: str) -> Counter[str]:
    """Calls by the values of a key, for queries that the server counts."""
    counts: Counter[str] = Counter()
    for row in rows:
        if row["kind"] == "queries" and row["calls"]:
            counts[row[key]] += row["calls"]
    return counts


@pytest.mark.usefixtures("elsewhere")
def test_live_is_recorded(
    mariadb: DatabaseServer, postgres: DatabaseServer, redis: DatabaseServer, tmp_path: Path
) -> None:
    key = "tag:endpoint"
    put_in_connections(["endpoint"])
    pids = *(f"--pid={server.pid}" for server in (mariadb, postgres, redis)), "--client-tags"
    clients = [
        partial(_client, partial(server.connect, tcp=True), number)
        for server in (mariadb, postgres)
        for number in range(CLIENTS)
    ]
    with live_top(*pids, "--by", key) as top, recording(tmp_path / "t", *pids):
        alone = partial(_renames_itself, postgres), partial(_redis_client, redis)
        at_once(_run, [*clients, *alone])
        snapshots = _finish(top, mariadb)
    live: Counter[str] = Counter()
    for snapshot in snapshots:
        live += _calls(snapshot["interval"]["rows"], key)
        assert not snapshot["interval"]["trace"]["loss"].get("text")
    recorded = _calls(attribute(tmp_path / "t", "--by", key)["rows"], key)
    live.pop("last")  # some of these may be lost, and so may logins after them
    assert recorded.pop("last")
    assert live == recorded
    for endpoint in range(ENDPOINTS):
        assert live[f"/shop {endpoint}"] == 2 * CLIENTS * len(range(endpoint, CALLS, ENDPOINTS))
    assert all(live[f"/login {number}"] >= 2 for number in range(CLIENTS))
    assert (live["statement"], live["session"], live["renamed"]) == (1, 5, 3)
    assert live["redis"] >= CALLS
    assert live["renamed redis"] == 2  # the name applies from the reply that accepted it


def test_a_client_that_says_something_new_each_time(mariadb: DatabaseServer) -> None:
    """The client affects nobody else's tags, and what it loses is counted."""

    def floods() -> None:
        with closing(mariadb.connect()) as connection, connection.cursor() as cursor:
            for number in range(NEW):
                cursor.execute(f"select 1 /*endpoint='new{number}'*/")
                cursor.fetchall()

    def steady(name: str) -> None:
        with closing(mariadb.connect()) as connection, connection.cursor() as cursor:
            for _ in range(CALLS):
                cursor.execute(f"select 2 /*endpoint='{name}'*/")
                cursor.fetchall()

    clients: list[Callable[[], None]] = [floods, partial(steady, "a"), partial(steady, "b")]
    most = 50
    options = "--client-tags", "--by", "tag:endpoint", "--max-values", str(most)
    with live_top("--pid", str(mariadb.pid), *options) as top:
        steady("a")  # known before the flood
        at_once(_run, clients)
        snapshots = _finish(top, mariadb)
    calls: Counter[str] = Counter()
    lost_texts = 0
    for snapshot in snapshots:
        rows = snapshot["interval"]["rows"]
        assert len(rows) <= most + 2
        calls += _calls(rows, "tag:endpoint")
        lost_texts += snapshot["interval"]["trace"]["loss"].get("text", 0)
    assert calls["a"] == 2 * CALLS
    assert calls["b"] <= CALLS
    # Values that are no longer seen have one row when there are too many of them.
    others = ("other", FORGOTTEN_VALUES)
    new = sum(n for value, n in calls.items() if value in others or value.startswith("new"))
    assert new <= NEW
    assert new + calls["b"] >= NEW + CALLS - lost_texts


# ---- the example of joules per endpoint, as its README describes it ------------------------------

EXAMPLE = Path(__file__).parents[3] / "examples" / "endpoints" / "endpoints.py"
TIMEOUT_S = 120
ROUTES = {"/orders/{id}", "/customers/{id}/total"}


@pytest.mark.usefixtures("mariadb")  # skips if there is none
def test_every_visit_is_its_route_s(tags_socket: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), "--seconds", "1.5", "--keep", str(trace)],
        capture_output=True,
        text=True,
        env={**os.environ, "QJOULE_TAGS_SOCKET": str(tags_socket), "COLUMNS": "160"},
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"^query .* tag:http\.route ", done.stdout, re.MULTILINE)
    assert re.search(r"^select .* /orders/\{id\} +[0-9<.]+ ", done.stdout, re.MULTILINE)
    visits = re.search(r"^([0-9]+) visits$", done.stdout, re.MULTILINE)
    assert visits
    rows = {
        row["tag:http.route"]: row for row in attribute(trace, "--by", "tag:http.route")["rows"]
    }
    assert rows.keys() >= ROUTES
    calls = sum(rows[route]["calls"] for route in ROUTES)
    loss = Run(trace).loss
    assert calls <= int(visits[1]) <= calls + loss.get("query", 0) + loss.get("tags", 0)
