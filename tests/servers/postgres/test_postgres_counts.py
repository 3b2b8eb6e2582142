# SPDX-License-Identifier: Apache-2.0
"""Executions of a real PostgreSQL, recorded on both rungs, equal those of pg_stat_statements."""

from __future__ import annotations

from collections import Counter
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from servers.process import DatabaseServer
from tracing.mysql_story import MARKER, marker_counts
from tracing.postgres_client import FLUSH, SYNC, bind, execute, parse, postgres_client, query
from tracing.recording import Run, both_rungs, recording

pytestmark = [pytest.mark.root, pytest.mark.server]

TURNS = 20
#: pg_stat_statements distinguishes names of tables, but not of columns.
TABLES = {
    **{"m_simple": 1, "m_extended": 1, "m_prepared": 1, "m_kept": 1, "m_nothing": 1},
    **{"m_same": 1, "m_other": 1, "m_inside": 1, "m_many": 1, "m_failing_pipe": 1},
    **{"m_declared": 950, "m_filled": 1, "m_by_name": 1, "m_fails": 1, "m_before_it": 1},
    **{"m_aborted": 1, "m_after_it": 1, "m_portal": 20, "m_between": 1, "m_only_parsed": 1},
    **{"m_multi": 1},
}
FUNCTION = """create function m_adds(n int) returns int language plpgsql as $$
declare one record; total int := 0; begin
  for one in select generate_series(1, n) as m_within loop total := total + 1; end loop;
  begin perform 1 / 0 as m_within; exception when division_by_zero then null; end;
  return total; end $$"""
PROCEDURE = """create procedure m_commits() language plpgsql as $$
begin
  insert into m_kept values (1); rollback;
  insert into m_kept values (2); commit;
end $$"""
FAILS = "select 1 / (i - 1) from m_fails"


def _protocols(connection: Any) -> None:
    for value in range(TURNS):
        connection.execute(f"select {value} from m_simple")
        connection.execute("select %s::int from m_extended", [value], prepare=False)
        connection.execute("select %s::int from m_prepared", [value], prepare=True)
        connection.execute("insert into m_kept values (%s) returning 1", [value], prepare=True)
        connection.execute("select i from m_nothing where false")


