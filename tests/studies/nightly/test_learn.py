# SPDX-License-Identifier: Apache-2.0
"""`qjoule learn` on a real MariaDB: what it repeats, what it cannot do, and what it records."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pymysql
import pytest

from qjoule.errors import QjouleError
from qjoule.servers import registry
from qjoule.servers.shapes import fingerprint
from qjoule.studies.connect.postgres import connect_postgres
from qjoule.studies.reading.mysql import ReadOnly
from qjoule.studies.reading.session import open_session
from qjoule.studies.workload import Target, Value
from qjoule.studies.workloads.replay import ALL, Replay
from qjoule.trace.reader import Trace
from servers.mariadb import connect_mysql
from servers.process import DatabaseServer
from tracing.animated_rapl import AnimatedRapl, animated_rapl
from tracing.recording import Recorder, qjoule

pytestmark = [pytest.mark.root, pytest.mark.server]
COUNT = "SELECT count(*) FROM numbers WHERE n % 7 = 3"
SORT = "SELECT n, sha2(n, 256) FROM numbers ORDER BY 2 LIMIT 5"
PLAIN = "SELECT max(n) FROM numbers"
STATEMENTS = (COUNT, SORT, PLAIN)


def fingerprint_of(sql: str) -> str:
    return fingerprint(sql.encode(), registry.dialect("mysql")).fingerprint


@pytest.fixture(scope="module")
def target(mariadb: DatabaseServer) -> Iterator[Target]:
    with closing(connect_mysql(mariadb, True, {})) as client, client.cursor() as cursor:
        cursor.execute("CREATE DATABASE IF NOT EXISTS learn")
        cursor.execute("USE learn")
        cursor.execute("CREATE OR REPLACE TABLE numbers (n INT PRIMARY KEY)")
        cursor.execute("INSERT INTO numbers SELECT seq FROM seq_1_to_5000")
        yield Target(
            "mariadb", mariadb.pid, "127.0.0.1", mariadb.port, user="root", database="learn"
        )
        cursor.execute("DROP DATABASE learn")


def rows(target: Target) -> int:
    client = pymysql.connect(host=target.host, port=target.port, user="root")
    with closing(client), client.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM learn.numbers")
        found: Any = cursor.fetchone()
    return int(found[0])


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO numbers VALUES (-1)",
        "DELETE FROM numbers",
        "CREATE TABLE more (n INT)",
        "DROP TABLE numbers",
        "UPDATE numbers SET n = n + 10000",
    ],
)
def test_the_server_itself_refuses_what_writes(target: Target, sql: str) -> None:
    """Even if the check of the text had missed it."""
    before = rows(target)
    with closing(open_session(target, 5.0)) as session:
        assert session.ask(COUNT)
        assert not session.ask(sql)
        assert session.ask(COUNT), "the session still works"
    assert rows(target) == before


def test_the_server_ends_a_long_statement(target: Target) -> None:
    begin_s = time.monotonic()
    with closing(open_session(target, 0.2)) as session:
        assert not session.ask("SELECT count(*) FROM numbers a, numbers b, numbers c")
    assert time.monotonic() - begin_s < 30.0


def test_postgres_refuses_what_writes_too(postgres: DatabaseServer) -> None:
    where = Target("postgres", postgres.pid, "127.0.0.1", postgres.port, user="postgres")
    where = replace(where, database="postgres")
    with closing(connect_postgres(where, "")) as client:
        client.execute("CREATE TABLE IF NOT EXISTS learn_numbers AS SELECT 1 AS n")
    with closing(open_session(where, 0.5)) as session:
        asked = session.asked()
        assert session.ask("SELECT n FROM learn_numbers")
        for sql in ("DELETE FROM learn_numbers", "CREATE TABLE more (n INT)", "SELECT pg_sleep(9)"):
            assert not session.ask(sql)
        assert session.ask("SELECT n FROM learn_numbers")
        assert session.asked() >= asked
    with closing(connect_postgres(where, "")) as client:
        client.execute("DROP TABLE learn_numbers")


def test_a_server_that_is_not_there() -> None:
    away = Target("mariadb", 0, "127.0.0.1", 1, user="root", database="learn")
    with pytest.raises(QjouleError, match="read-only session"):
        open_session(away, 1.0)


def test_each_statement_alone_and_together(target: Target) -> None:
    options: dict[str, Value] = {"statements": json.dumps(STATEMENTS), "seconds": 8.0}
    begin_s = time.monotonic()
    outcome = Replay().run(target, {**options, "more_statements": 9900.0, "waiting": 10_000.0})
    assert time.monotonic() - begin_s < 30.0
    assert outcome.errors == 0
    assert set(outcome.commands) == {"0", "1", "2", ALL}
    assert outcome.operations == sum(one.operations for one in outcome.commands.values())
    assert not outcome.notes


def test_it_stops_when_others_ask_for_more(target: Target) -> None:
    options: dict[str, Value] = {"statements": json.dumps([PLAIN]), "seconds": 60.0}
    options["waiting"] = 10_000.0
    asked: list[int] = []
    original = ReadOnly.asked

    def more(session: Any) -> int:
        """As if others had begun to ask for a thousand statements a look."""
        asked.append(1)
        return original(session) + (1000 * len(asked) if len(asked) > 6 else 0)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ReadOnly, "asked", more)
        outcome = Replay().run(target, options)
    assert outcome.wall_s < 50.0
    assert "others ask for" in outcome.notes[0]


@pytest.fixture(scope="module")
def rapl() -> Iterator[AnimatedRapl]:
    with animated_rapl(idle_w=30.0, shared_w=12.0, cpu_w=9.0) as running:
        yield running


@pytest.fixture(scope="module")
def trace(target: Target, rapl: AnimatedRapl, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording of ordinary work: all statements in turn, and one that writes."""
    directory = tmp_path_factory.mktemp("learn") / "shop.qjoule"
    options = ("--pid", str(target.pid), "--energy", rapl.option)
    recorder = Recorder(directory, *options)
    recorder.attached()
    end_s = time.monotonic() + 4.0
    with (
        closing(
            pymysql.connect(host=target.host, port=target.port, user="root", database="learn")
        ) as client,
        client.cursor() as cursor,
    ):
        while time.monotonic() < end_s:
            for sql in (*STATEMENTS, "DO 1"):
                cursor.execute(sql)
                cursor.fetchall()
    recorder.stop()
    return directory


