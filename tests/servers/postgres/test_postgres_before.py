# SPDX-License-Identifier: Apache-2.0
"""Sessions that were opened, and statements that were prepared, before the recording began."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from qjoule.contract import QueryFlag
from servers.process import DatabaseServer
from tracing import postgres_client as wire
from tracing.postgres_client import PostgresClient, postgres_client
from tracing.recording import Run, attribute, both_rungs, recording

pytestmark = [pytest.mark.beside, pytest.mark.root, pytest.mark.server]

STATEMENTS, SESSIONS, TURNS = 12, 4, 3
LONG = b"select 1 as m_long" + b", 1 as m_column" * 100
LONG_NAME = b"n" * 63  #: as long as the server keeps
POOL, POOL_STATEMENTS = 40, 600


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
        "deallocate ?": 1,
        "?": 2,  # those that do not exist
    }
    failed = run.queries[run.queries["status"] == "error"]
    assert not failed["text"].astype("string").str.contains("m_before", na=False).any()


def test_pipelines_portals_and_long_texts(postgres: DatabaseServer, tmp_path: Path) -> None:
    """A pipeline of different statements has no text, but both are known from then on."""
    with _clients(postgres) as (one, *_):
        _prepare(one, b"m", LONG)
        _prepare(one, LONG_NAME, b"select 1 as m_long_name")
        with recording(tmp_path / "t", *_options(postgres)):
            _run(one, _name(0), _name(1))
            _run(one, _name(1))
            _run(one, _name(2), _name(2))
            portals = [wire.bind(_name(3), b"a"), wire.bind(_name(3), b"b")]
            one.exchange(*portals, wire.execute(0, b"b"), wire.SYNC)
            _run(one, b"m")
            _run(one, LONG_NAME)
    run = Run(tmp_path / "t")
    assert run.executions() == {
        "?": 2,
        _shape(1): 1,
        _shape(2): 2,
        _shape(3): 1,
        LONG.replace(b"1", b"?").decode(): 1,
        "select ? as m_long_name": 1,
    }
    assert run.flagged(QueryFlag.TRUNCATED).empty


def test_what_stays_unknown_is_a_row_of_its_own(postgres: DatabaseServer, tmp_path: Path) -> None:
    """The unnamed statement is not in a backend's table."""
    with _clients(postgres) as clients:
        for client in clients:
            _prepare(client, b"", b"select 1 as m_unnamed")
        with recording(tmp_path / "t", *_options(postgres)):
            for client in clients:
                _run(client, b"")
                _run(client, b"")
    run = Run(tmp_path / "t")
    sessions = {str(session) for session in run.queries["session"]}
    assert len(sessions) == SESSIONS
    words = "(prepared before tracing began: the unnamed statement of session "
    assert run.executions() == {f"{words}{session})": 2 for session in sessions}
    document = attribute(tmp_path / "t")
    assert sum(row["calls"] for row in document["rows"] if "of session" in row["shape"]) == 8
    assert document["coverage"] == 0


def test_a_large_pool(postgres: DatabaseServer, tmp_path: Path) -> None:
    """More statements than the first segment of the server's table has buckets."""
    with ExitStack() as stack:
        clients = [stack.enter_context(postgres_client(postgres.port)) for _ in range(POOL)]
        for client in clients:
            names = [b"%d_%s" % (n, b"n" * (n % 61)) for n in range(POOL_STATEMENTS)]
            client.exchange(
                *(wire.parse(_statement(n), name) for n, name in enumerate(names)), wire.SYNC
            )
        with recording(tmp_path / "t", *_options(postgres), "--ring-mb", "64"):
            for client in clients:
                for name in names:
                    _run(client, name)
    run = Run(tmp_path / "t")
    assert run.loss == {}
    assert run.executions() == Counter({_shape(n): POOL for n in range(POOL_STATEMENTS)})
    assert run.flagged(QueryFlag.NO_TEXT).empty


def _options(server: DatabaseServer) -> tuple[str, ...]:
    return "--pid", str(server.pid), "--rung", "socket"
