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
from tracing.recording import attribute, qjoule, recording
from tracing.releases import releases, running

pytestmark = [pytest.mark.beside, pytest.mark.root, pytest.mark.server]

# --------------------------------------------------------------------------------------------------
#
# Statements of many kinds, for comparing their ids with those of a real MySQL and its tools.

SETUP = (
    "create table t (a int primary key auto_increment, b int, c varchar(40), d date, j json)",
    "create table u (a int, b int, `key` int, `a``b` int)",
    "insert into t (b, c, d, j) values (1, 'x', '2020-01-01', '{}'), (2, 'y', null, '[]')",
)

#: Executed on `SETUP`; every one has a digest and a checksum.
WITH_IDS = (
    "SELECT 1",
    "select a from t where b = 5",
    "select a, b, count(*) from t where a in (1,2,3) and b in (4) and c = 'x' group by a order by "
    "b desc limit 10, 20",
    "select t.c, `t`.`a`, `key`, `a``b` from t as t, u where t.c is null and t.d is not null",
    "insert into t (b, c, d) values (1,'x',NULL),(2,'y',NULL),(3,'z','2020-02-02')",
    "insert into u values (-1, +2, - -3, 4), (4, 5, 6, 7)",
    "insert into t (b, c) values (1, upper('a')), (2, upper('b'))",
    "update t set b = b - 1, c = -1, b = b+1 where b = -5 or a = 3 - 4",
    "delete from t where b between -1 and -5 and c like '%a' and not a",
    "select @x, @@global.max_connections, @@session.sql_mode, @`q`, @'w'",
    "select j->'$.a', j->>'$.b' from t",
    "select b'101', x'1f', 0x1f, 1.5e3, .5, _utf8mb4'x', N'x'",
    "select a from t where (a,b) in ((1,2),(3,4)) or (a,b) = (1,2)",
    "select date '2020-01-01', interval 1 day + now(), date_add(now(), interval -1 day)",
    "select now(), current_timestamp, curdate(), max(a), group_concat(distinct a order by b "
    "separator ',') from t",
    "select 'a' 'b' 'c', true, false, null, if(1, 1, null), coalesce(null, null, 1)",
    "select 5 div 2, -a, - 1, -(-1), 3-1, 3 -1, 3- 1, (3)-1 from t",
    "select a from t where a > -1 and a < -1 and b >= -1 and b <= -1 and c = -1 and c <> -1",
    "select t.a from t left join u using (a) join t t3 on t3.a = u.b and t3.b = 5",
    "SELECT t.a, u.b FROM t JOIN u ON u.a = t.a WHERE t.c IN ('new','paid') AND t.d >= "
    "'2020-01-01' ORDER BY t.d DESC LIMIT 50",
    "show variables like 'x%'",
    "set names utf8mb4",
    "start transaction",
    "commit",
    "create table w1 (a int primary key, b varchar(10) default 'x', key k (b))",
    "drop table if exists w1",
    "select /* a note */ a from t where a = 1",
    "select a\n  from t -- another\n where a = 1",
)

#: Executed too; they have no digest, for this reason.
WITHOUT_DIGEST = {
    "select a||b from t": "sql_mode decides what || is",
    "select /*+ no_icp(t) */ a from t": "it has optimizer hints",
    "select /*!40001 sql_no_cache */ 2 from t": "it has code in a comment",
    "create table w2 (a int default null)": "the grammar decides what NULL is",
}

#: Executed too; they have no checksum, for this reason.
WITHOUT_CHECKSUM = {
    "select a from t where c = 'it''s'": "its quotes",
    "select a from t where c = 'a\\'b'": "its quotes",
    "select a as loud from t where b = 0x1F": "a part of a number",
}

#: What makes a session read statements by other settings than the default.
SESSIONS = {
    "ansi": "set sql_mode = 'ANSI'",
    "ansi_quotes": "set sql_mode = 'ANSI_QUOTES'",
    "plain": "set sql_mode = 'NO_BACKSLASH_ESCAPES'",
    "plain_names": "set sql_mode = 'NO_BACKSLASH_ESCAPES,ANSI_QUOTES'",
    "ignore_space": "set sql_mode = 'IGNORE_SPACE'",
    "high_not": "set sql_mode = 'HIGH_NOT_PRECEDENCE'",
    "sjis": "set names sjis",
    "latin1": "set names latin1",
}
#: Every session reads them, each in its own way; they have digests.
BY_SETTINGS = (b"select 'a''b', a from t", b"select c, count(*) from t where b = 1 group by c")
IN_SESSIONS = {
    "ansi": (b'select "a" from "t" where c = \'x\'', b'select t."a" as "from" from t'),
    "ansi_quotes": (b'select "a", "a`b" from u', b"select 'a\\'', \"b\" from u"),
    "plain": (b"select 'a\\', b, 'c' from t", b"select b, a, 'c\\' from t where c = '\\'"),
    "plain_names": (b"select 'a\\', \"b\", 'c' from t",),
    "ignore_space": (b"select max(b) as n from t",),
    "high_not": (b"select max(b) as n from t",),
    "sjis": (b"select a, b from t where c = '\x83\x5c' or c = 'x'",),
    "latin1": (
        b"select x.b from (select b, a as \xe9 from t) as x",
        b"select x.b, 1 from (select b, a as `\xe9\xe8` from t) as x",
    ),
}
#: These too. Their tokens are others in the sessions of these modes, so they have no digest there.
WITHOUT_DIGEST_IN_SESSIONS = {
    "ansi": (b"select count (a) from t",),
    "ignore_space": (b"select count (a) from t", b"select max (a), now () from t"),
    "high_not": (b"select a from t where not a = b", b"select a from t where c is not null"),
}

