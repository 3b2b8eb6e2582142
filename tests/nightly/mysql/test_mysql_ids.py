# SPDX-License-Identifier: Apache-2.0
"""The ids of `--ids` are those of a real MySQL and of the real pt-query-digest."""

from __future__ import annotations

import csv
import io
import json
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from qjoule_studies.servers.process import DatabaseServer
from servers.databases import mysql_server, or_skip
from servers.fetched.debian import pt_query_digest
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
#: How pt-query-digest reads a statement of a slow log.
_HEAD = (
    "# Time: 2026-01-01T00:00:00.000000Z\n# User@Host: a[a] @ localhost []  Id: 1\n"
    "# Query_time: 0.1  Lock_time: 0.0 Rows_sent: 1  Rows_examined: 1\nSET timestamp=1;\n"
)


@dataclass
class Told:
    server: DatabaseServer
    directory: Path
    digests: dict[str, str]  #: of the server: by statement
    known: set[str]  #: all digests in the server's own table
    version: str

    def ids(self, trace: str, name: str) -> list[dict[str, Any]]:
        rows = attribute(self.directory / trace)["rows"]
        return [one for row in rows for one in row.get("ids", {}).get(name, ())]


def _servers() -> Iterator[Any]:
    yield pytest.param(None, id="8.0.15")
    for one in releases("mysql"):
        yield pytest.param(one.values[0], id=one.id, marks=pytest.mark.versions)


@pytest.fixture(scope="module", params=list(_servers()))
def told(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Told]:
    """A trace of statements in one session, and one of sessions with other settings."""
    directory, option = tmp_path_factory.mktemp("ids"), "--performance-schema=ON"
    started = running(request.param, option) if request.param else mysql_server(option)
    with ExitStack() as stack:
        server = stack.enter_context(started)
        connection = stack.enter_context(closing(server.connect()))
        cursor = stack.enter_context(connection.cursor())
        for statement in ("create database shop", "use shop", *SETUP):
            cursor.execute(statement)
        with recording(directory / "one", "--pid", str(server.pid), "--ids"):
            for statement in ALL:
                cursor.execute(statement)
                cursor.fetchall()
        with recording(directory / "modes", "--pid", str(server.pid), "--ids"):
            for mode, change in SESSIONS.items():
                with closing(server.connect(database="shop")) as session:
                    session.query(change)
                    for text in (
                        *BY_SETTINGS,
                        *IN_SESSIONS[mode],
                        *WITHOUT_DIGEST_IN_SESSIONS.get(mode, ()),
                    ):
                        session.query(text)
        cursor.execute("select digest from performance_schema.events_statements_summary_by_digest")
        known = {digest for (digest,) in cursor.fetchall()}
        digests = {}
        for statement in ALL:
            cursor.execute("select statement_digest(%s)", (statement,))
            ((digests[statement],),) = cursor.fetchall()
        cursor.execute("select version()")
        ((version,),) = cursor.fetchall()
        assert set(digests.values()) <= known, "they are rows of the server's own table"
        yield Told(server, directory, digests, known, version.partition("-")[0])


def test_every_digest_is_the_servers(told: Told) -> None:
    expected = {told.digests[one] for one in (*WITH_IDS, *WITHOUT_CHECKSUM)}
    ids = told.ids("one", "mysql_digest")
    found = {one["id"] for one in ids if one["id"] is not None}
    assert expected <= found
    assert len(found - expected) <= 4, "this test's own statements"
    whys = [one["why"] for one in ids if one["id"] is None]
    assert len(whys) == len(WITHOUT_DIGEST)
    for why in WITHOUT_DIGEST.values():
        assert any(why in one for one in whys), (why, whys)
    assert {one["of"] for one in ids} == {f"mysql {told.version}"}


def test_a_digest_is_by_the_sessions_settings(told: Told) -> None:
    ids = told.ids("modes", "mysql_digest")
    found = {one["id"] for one in ids if one["id"] is not None}
    assert found <= told.known
    without = {(mode, text) for mode, texts in WITHOUT_DIGEST_IN_SESSIONS.items() for text in texts}
    refused = [one for one in ids if one.get("why", "").startswith("sql_mode decides")]
    assert len(refused) >= len({text for _, text in without}), ids
    assert len(found) >= len({*BY_SETTINGS, *(t for texts in IN_SESSIONS.values() for t in texts)})


def test_every_checksum_is_pt_query_digests(told: Told, tmp_path: Path) -> None:
    with or_skip():
        tool = pt_query_digest()
    log = tmp_path / "slow.log"
    log.write_text("".join(f"{_HEAD}{statement};\n" for statement in ALL))
    done = subprocess.run(
        ["perl", str(tool), "--type", "slowlog", "--limit", "100%", "--output", "json", str(log)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    classes = json.loads(done.stdout)["classes"]
    theirs = {one["checksum"]: one["example"]["query"] for one in classes}
    ids = told.ids("one", "pt_checksum")
    ours = {one["id"] for one in ids if one["id"] is not None}
    certain = {checksum for checksum, query in theirs.items() if query not in WITHOUT_CHECKSUM}
    assert certain <= ours
    assert len(ours - set(theirs)) <= 4, "this test's own statements"
    whys = [one["why"] for one in ids if one["id"] is None]
    for why in WITHOUT_CHECKSUM.values():
        assert any(why in one for one in whys), (why, whys)


def test_table_and_csv_list_them(told: Told) -> None:
    directory, digest = str(told.directory / "one"), told.digests["SELECT 1"]
    assert digest not in qjoule("attribute", directory).stdout
    shown = qjoule("attribute", directory, "--ids", "--top", "200").stdout
    assert f"mysql_digest{digest}" in "".join(shown.split()), "lines may be folded"
    out = qjoule("attribute", directory, "--format", "csv").stdout
    rows = list(csv.DictReader(io.StringIO(out)))
    assert digest in {row["mysql_digest"] for row in rows}
    assert all("pt_checksum" in row for row in rows)
    done = qjoule("attribute", directory, "--ids", "--by", "user")
    assert done.returncode == 2
    assert "group by fingerprint" in done.stderr
