# SPDX-License-Identifier: Apache-2.0
"""Rows and errors of PostgreSQL's queries, compared with pg_stat_statements and the
clients' view.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from qjoule.contract import QueryFlag
from servers.process import DatabaseServer
from tracing.postgres_client import FLUSH, SYNC, bind, execute, parse, postgres_client, query
from tracing.recording import Run, both_rungs, recording

pytestmark = [pytest.mark.beside, pytest.mark.root, pytest.mark.server]

MARKER = re.compile(r"m_rows_\w+")
ROUNDS = 50
#: Their replies are far longer than the send buffer of 8 KB. What is known of a reply depends on
#: where its last bytes lie: two in a thousand are cut there.
MANY = 3_000
FAILING = {
    "selec 1 as m_fails": "42601",
    "select a / 0 as m_fails from m_outcomes": "22012",
    # Its rows come first, and more of them than a buffer holds.
    "select 1 / (a - 2500) as m_fails from m_outcomes": "22012",
    "select m_fails from m_nowhere": "42P01",
    "insert into m_outcomes values (1, 'm_fails')": "23505",
    "do $$ begin raise exception 'm_fails' using errcode = 'QJ123'; end $$": "QJ123",
}


def _statements(connection: Any, prepare: bool | None) -> None:
    """Statements with zero, one, some and many rows, writes, and commands without a row count."""
    for value in range(ROUNDS):
        connection.execute("select a from m_outcomes m_rows_one where a = %s", [value])
        connection.execute(
            "select a, b from m_outcomes m_rows_some where a <= %s", [value], prepare=prepare
        )
        connection.execute("update m_outcomes m_rows_update set b = 'x' where a < %s", [value % 7])
    for value in range(0, ROUNDS, 10):
        connection.execute("select * from m_outcomes m_rows_all where a > %s", [value])
        connection.execute("insert into m_rows_more select generate_series(1, %s)", [value])
        connection.execute("delete from m_rows_more")
    with connection.cursor().copy("copy (select b from m_outcomes m_rows_out) to stdout") as copy:
        assert sum(1 for _ in copy.rows()) == MANY
    with connection.cursor().copy("copy m_rows_more from stdin") as copy:
        for value in range(70):
            copy.write_row((value,))
    connection.execute("create table m_rows_made as select * from m_outcomes")
    connection.execute("drop table m_rows_made")


def _failures(connection: Any) -> None:
    for statement, sqlstate in FAILING.items():
        with pytest.raises(psycopg.Error) as failed:
            connection.execute(statement)
        assert failed.value.sqlstate == sqlstate
    with connection.transaction(), pytest.raises(psycopg.Error):
        connection.execute("select m_fails from m_nowhere_in_a_transaction")
        raise AssertionError


@pytest.fixture(scope="module")
def told(postgres: DatabaseServer, tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Any]:
    """The trace, and the counts of pg_stat_statements by marker: (calls, rows)."""
    directory = tmp_path_factory.mktemp("outcomes")
    with postgres.connect() as connection:
        connection.execute("create extension if not exists pg_stat_statements")
        connection.execute("drop table if exists m_outcomes, m_rows_more")
        connection.execute("create table m_outcomes (a int primary key, b text)")
        connection.execute("create table m_rows_more (a int)")
        connection.execute(
            f"insert into m_outcomes select i, 'text ' || i from generate_series(0, {MANY - 1}) i"
        )
        connection.execute("select pg_stat_statements_reset()")
        with recording(directory / "t", "--pid", str(postgres.pid), "--rung", "socket"):
            for tcp in (False, True):
                for prepare in (None, True):
                    with closing(postgres.connect(tcp=tcp)) as client:
                        _statements(client, prepare)
                        _failures(client)
        counted: dict[str, tuple[int, int]] = {}
        for text, calls, rows in connection.execute(
            "select query, calls, rows from pg_stat_statements"
        ):
            if found := MARKER.search(text):
                before = counted.get(text, (0, 0))
                counted[_plain(found, text)] = (before[0] + calls, before[1] + rows)
    return Run(directory / "t"), counted


def _plain(found: re.Match[str], text: str) -> str:
    """The same name for both spellings of a statement: its first word and its marker."""
    word = re.match(r"\w*", text)
    return f"{word[0].lower() if word else ''} {found[0]}"


def test_rows_are_those_of_pg_stat_statements(told: tuple[Run, Any]) -> None:
    run, counted = told
    rows: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    for one in run.queries[run.queries["executions"] > 0].to_dict("records"):
        found = MARKER.search(one["text"] or "")
        if found:
            assert one["status"] == "ok", one["text"]
            rows[_plain(found, one["text"])] += one["rows"]
            calls[_plain(found, one["text"])] += one["executions"]
    assert {name: (calls[name], rows[name]) for name in calls} == counted
    assert len(counted) == 10
    assert run.loss == {}


def test_errors_are_those_that_clients_saw(told: tuple[Run, Any]) -> None:
    run, _ = told
    failed = run.queries[run.queries["status"] == "error"]
    expected = Counter(dict.fromkeys(("42601", "23505", "QJ123"), 4))
    expected.update({"22012": 8, "42P01": 8})
    assert Counter(failed["sqlstate"]) == expected
    assert failed["rows"].isna().all()
    others = run.queries[run.queries["status"] != "error"]
    assert others["sqlstate"].isna().all()
    statements = others[others["command"].isin(["query", "execute", "prepare"])]
    assert set(statements["status"]) == {"ok"}


def test_what_pipelines_and_parts_say(postgres: DatabaseServer, tmp_path: Path) -> None:
    """A pipeline's rows are those of all its statements. If its start is gone, none are
    reported.
    """
    one = [parse(b"select 1 as m_piped"), bind(), execute()]
    many = parse(b"select i as m_parts from generate_series(1, 20) i")
    with (
        recording(tmp_path / "t", "--pid", str(postgres.pid), "--rung", "socket"),
        postgres_client(postgres.port) as client,
    ):
        client.exchange(*one * 5, SYNC)
        client.exchange(*one, FLUSH, *one, SYNC)
        client.exchange(*one, parse(b"select 1 / 0 as m_piped"), bind(), execute(), *one, SYNC)
        client.exchange(query(b"begin"))
        client.exchange(many, bind(portal=b"p"), execute(7, b"p"), SYNC)
        client.exchange(execute(7, b"p"), SYNC)
        client.exchange(execute(0, b"p"), SYNC)
        client.exchange(query(b"rollback"))
        client.exchange(query(b"select 1 as m_two; select 2 union select 3"))
        client.exchange(bind(b"never prepared"), execute(), SYNC)
    run = Run(tmp_path / "t")
    piped = run.having("m_piped").sort_values("begin_ns")
    assert list(piped["rows"].astype(object).where(piped["rows"].notna(), None)) == [5, None]
    parts = run.having("m_parts").sort_values("begin_ns")
    assert list(parts["rows"]) == [7, 7, 6]
    assert list(run.having("m_two")["rows"]) == [3]
    errors = run.queries[run.queries["status"] == "error"].sort_values("begin_ns")
    assert list(errors["sqlstate"]) == ["22012", "26000"]
    assert list(errors["executions"]) == [3, 1]


def test_nothing_is_said_where_replies_are_not_seen(
    postgres: DatabaseServer, tmp_path: Path
) -> None:
    """The symbol rung reports errors only."""
    with (
        recording(tmp_path / "t", "--pid", str(postgres.pid), "--rung", "symbol"),
        postgres.connect() as connection,
    ):
        connection.execute("select 1 as m_silent")
    (row,) = Run(tmp_path / "t").having("m_silent").to_dict("records")
    assert not row["flags"] & (QueryFlag.OK | QueryFlag.ERROR | QueryFlag.ROWS)


REFUSED = ("selec 1 as m_refused", "select m_refused from m_no_such_table")
REFUSED_EACH = 25


def test_refused_statements_are_calls_on_both_rungs(
    postgres: DatabaseServer, tmp_path: Path
) -> None:
    """Text, calls and errors; the server counts a transaction rolled back for each."""
    with closing(postgres.connect()) as observer:
        before = _rolled_back(observer)
        with both_rungs(tmp_path, postgres.pid), postgres_client(postgres.port) as client:
            for statement in REFUSED:
                for _ in range(REFUSED_EACH):
                    assert client.exchange(query(statement.encode()))["E"]
                    at_once = parse(statement.encode()), bind(), execute(), SYNC
                    assert client.exchange(*at_once)["E"]
            client.exchange(query(b"begin"))
            client.exchange(query(b"select 1 / 0 as m_refused_zero"))
            assert client.exchange(query(b"select 1 as m_refused_aborted"))["E"]
            client.exchange(query(b"rollback"))
        refused = len(REFUSED) * 2 * REFUSED_EACH
        assert _rolled_back(observer) - before == refused + 1
    shapes = {"selec ? as m_refused": 50, "select m_refused from m_no_such_table": 50}
    shapes |= {"select ? / ? as m_refused_zero": 1, "select ? as m_refused_aborted": 1}
    for rung in ("socket", "symbol"):
        run = Run(tmp_path / rung)
        assert run.executions(status="error") == shapes, rung
        assert run.loss == {}, rung


def _rolled_back(observer: Any) -> int:
    """Of all databases. A backend reports its own within a second, or when it ends."""
    time.sleep(1.5)
    observer.execute("select pg_stat_clear_snapshot()")
    (row,) = observer.execute("select sum(xact_rollback) from pg_stat_database").fetchall()
    return int(row[0])