# ---- the tests -----------------------------------------------------------------------------------

ALL = (*WITH_IDS, *WITHOUT_DIGEST, *WITHOUT_CHECKSUM)
#: How pt-query-digest reads a statement of a slow log.
_HEAD = (
    "# Time: 2026-01-01T00:00:00.000000Z\n# User@Host: a[a] @ localhost []  Id: 1\n"
    "# Query_time: 0.1  Lock_time: 0.0 Rows_sent: 1  Rows_examined: 1\nSET timestamp=1;\n"
)


@dataclass
class Trial:
    server: DatabaseServer
    directory: Path
    digests: dict[str, str]  #: of the server: by statement
    all_digests: set[str]  #: all digests in the server's own table
    version: str

    def ids(self, trace: str, name: str) -> list[dict[str, Any]]:
        rows = attribute(self.directory / trace)["rows"]
        return [entry for row in rows for entry in row.get("ids", {}).get(name, ())]


def _servers() -> Iterator[Any]:
    yield pytest.param(None, id="8.0.15")
    for release in releases("mysql"):
        yield pytest.param(release.values[0], id=release.id, marks=pytest.mark.versions)


@pytest.fixture(scope="module", params=list(_servers()))
def trial(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Trial]:
    """Records statements in one session, and statements in sessions with other settings."""
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
        all_digests = {digest for (digest,) in cursor.fetchall()}
        digests = {}
        for statement in ALL:
            cursor.execute("select statement_digest(%s)", (statement,))
            ((digests[statement],),) = cursor.fetchall()
        cursor.execute("select version()")
        ((version,),) = cursor.fetchall()
        assert set(digests.values()) <= all_digests, "they are rows of the server's own table"
        yield Trial(server, directory, digests, all_digests, version.partition("-")[0])


def test_every_digest_is_the_servers(trial: Trial) -> None:
    expected = {trial.digests[text] for text in (*WITH_IDS, *WITHOUT_CHECKSUM)}
    ids = trial.ids("one", "mysql_digest")
    digests = {entry["id"] for entry in ids if entry["id"] is not None}
    assert expected <= digests
    assert len(digests - expected) <= 4, "this test's own statements"
    whys = [entry["why"] for entry in ids if entry["id"] is None]
    assert len(whys) == len(WITHOUT_DIGEST)
    for why in WITHOUT_DIGEST.values():
        assert any(why in reason for reason in whys), (why, whys)
    assert {entry["of"] for entry in ids} == {f"mysql {trial.version}"}


def test_a_digest_is_by_the_sessions_settings(trial: Trial) -> None:
    ids = trial.ids("modes", "mysql_digest")
    digests = {entry["id"] for entry in ids if entry["id"] is not None}
    assert digests <= trial.all_digests
    without = {(mode, text) for mode, texts in WITHOUT_DIGEST_IN_SESSIONS.items() for text in texts}
    refused = [entry for entry in ids if entry.get("why", "").startswith("sql_mode decides")]
    assert len(refused) >= len({text for _, text in without}), ids
    assert len(digests) >= len(
        {*BY_SETTINGS, *(t for texts in IN_SESSIONS.values() for t in texts)}
    )


def test_every_checksum_is_pt_query_digests(trial: Trial, tmp_path: Path) -> None:
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
    pt_checksums = {entry["checksum"]: entry["example"]["query"] for entry in classes}
    ids = trial.ids("one", "pt_checksum")
    checksums = {entry["id"] for entry in ids if entry["id"] is not None}
    certain = {
        checksum for checksum, query in pt_checksums.items() if query not in WITHOUT_CHECKSUM
    }
    assert certain <= checksums
    assert len(checksums - set(pt_checksums)) <= 4, "this test's own statements"
    whys = [entry["why"] for entry in ids if entry["id"] is None]
    for why in WITHOUT_CHECKSUM.values():
        assert any(why in reason for reason in whys), (why, whys)


def test_table_and_csv_list_them(trial: Trial) -> None:
    directory, digest = str(trial.directory / "one"), trial.digests["SELECT 1"]
    assert digest not in qjoule("attribute", directory).stdout
    table = qjoule("attribute", directory, "--ids", "--top", "200").stdout
    assert f"mysql_digest{digest}" in "".join(table.split()), "lines may be folded"
    out = qjoule("attribute", directory, "--format", "csv").stdout
    rows = list(csv.DictReader(io.StringIO(out)))
    assert digest in {row["mysql_digest"] for row in rows}
    assert all("pt_checksum" in row for row in rows)
    done = qjoule("attribute", directory, "--ids", "--by", "user")
    assert done.returncode == 2
    assert "group by fingerprint" in done.stderr
