# SPDX-License-Identifier: Apache-2.0
"""Whose sessions a real PostgreSQL has: user, database, application name."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from qjoule.contract import QueryFlag
from servers.process import DatabaseServer
from tracing.postgres_client import SYNC, bind, execute, parse, postgres_client, query
from tracing.recording import Run, attribute, both_rungs, recording

pytestmark = [pytest.mark.beside, pytest.mark.root, pytest.mark.server]

SHORT_SESSIONS = 900
USERS, DATABASES = ("m_ann", "m_ben"), ("m_shop", "m_news", "m_bank")


def test_a_session_that_was_open_before(postgres: DatabaseServer, tmp_path: Path) -> None:
    with closing(postgres.connect(application_name="m_earlier")) as connection:
        connection.execute("prepare m_named as select 1")
        with recording(tmp_path / "t", "--pid", str(postgres.pid), "--rung", "socket"):
            connection.execute("select 1 as m_open_before")
    run = Run(tmp_path / "t")
    (row,) = run.having("m_open_before").to_dict("records")
    assert not row["flags"] & QueryFlag.NO_TEXT
    assert (row["user"], row["database"]) == ("postgres", "postgres"), "by its process's title"
    assert row["application"] == "m_earlier", "from the server's memory"
    assert run.loss == {}


def test_what_an_application_calls_itself(postgres: DatabaseServer, tmp_path: Path) -> None:
    """Set at login and by each SET: poolers SET it for the client that borrows a connection."""
    with both_rungs(tmp_path, postgres.pid):
        with closing(postgres.connect(application_name="m_first")) as connection:
            connection.execute("select 1 as m_as_first")
            connection.execute("set application_name = 'm_second'")
            connection.execute("select 1 as m_as_second")
            with connection.transaction(), pytest.raises(psycopg.Error):
                connection.execute("set application_name = 'm_' nonsense")
                raise AssertionError
            connection.execute("select 1 as m_as_second")
            connection.execute("reset application_name")
            connection.execute("select 1 as m_as_first")
        with postgres_client(postgres.port) as client:
            client.exchange(parse(b"set application_name to m_third"), bind(), execute(), SYNC)
            client.exchange(query(b"select 1 as m_as_third"))
    for rung in ("socket", "symbol"):
        run = Run(tmp_path / rung)
        named = run.having("m_as_")
        wanted = [text.removeprefix("select ? as m_as_") for text in named["text"]]
        assert list(named["application"]) == [f"m_{name}" for name in wanted], rung
        assert set(named["user"]) == {"postgres"}
        assert set(named["database"]) == {"postgres"}
        assert run.loss == {}, rung
    rows = attribute(tmp_path / "socket", "--by", "application")["rows"]
    assert {"m_first", "m_second", "m_third"} <= {row.get("application") for row in rows}


def test_short_sessions_have_every_label(postgres: DatabaseServer, tmp_path: Path) -> None:
    """Each ends before anyone could look into /proc: the backend's title comes with its event."""
    with closing(postgres.connect()) as connection:
        for database in DATABASES:
            connection.execute(f"create database {database}")
        for user in USERS:
            connection.execute(f"create user {user} superuser")
    expected: Counter[tuple[str, ...]] = Counter()
    with both_rungs(tmp_path, postgres.pid):
        for number in range(SHORT_SESSIONS):
            user, database = USERS[number % 2], DATABASES[number % 3]
            options: dict[str, Any] = {"user": user, "dbname": database}
            name = f"m_app_{number % 5}"
            with closing(
                postgres.connect(tcp=bool(number % 7), application_name=name, **options)
            ) as client:
                client.execute("select 1 as m_short")
            expected[user, database, name] += 1
    for rung in ("socket", "symbol"):
        run = Run(tmp_path / rung)
        rows = run.having("m_short")[["user", "database", "application"]]
        assert Counter(map(tuple, rows.to_numpy())) == expected, rung
        assert run.loss == {}, rung