def _pipelines(connection: Any) -> None:
    for prepare in (False, True):
        for turn in range(TURNS // 4):
            with connection.pipeline() as pipeline:
                for value in range(7):
                    connection.execute("select %s::int from m_same", [value], prepare=prepare)
                    if value % 3 == turn % 3:
                        connection.execute("select %s::int from m_other", [value], prepare=prepare)
                    if value == 4:
                        pipeline.sync()
            with connection.transaction(), connection.pipeline():
                connection.execute("select %s::int from m_inside", [turn], prepare=prepare)
    with connection.cursor() as cursor:
        cursor.executemany("insert into m_many values (%s)", [(n,) for n in range(TURNS)])
    with suppress(psycopg.Error), connection.pipeline():
        for value in (1, 0, 1):  # the server skips the last one
            connection.execute("select i / %s::int from m_failing_pipe", [value], prepare=True)


def _cursors_and_copies(connection: Any) -> None:
    connection.autocommit = False
    with connection.cursor(name="m_cursor") as cursor:
        cursor.itersize = 100
        cursor.execute("select i from m_declared")
        assert sum(1 for _ in cursor) == 950
    connection.commit()
    connection.autocommit = True
    with connection.cursor() as cursor:
        with cursor.copy("copy m_filled from stdin") as copy:
            for number in range(2_000):
                copy.write_row((number,))
        with cursor.copy("copy m_filled to stdout") as copy:
            assert sum(len(block) for block in copy)


def _functions_and_errors(connection: Any) -> None:
    for _ in range(3):
        connection.execute("select m_adds(5)")
        connection.execute("call m_commits()")
        connection.execute("do $$ begin perform 1; end $$")
    connection.execute("prepare m_by_name as select i from m_by_name")
    for _ in range(3):
        connection.execute("execute m_by_name")
        with pytest.raises(psycopg.Error):
            connection.execute(FAILS)
        with pytest.raises(psycopg.Error):
            connection.execute("select m_failing(")
    with suppress(psycopg.Error), connection.transaction():
        connection.execute("select 1 from m_before_it")
        with suppress(psycopg.Error):
            connection.execute(FAILS)
        connection.execute("select 1 from m_aborted")
    with connection.transaction():
        with suppress(psycopg.Error), connection.transaction():
            connection.execute(FAILS)
        connection.execute("select 1 from m_after_it")


def _portals(port: int) -> None:
    many = b"select i from m_portal"
    with postgres_client(port) as client:
        client.exchange(parse(many, b"s"), SYNC)
        for _ in range(TURNS):  # a portal at the address of the last transaction's portal
            client.exchange(query(b"begin"))
            client.exchange(bind(b"s", b"p"), execute(5, b"p"), SYNC)
            client.exchange(bind(b"s", b"q"), execute(9, b"q"), execute(1, b"p"), SYNC)
            client.exchange(query(b"select 1 from m_between"))
            for _ in range(2):
                assert client.exchange(execute(5, b"p"), SYNC)["D"] == 5
            client.exchange(execute(9, b"q"), execute(2, b"p"), bind(b"s"), execute(), SYNC)
            client.send(bind(b"s"), execute(4), FLUSH)
            client.replies("s")
            client.exchange(execute(0), SYNC)
            client.exchange(query(b"commit"))
        client.exchange(parse(b"select 1 from m_only_parsed", b"t"), SYNC)
        client.exchange(query(b"; ".join([b"select 1 from m_multi"] * 3)))


@pytest.fixture(scope="module")
def told(
    postgres: DatabaseServer, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Counter[str], dict[str, Run]]:
    """The counts of pg_stat_statements by marker, and those of each rung."""
    directory = tmp_path_factory.mktemp("counts")
    with closing(postgres.connect()) as observer:
        observer.execute("create extension if not exists pg_stat_statements")
        for table, rows in TABLES.items():
            observer.execute(f"drop table if exists {table}")
            observer.execute(f"create table {table} as select generate_series(1, {rows}) as i")
        observer.execute(FUNCTION)
        observer.execute(PROCEDURE)
        observer.execute("select pg_stat_statements_reset()")
        with both_rungs(directory, postgres.pid):
            with closing(postgres.connect(tcp=True)) as connection:
                _protocols(connection)
                _pipelines(connection)
                _cursors_and_copies(connection)
                _functions_and_errors(connection)
            _portals(postgres.port)
        counted: Counter[str] = Counter()
        rows = observer.execute("select query, calls from pg_stat_statements").fetchall()
        for text, calls in rows:
            if "m_" in text or text.startswith("do "):
                found = MARKER.search(text)
                counted[found[0] if found else "do"] += calls
        observer.execute("drop function m_adds; drop procedure m_commits")
        observer.execute(f"drop table {', '.join(TABLES)}")
    return counted, {rung: Run(directory / rung) for rung in ("socket", "symbol")}


@pytest.mark.parametrize("rung", ["socket", "symbol"])
def test_executions_are_those_of_pg_stat_statements(
    told: tuple[Counter[str], dict[str, Run]], rung: str
) -> None:
    """It counts what was executed to its end: here that is everything that did not fail."""
    counted, runs = told
    run, expected = runs[rung], counted.copy()
    executed = marker_counts(run.queries[~run.queries["status"].isin(["error"])])
    executed["do"] = run.executions()["do ?"]
    # It counts each statement of a text, which is one query to us. It does not count PREPARE.
    assert expected.pop("m_multi") == 3 * executed.pop("m_multi") == 3
    executed["m_by_name"] -= 1
    if rung == "socket":  # in one request with different statements, it shows none
        for marker in ("m_same", "m_other", "m_inside", "m_many", "m_failing_pipe", "m_portal"):
            del expected[marker]
            executed.pop(marker, None)
    assert executed == expected
    assert counted["m_portal"] == 4 * TURNS
    assert counted["m_same"] == 7 * (TURNS // 4) * 2
    assert run.loss == {}


def test_what_failed_is_told_by_symbols_too(told: tuple[Counter[str], dict[str, Run]]) -> None:
    _, runs = told
    symbol = runs["symbol"].queries
    failed = symbol[symbol["status"].isin(["error"]) & symbol["text"].notna()]
    found = Counter(match[0] for text in failed["text"] if (match := MARKER.search(text)))
    assert found == {"m_fails": 5, "m_failing": 3, "m_aborted": 1, "m_failing_pipe": 1}


def test_rows_that_are_fetched_in_later_requests(postgres: DatabaseServer, tmp_path: Path) -> None:
    """As drivers with a fetch size do: a portal, and one Execute and Sync for each part."""
    many = b"select i as m_portal from generate_series(1, 20) i"
    with (
        recording(tmp_path / "t", "--pid", str(postgres.pid), "--rung", "socket"),
        postgres_client(postgres.port) as client,
    ):
        client.exchange(query(b"begin"))
        client.exchange(parse(many), bind(portal=b"p"), execute(5, b"p"), SYNC)
        client.exchange(query(b"select 1 as m_between"))
        for _ in range(3):
            assert client.exchange(execute(5, b"p"), SYNC)["D"] == 5
        client.exchange(query(b"commit"))
    run = Run(tmp_path / "t")
    assert marker_counts(run.queries) == {"m_portal": 1, "m_between": 1}
    assert len(run.having("m_portal")) == 4
    assert run.loss == {}
