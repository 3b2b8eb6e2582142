# SPDX-License-Identifier: Apache-2.0
"""Rows, errors and names of PostgreSQL's queries, compared with pg_stat_statements and the
clients' view.
"""

from __future__ import annotations

import re
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest

from qjoule_studies.servers.process import DatabaseServer
from tracing.postgres_client import SYNC, bind, execute, parse, postgres_client, query
from tracing.recording import Run, both_attach_modes

pytestmark = [pytest.mark.beside, pytest.mark.root, pytest.mark.server]

ATTACH_MODES = ("socket", "symbol")
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
USERS, DATABASES = ("m_ann", "m_ben"), ("m_shop", "m_news", "m_bank")
SHORT_SESSIONS = 300


@dataclass
class Trial:
    runs: dict[str, Run]
    counted: dict[str, tuple[int, int]]  #: pg_stat_statements: (calls, rows)
    short: Counter[tuple[str, ...]]  #: short sessions by user, database and application


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


def _application_names(server: DatabaseServer) -> None:
    """Set at login and by each SET: poolers SET it for the client that borrows a connection."""
    with closing(server.connect(application_name="m_first")) as connection:
        connection.execute("select 1 as m_as_first")
        connection.execute("set application_name = 'm_second'")
        connection.execute("select 1 as m_as_second")
        with pytest.raises(psycopg.Error):
            connection.execute("set application_name = 'm_' nonsense")
        connection.execute("select 1 as m_as_second")
        connection.execute("reset application_name")
        connection.execute("select 1 as m_as_first")
    with postgres_client(server.port) as client:
        client.exchange(parse(b"set application_name to m_third"), bind(), execute(), SYNC)
        client.exchange(query(b"select 1 as m_as_third"))


def _short_sessions(server: DatabaseServer) -> Counter[tuple[str, ...]]:
    """Each ends before anyone could look into /proc: the backend's title comes with its event."""
    sent: Counter[tuple[str, ...]] = Counter()
    for number in range(SHORT_SESSIONS):
        user, database = USERS[number % 2], DATABASES[number % 3]
        options = {"user": user, "dbname": database, "application_name": f"m_app_{number % 5}"}
        with closing(server.connect(tcp=bool(number % 7), **options)) as client:
            client.execute("select 1 as m_short")
        sent[user, database, f"m_app_{number % 5}"] += 1
    return sent


@pytest.fixture(scope="module")
def trial(postgres: DatabaseServer, tmp_path_factory: pytest.TempPathFactory) -> Trial:
    directory = tmp_path_factory.mktemp("outcomes")
    with (
        postgres.connect() as connection,
        closing(postgres.connect(application_name="m_earlier")) as earlier,
    ):
        connection.execute("create extension if not exists pg_stat_statements")
        for name in DATABASES:
            connection.execute(f"create database {name}")
        for name in USERS:
            connection.execute(f"create user {name} superuser")
        connection.execute("drop table if exists m_outcomes, m_rows_more")
        connection.execute("create table m_outcomes (a int primary key, b text)")
        connection.execute("create table m_rows_more (a int)")
        connection.execute(
            f"insert into m_outcomes select i, 'text ' || i from generate_series(0, {MANY - 1}) i"
        )
        connection.execute("select pg_stat_statements_reset()")
        with both_attach_modes(directory, postgres.pid):
            for tcp in (False, True):
                for prepare in (None, True):
                    with closing(postgres.connect(tcp=tcp)) as client:
                        _statements(client, prepare)
                        _failures(client)
            rows = connection.execute("select query, calls, rows from pg_stat_statements")
            counted: dict[str, tuple[int, int]] = {}
            for text, calls, number in rows.fetchall():
                if marker := MARKER.search(text):
                    counted[_plain(marker, text)] = (calls, number)
            earlier.execute("select 1 as m_open_before")
            _application_names(postgres)
            short = _short_sessions(postgres)
    return Trial(
        {attach_mode: Run(directory / attach_mode) for attach_mode in ATTACH_MODES}, counted, short
    )


def _plain(marker: re.Match[str], text: str) -> str:
    """The same name for both spellings of a statement: its first word and its marker."""
    word = re.match(r"\w*", text)
    return f"{word[0].lower() if word else ''} {marker[0]}"


def test_rows_are_those_of_pg_stat_statements(trial: Trial) -> None:
    run = trial.runs["socket"]
    rows: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    for statement in run.having("m_rows_").to_dict("records"):
        marker = MARKER.search(statement["text"])
        if marker and statement["executions"]:
            assert statement["status"] == "ok", statement["text"]
            rows[_plain(marker, statement["text"])] += statement["rows"]
            calls[_plain(marker, statement["text"])] += statement["executions"]
    assert {name: (calls[name], rows[name]) for name in calls} == trial.counted
    assert len(trial.counted) == 10
    assert run.loss == trial.runs["symbol"].loss == {}


def test_errors_are_those_that_clients_saw(trial: Trial) -> None:
    queries = trial.runs["socket"].queries
    failed = queries[queries["status"] == "error"]
    expected = Counter(dict.fromkeys(("23505", "QJ123"), 4))
    expected.update({"22012": 8, "42601": 4 + 1, "42P01": 4})
    assert Counter(failed["sqlstate"]) == expected
    assert failed["rows"].isna().all()
    assert queries[queries["status"] != "error"]["sqlstate"].isna().all()


@pytest.mark.parametrize("attach_mode", ATTACH_MODES)
def test_names_of_sessions(trial: Trial, attach_mode: str) -> None:
    run = trial.runs[attach_mode]
    queries = run.having("m_as_")
    names = [text.removeprefix("select ? as m_as_") for text in queries["text"]]
    assert list(queries["application"]) == [f"m_{name}" for name in names]
    short = run.having("m_short")[["user", "database", "application"]]
    assert Counter(map(tuple, short.to_numpy())) == trial.short
    before = run.having("m_open_before")[["user", "database", "application"]]
    assert [tuple(row) for row in before.to_numpy()] == [("postgres", "postgres", "m_earlier")]
