# SPDX-License-Identifier: Apache-2.0
"""The ids of `--ids` are those of a real MySQL and of the real pt-query-digest."""

from __future__ import annotations

import csv
import io
import json
import subprocess
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from servers.fetched import percona
from servers.mysql import mysql_server
from servers.process import DatabaseServer, Unavailable
from tracing.live_top import live_top
from tracing.mysql_statements import (
    BY_SETTINGS,
    IN_SESSIONS,
    SESSIONS,
    SETUP,
    WITH_IDS,
    WITHOUT_CHECKSUM,
    WITHOUT_DIGEST,
    WITHOUT_DIGEST_IN_SESSIONS,
)
from tracing.recording import attribute, qjoule, recording
from tracing.releases import releases, running

pytestmark = [pytest.mark.beside, pytest.mark.root, pytest.mark.server]

ALL = (*WITH_IDS, *WITHOUT_DIGEST, *WITHOUT_CHECKSUM)
PREPARED = "select c from t where a = ? and b in (?, ?)"
#: How pt-query-digest reads a statement of a slow log.
_HEAD = (
    "# Time: 2026-01-01T00:00:00.000000Z\n# User@Host: a[a] @ localhost []  Id: 1\n"
    "# Query_time: 0.1  Lock_time: 0.0 Rows_sent: 1  Rows_examined: 1\nSET timestamp=1;\n"
)


@dataclass
class Told:
    directory: Path
    digests: dict[str, str]  #: of the server: by statement
    ids: list[dict[str, Any]]  #: all of the trace's, with the shape's text


def _servers() -> Iterator[Any]:
    yield pytest.param(None, id="8.0.15")
    for one in releases("mysql"):
        yield pytest.param(one.values[0], id=one.id, marks=pytest.mark.versions)


@pytest.fixture(scope="module", params=list(_servers()))
def server(request: pytest.FixtureRequest) -> Iterator[DatabaseServer]:
    options = ("--performance-schema=ON",)
    started = running(request.param, *options) if request.param else mysql_server(*options)
    with started as server:
        yield server


