# SPDX-License-Identifier: Apache-2.0
"""Sessions that were opened, and statements that were prepared, before the recording began."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from qjoule.contract import QueryFlag
from root.support import postgres_client as wire
from root.support.postgres_client import PostgresClient, postgres_client
from root.support.recording import Run, attribute, both_rungs, recording
from servers.process import DatabaseServer

pytestmark = [pytest.mark.root, pytest.mark.server]

STATEMENTS, SESSIONS, TURNS = 12, 4, 3
LONG = b"select 1 as m_long" + b", 1 as m_column" * 100  #: longer than track_activity_query_size


def _name(number: int) -> bytes:
    return b"S_%d" % number


def _statement(number: int) -> bytes:
    return b"select 'secret' as m_literal, 1 as m_before_%d" % number


def _shape(number: int) -> str:
    return f"select ? as m_literal, ? as m_before_{number}"


def _prepare(client: PostgresClient, name: bytes, statement: bytes) -> None:
    assert not client.exchange(wire.parse(statement, name), wire.SYNC)["E"]


def _run(client: PostgresClient, *names: bytes) -> Counter[str]:
    """Executes prepared statements in one request."""
    messages = [part for name in names for part in (wire.bind(name), wire.execute())]
    return client.exchange(*messages, wire.SYNC)


@contextmanager
def _clients(server: DatabaseServer) -> Iterator[list[PostgresClient]]:
    with ExitStack() as stack:
        clients = [stack.enter_context(postgres_client(server.port)) for _ in range(SESSIONS)]
        for client in clients:
            for number in range(STATEMENTS):
                _prepare(client, _name(number), _statement(number))
        yield clients


def test_statements_prepared_before_have_their_text(
    postgres: DatabaseServer, tmp_path: Path
) -> None:
    """From the first execution on, and in every turn, on both rungs."""
    with _clients(postgres) as clients, both_rungs(tmp_path, postgres.pid):
        for _ in range(TURNS):
            for client in clients:
                for number in range(STATEMENTS):
                    _run(client, _name(number))
    for rung in ("socket", "symbol"):
        run = Run(tmp_path / rung)
        assert run.loss == {}, rung
        expected = {_shape(number): SESSIONS * TURNS for number in range(STATEMENTS)}
        assert run.executions() == Counter(expected), rung
        assert run.flagged(QueryFlag.NO_TEXT).empty, rung
        assert set(run.having("m_before")["user"]) == {"postgres"}
        assert set(run.having("m_before")["database"]) == {"postgres"}


def test_a_name_that_is_used_again_has_its_new_text(
    postgres: DatabaseServer, tmp_path: Path
) -> None:
    """Statements are deallocated and prepared again, both ways; others do not exist at all."""
    with _clients(postgres) as (one, *_), recording(tmp_path / "t", *_options(postgres)):
        _run(one, _name(0))
        one.exchange(wire.message("C", b"S" + _name(0) + b"\0"), wire.SYNC)
        _prepare(one, _name(0), b"select 1 as m_new")
        _run(one, _name(0))
        one.exchange(wire.query(b"deallocate " + b'"S_1"'))
        assert _run(one, _name(1))["E"]
        _prepare(one, _name(1), b"select 1 as m_newer")
        _run(one, _name(1))
        assert _run(one, b"m_unknown")["E"]
    run = Run(tmp_path / "t")
    assert run.executions() == {
        _shape(0): 1,
        "select ? as m_new": 1,
        "select ? as m_newer": 1,
        'deallocate "S_1"': 1,
        **{text: 1 for text in run.executions() if "prepared before tracing" in text},
    }
    failed = run.queries[run.queries["status"] == "error"]
    assert not failed["text"].astype("string").str.contains("m_before", na=False).any()


def test_a_pipeline_has_no_text_but_teaches_its_last_one(
    postgres: DatabaseServer, tmp_path: Path
) -> None:
    with _clients(postgres) as (one, *_), recording(tmp_path / "t", *_options(postgres)):
        _run(one, _name(0), _name(1))
        _run(one, _name(1))
        _run(one, _name(0))
        client_portals = [wire.bind(_name(2), b"a"), wire.bind(_name(3), b"b")]
        one.exchange(*client_portals, wire.execute(0, b"a"), wire.execute(0, b"b"), wire.SYNC)
        _run(one, _name(3))
    run = Run(tmp_path / "t")
    assert {text: n for text, n in run.executions().items() if "m_before" in text} == {
        _shape(0): 1,
        _shape(1): 1,
        _shape(3): 1,
    }


def test_a_text_that_the_server_has_cut_says_so(postgres: DatabaseServer, tmp_path: Path) -> None:
    with _clients(postgres) as (one, *_):
        _prepare(one, b"m", LONG)
        with recording(tmp_path / "t", *_options(postgres)):
            _run(one, b"m")
    run = Run(tmp_path / "t")
    (text,) = run.executions()
    assert text.startswith("select ? as m_long, ? as m_column")
    assert text.endswith("…")
    assert not run.flagged(QueryFlag.TRUNCATED).empty


def test_without_the_servers_list_nothing_is_made_up(
    postgres: DatabaseServer, tmp_path: Path
) -> None:
    with _clients(postgres) as (one, other, *_):
        for client in (one, other):
            client.exchange(wire.query(b"set track_activities = off"))
        with recording(tmp_path / "t", *_options(postgres)):
            for client in (one, other):
                for number in (0, 1, 1):
                    _run(client, _name(number))
    run = Run(tmp_path / "t")
    assert run.having("m_before").empty
    assert sorted(run.executions().values()) == [1, 1, 2, 2]  # a row per session and statement
    sessions = {str(session) for session in run.queries["session"]}
    for text in run.executions():
        said = re.fullmatch(
            r"\(prepared before tracing began: statement 0x\w{16} of session (\d+)\)", text
        )
        assert said is not None, text
        assert said[1] in sessions
    document = attribute(tmp_path / "t")
    assert sum(row["calls"] for row in document["rows"] if "of session" in row["shape"]) == 6
    assert document["coverage"] == 0


def _options(server: DatabaseServer) -> tuple[str, ...]:
    return "--pid", str(server.pid), "--rung", "socket"