def learn(trace: Path, target: Target, rapl: AnimatedRapl, *more: str, **options: Any) -> Any:
    where = ("--port", str(target.port), "--user", "root", "--database", "learn")
    given = ("--shapes", str(trace), "--energy", rapl.option, *where, "--waiting", "9999")
    return qjoule("learn", str(target.pid), *given, "--more-statements", "9900", *more, **options)


def test_it_learns_from_a_trace(
    trace: Path, target: Target, rapl: AnimatedRapl, tmp_path: Path
) -> None:
    file = tmp_path / "s.sql"
    file.write_text(f"{COUNT}\n{SORT}\nDELETE FROM numbers\n")
    before, out = rows(target), tmp_path / "learned.qjoule"
    options = ("--statements", str(file), "-o", str(out), "--seconds", "12", "--yes")
    done = learn(trace, target, rapl, *options)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    for sql in STATEMENTS:
        assert fingerprint_of(sql) in done.stdout
    assert "afterwards to about ±" in done.stdout
    assert "the trace has no such statement: DELETE FROM numbers" in done.stderr
    assert rows(target) == before
    calls = Trace(out).pandas("queries")["fingerprint"].value_counts()
    assert all(calls[fingerprint_of(sql)] >= 5 for sql in STATEMENTS)
    texts = "".join(str(text) for text in Trace(out).pandas("shapes")["text"])
    assert "% 7" not in texts, "literals stay home"


def test_nothing_runs_unless_agreed(
    trace: Path, target: Target, rapl: AnimatedRapl, tmp_path: Path
) -> None:
    out = tmp_path / "learned.qjoule"
    done = learn(trace, target, rapl, "-o", str(out), input="n\n")
    assert done.returncode == 130
    assert "Repeat them on mariadb" in done.stderr
    assert not out.exists()


def test_without_a_statement_there_is_nothing_to_learn(
    target: Target, rapl: AnimatedRapl, tmp_path: Path, trace: Path
) -> None:
    file = tmp_path / "s.sql"
    file.write_text("UPDATE numbers SET n = 1\n")
    empty = tmp_path / "empty.qjoule"
    empty.mkdir()
    (empty / "meta.json").write_text((trace / "meta.json").read_text())
    done = learn(empty, target, rapl, "--statements", str(file))
    assert done.returncode == 1
    assert "no statement can be repeated" in done.stderr.splitlines()[-1]