@pytest.fixture(scope="module")
def told(server: DatabaseServer, tmp_path_factory: pytest.TempPathFactory) -> Told:
    directory = tmp_path_factory.mktemp("ids") / "t"
    with closing(server.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("create database shop")
        cursor.execute("use shop")
        for statement in SETUP:
            cursor.execute(statement)
        with recording(directory, "--pid", str(server.pid), "--ids"):
            for statement in ALL:
                cursor.execute(statement)
                cursor.fetchall()
            cursor.execute(f"prepare p from '{PREPARED}'")
        cursor.execute("select digest from performance_schema.events_statements_summary_by_digest")
        known = {digest for (digest,) in cursor.fetchall()}
        digests = {}
        for statement in ALL:
            cursor.execute("select statement_digest(%s)", (statement,))
            ((digests[statement],),) = cursor.fetchall()
    assert set(digests.values()) <= known, "they are rows of the server's own table"
    document = attribute(directory)
    rows = [row for row in document["rows"] if "ids" in row]
    return Told(directory, digests, rows)


def _of(told: Told, name: str) -> list[dict[str, Any]]:
    return [one for row in told.ids for one in row["ids"].get(name, ())]


def test_every_digest_is_the_servers(told: Told) -> None:
    expected = {told.digests[one] for one in (*WITH_IDS, *WITHOUT_CHECKSUM)}
    found = {one["id"] for one in _of(told, "mysql_digest") if one["id"] is not None}
    assert expected <= found
    others = found - expected  # this test's own statements
    assert len(others) <= 4


def test_what_has_no_digest_says_why(told: Told) -> None:
    whys = [one["why"] for one in _of(told, "mysql_digest") if one["id"] is None]
    for why in WITHOUT_DIGEST.values():
        assert any(why in one for one in whys), (why, whys)
    assert len(whys) == len(WITHOUT_DIGEST)


def test_a_digest_names_its_version(told: Told, server: DatabaseServer) -> None:
    with closing(server.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("select version()")
        ((version,),) = cursor.fetchall()
    (of,) = {one["of"] for one in _of(told, "mysql_digest")}
    assert of == f"mysql {version.partition('-')[0]}"


def test_every_checksum_is_pt_query_digests(told: Told, tmp_path: Path) -> None:
    try:
        tool = percona.pt_query_digest()
    except Unavailable as reason:
        pytest.skip(str(reason))
    log = tmp_path / "slow.log"
    log.write_text("".join(f"{_HEAD}{statement};\n" for statement in ALL))
    done = subprocess.run(
        ["perl", str(tool), "--type", "slowlog", "--limit", "100%", "--output", "json", str(log)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    theirs = {
        one["checksum"]: one["example"]["query"] for one in json.loads(done.stdout)["classes"]
    }
    ours = {one["id"] for one in _of(told, "pt_checksum") if one["id"] is not None}
    certain = {checksum for checksum, query in theirs.items() if query not in WITHOUT_CHECKSUM}
    assert certain <= ours
    assert len(ours - set(theirs)) <= 4, "this test's own statements"
    whys = [one["why"] for one in _of(told, "pt_checksum") if one["id"] is None]
    for why in WITHOUT_CHECKSUM.values():
        assert any(why in one for one in whys), (why, whys)


@pytest.mark.usefixtures("told")
@pytest.mark.parametrize("mode", SESSIONS)
def test_a_digest_is_by_the_sessions_settings(
    server: DatabaseServer, tmp_path: Path, mode: str
) -> None:
    with closing(server.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("use shop")
        cursor.execute(SESSIONS[mode])
        without = WITHOUT_DIGEST_IN_SESSIONS.get(mode, ())
        with recording(tmp_path / "t", "--pid", str(server.pid), "--ids"):
            for statement in (*BY_SETTINGS, *IN_SESSIONS[mode], *without):
                connection.query(statement)
        cursor.execute("select digest from performance_schema.events_statements_summary_by_digest")
        known = {digest for (digest,) in cursor.fetchall()}
    rows = attribute(tmp_path / "t")["rows"]
    told = [one for row in rows for one in row.get("ids", {}).get("mysql_digest", ())]
    found = {one["id"] for one in told if one["id"] is not None}
    assert found <= known
    assert sum(one.get("why", "").startswith("sql_mode decides") for one in told) == len(without), (
        told
    )
    assert len(found) >= len((*BY_SETTINGS, *IN_SESSIONS[mode])), found


def test_the_table_lists_them(told: Told) -> None:
    digest = told.digests["SELECT 1"]
    assert digest not in qjoule("attribute", str(told.directory)).stdout
    shown = qjoule("attribute", str(told.directory), "--ids", "--top", "200").stdout
    assert f"mysql_digest{digest}" in "".join(shown.split()), "lines may be folded"


def test_csv_has_a_column_of_each(told: Told) -> None:
    out = qjoule("attribute", str(told.directory), "--format", "csv").stdout
    rows = list(csv.DictReader(io.StringIO(out)))
    assert told.digests["SELECT 1"] in {row["mysql_digest"] for row in rows}
    assert all("pt_checksum" in row for row in rows)


def test_ids_are_of_statements(told: Told) -> None:
    done = qjoule("attribute", str(told.directory), "--ids", "--by", "user")
    assert done.returncode == 2
    assert "group by fingerprint" in done.stderr


def test_the_live_view_has_them(told: Told, server: DatabaseServer) -> None:
    digest = told.digests["select a from t where b = 5"]

    def has_it(row: dict[str, Any]) -> bool:
        return digest in {one["id"] for one in row.get("ids", {}).get("mysql_digest", ())}

    with live_top("--ids", "--energy", "none", "--pid", str(server.pid)) as view:
        with closing(server.connect()) as connection, connection.cursor() as cursor:
            cursor.execute("use shop")
            cursor.execute("select a from t where b = 6")
        view.finish(has_it)


def test_a_trace_without_them_says_so(server: DatabaseServer, tmp_path: Path) -> None:
    with recording(tmp_path / "t", "--pid", str(server.pid)), closing(server.connect()) as session:
        session.cursor().execute("select 1")
    assert not (tmp_path / "t" / "ids").exists()
    done = qjoule("attribute", str(tmp_path / "t"), "--ids")
    assert done.returncode == 1
    assert "record it with --ids" in done.stderr
