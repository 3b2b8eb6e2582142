# SPDX-License-Identifier: Apache-2.0
"""The queryid of `--ids` is the row of pg_stat_statements, on both attach modes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from qjoule.servers import registry
from qjoule.servers.decoding import fingerprint
from qjoule_studies.servers.postgres import postgres_server
from qjoule_studies.servers.process import DatabaseServer
from tracing.recording import attribute, both_attach_modes, recording
from tracing.releases import releases, running

pytestmark = [pytest.mark.beside, pytest.mark.root, pytest.mark.server]

SETUP = (
    "create extension pg_stat_statements",
    "create table t (a int primary key, b int, c text)",
    "insert into t select n, n, n::text from generate_series(1, 100) n",
    "create function nested(n int) returns bigint language plpgsql as "
    "$$ begin return (select count(*) from t where b > n); end $$",
)
#: In simple protocol, each of a shape of its own.
SIMPLE = (
    "select 1",
    "select a from t where b = 5",
    "select a from t where b in (1, 2, 3)",
    "select count(*), max(c) from t group by b order by 1 limit 3",
    "insert into t values (1001, 1, 'x')",
    "update t set b = b + 1 where a = 7",
    "delete from t where a = 1001",
    "select nested(5)",
    "vacuum t",
    "create table made (a int)",
    "drop table made",
)
#: In extended protocol.
EXTENDED = (
    "select c from t where a = %s",
    "select a, c from t where b > %s and c <> %s",
    "update t set c = %s where a = %s",
)
#: Executed in one request: on sockets it has no statement of its own.
PIPELINED = ("select c, b, a from t where a = %s", "select b, c from t where a = %s")


@dataclass
class Trial:
    ids: dict[str, dict[str, set[str]]]  #: by attach mode: of each text of a shape
    statistics: dict[str, str]  #: pg_stat_statements: normalised text by queryid


def _servers() -> Iterator[Any]:
    yield pytest.param(None, id="distribution")
    for release in releases("postgres"):
        yield pytest.param(release.values[0], id=release.id, marks=pytest.mark.versions)


@pytest.fixture(scope="module", params=list(_servers()))
def server(request: pytest.FixtureRequest) -> Iterator[DatabaseServer]:
    track = "pg_stat_statements.track=top"
    started = running(request.param, track) if request.param else postgres_server(track)
    with started as server:
        yield server


def _ids_in(directory: Path) -> dict[str, set[str]]:
    return {
        row["shape"]: {entry["id"] for entry in row["ids"]["pg_queryid"] if entry["id"] is not None}
        for row in attribute(directory)["rows"]
        if "pg_queryid" in row.get("ids", {})
    }


@pytest.fixture(scope="module")
def trial(server: DatabaseServer, tmp_path_factory: pytest.TempPathFactory) -> Trial:
    directory = tmp_path_factory.mktemp("ids")
    with ExitStack() as stack:
        connection = stack.enter_context(server.connect())
        for statement in SETUP:
            connection.execute(statement)
        before = stack.enter_context(server.connect())
        for _ in range(6):  # from the fifth execution on it is a prepared statement
            before.execute("select b from t where a = %s", (1,), prepare=True)
        connection.execute("select pg_stat_statements_reset()")
        with both_attach_modes(directory, server.pid, options=["--ids"]):
            for statement in SIMPLE:
                connection.execute(statement)
            for statement in EXTENDED:
                values = tuple(str(n) for n in range(statement.count("%s")))
                for _ in range(3):
                    connection.execute(statement, values)
            for value in range(20):
                before.execute("select b from t where a = %s", (value,), prepare=True)
            with connection.pipeline():
                for statement in PIPELINED:
                    connection.execute(statement, (1,))
        rows = connection.execute("select queryid::text, query from pg_stat_statements").fetchall()
    ids = {attach_mode: _ids_in(directory / attach_mode) for attach_mode in ("socket", "symbol")}
    return Trial(ids, dict(rows))


def _like(text: str) -> str:
    """A text of pg_stat_statements in the form of a shape."""
    return fingerprint(text.encode(), registry.dialect("postgres")).text


@pytest.mark.parametrize("attach_mode", ["socket", "symbol"])
def test_every_statement_has_the_id_of_its_row(trial: Trial, attach_mode: str) -> None:
    checked = 0
    for shape, ids in trial.ids[attach_mode].items():
        for queryid in ids:
            if queryid in trial.statistics:
                assert _like(trial.statistics[queryid]) == shape
                checked += 1
    assert checked >= len(SIMPLE) + len(EXTENDED)

    recorded_ids = {queryid for ids in trial.ids[attach_mode].values() for queryid in ids}
    missing = {
        text
        for queryid, text in trial.statistics.items()
        if queryid not in recorded_ids and "pg_stat_statements" not in text
    }
    in_one_request = {statement.replace("%s", "$1") for statement in PIPELINED}
    assert missing <= (in_one_request if attach_mode == "socket" else set())


def test_without_ids_there_is_a_reason(tmp_path: Path) -> None:
    with postgres_server("compute_query_id=off") as server, server.connect() as connection:
        with recording(tmp_path / "t", "--pid", str(server.pid), "--ids"):
            connection.execute("select 1")
        (entry,) = next(
            row["ids"]["pg_queryid"]
            for row in attribute(tmp_path / "t")["rows"]
            if row["shape"] == "select ?"
        )
    assert entry["id"] is None
    assert "compute_query_id = on" in entry["why"]
