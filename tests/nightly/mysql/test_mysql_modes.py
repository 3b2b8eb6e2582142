# SPDX-License-Identifier: Apache-2.0
"""Settings of sessions that decide what is a literal: no literal shows under any of them.

Every literal has the word `secret`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from servers.process import DatabaseServer
from tracing.live_top import live_top
from tracing.mysql_client import MysqlClient, MysqlError, mysql_client
from tracing.mysql_modes import ANSI, MODES, PLAIN, STATEMENTS
from tracing.recording import Run, both_rungs, recording

pytestmark = [pytest.mark.beside, pytest.mark.root, pytest.mark.server]

CHARSETS = {"sjis": 13, "cp932": 95, "gbk": 28, "big5": 1}  #: with a collation of each
#: In every one of these a backslash is the second byte of a character.
WIDE = {"sjis": b"\x95\x5c", "cp932": b"\x95\x5c", "gbk": b"\xb1\x5c", "big5": b"\xa5\x5c"}
NO_CLIENTS = (b"ucs2", b"utf16", b"utf32")

SET_MODE = ("set sql_mode = ?", b"set sql_mode = '%s'")


@pytest.fixture(params=["mariadb", "mysql80"])
def server(request: pytest.FixtureRequest) -> DatabaseServer:
    found: DatabaseServer = request.getfixturevalue(request.param)
    return found


@contextmanager
def _traced(server: DatabaseServer, directory: Path, *options: str) -> Iterator[list[Run]]:
    """Both rungs; their traces are there after the block. No secret is in any of them."""
    runs: list[Run] = []
    with both_rungs(directory, server.pid, options=options):
        yield runs
    runs += [Run(directory / "socket"), Run(directory / "symbol")]
    for run in runs:
        assert run.loss == {}
        assert "secret" not in str(run.text_of)
        assert "secret" not in str(run.trace.pandas("queries").to_dict())


def _set_mode(client: MysqlClient, mode: bytes) -> None:
    client.query(SET_MODE[1] % mode)


def test_every_mode_of_a_session(server: DatabaseServer, tmp_path: Path) -> None:
    """Set before tracing, set in each session, and changed again and again in one session."""
    with ExitStack() as stack:
        before = {mode: stack.enter_context(mysql_client(server.socket)) for mode in MODES}
        for mode, client in before.items():
            _set_mode(client, mode)
        with _traced(server, tmp_path) as runs, mysql_client(server.socket) as one:
            for mode, client in before.items():
                client.query(STATEMENTS[mode][0])
            for mode in MODES * 2:
                _set_mode(one, mode)
                one.query(STATEMENTS[mode][0])
                one.execute(one.prepare(STATEMENTS[mode][0]))
    for run in runs:
        queries = run.executions(command="query")
        assert queries == Counter(
            {SET_MODE[0]: 8, **{shape: 3 for _, shape in STATEMENTS.values()}}
        )
        assert run.executions(command="execute") == {s: 2 for _, s in STATEMENTS.values()}


def test_the_global_mode_is_that_of_later_sessions(server: DatabaseServer, tmp_path: Path) -> None:
    with mysql_client(server.socket) as old:
        _set_mode(old, b"")
        try:
            with _traced(server, tmp_path) as runs:
                old.query(b"set global sql_mode = '%s'" % PLAIN)
                with mysql_client(server.socket) as new:
                    new.query(STATEMENTS[PLAIN][0])
                old.query(STATEMENTS[b""][0])
        finally:
            old.query(b"set global sql_mode = default")
    for run in runs:
        assert run.executions(text=STATEMENTS[PLAIN][1])
        assert run.executions(text=STATEMENTS[b""][1])


@pytest.mark.parametrize("charset", CHARSETS)
def test_characters_that_end_in_a_backslash(
    server: DatabaseServer, charset: str, tmp_path: Path
) -> None:
    """The client names its character set in its login, or by a statement."""
    wide = WIDE[charset]
    hidden = b"select 'a%s', 'secret', '%s\\'secret' as m_hidden" % (wide, wide)
    name = charset.encode()
    names = b"set names %s" % name, b"set character_set_client = '%s'" % name
    with _traced(server, tmp_path) as runs:
        with mysql_client(server.socket, collation=CHARSETS[charset]) as client:
            client.query(hidden)
        with mysql_client(server.socket) as client:
            for change in names:
                client.query(change)
                client.query(hidden)
            client.query(b"set names utf8")
            client.query(b"select 'a\\', secret' as m_again")
    for run in runs:
        assert run.executions(text="select ?, ?, ? as m_hidden") == {
            "select ?, ?, ? as m_hidden": 3
        }
        assert run.executions(text="select ? as m_again")


def test_no_client_speaks_utf_16(server: DatabaseServer, tmp_path: Path) -> None:
    """The server refuses, so the session stays as it was; text in UTF-16 is no statement."""
    with _traced(server, tmp_path), mysql_client(server.socket) as client:
        for charset in NO_CLIENTS:
            with pytest.raises(MysqlError):
                client.query(b"set names " + charset)
        with pytest.raises(MysqlError):
            client.query("select 'secret', 1 as m_utf16".encode("utf-16-le"))
        with suppress(MysqlError), mysql_client(server.socket, collation=54) as other:  # utf16
            with pytest.raises(MysqlError):
                other.query("select 'secret' as m_utf16".encode("utf-16-be"))
            other.query(b"select 'a\\', secret' as m_login")


def test_a_text_of_several_statements(server: DatabaseServer, tmp_path: Path) -> None:
    """One of them may change how the rest of the text is read."""
    texts = (
        b"set sql_mode = 'NO_BACKSLASH_ESCAPES'; select 'a\\', 'secret' as m_then",
        b"select 'a\\'; select 2, secret' as m_one;"
        b" set names gbk; select '\xb1\\', 'secret' as m_two",
        b"prepare m_s from 'set sql_mode = ''ANSI_QUOTES''';"
        b' execute m_s; select \'secret "\', 1 as "m_x"',
    )
    with _traced(server, tmp_path) as runs:
        for text in texts:
            with mysql_client(server.socket) as client:
                client.query(text)
    for run in runs:
        assert set(run.executions()) == {
            "set sql_mode = ?…",
            "select ? as m_one; set names gbk…",
            "prepare m_s from ?; execute m_s…",
        }


PROCEDURES = (
    (b"", b"drop database if exists m_modes"),
    (b"", b"create database m_modes"),
    (b"", b"use m_modes"),
    (PLAIN, b"create procedure m_plain() begin do 'a\\', 'secret'; do \"b\\\", 'secret'; end"),
    (
        ANSI,
        b'create procedure m_ansi() do \'a\\\', secret\', (select "m_x" from (select 1 "m_x") t)',
    ),
    (
        b"",
        b"create procedure m_sets() begin set sql_mode = 'NO_BACKSLASH_ESCAPES';"
        b" do 'a\\', secret', \"b\\\", secret\"; end",
    ),
)


def test_a_procedure_has_a_mode_of_its_own(server: DatabaseServer, tmp_path: Path) -> None:
    """It holds for its statements; the session's own is back when it ends."""
    with mysql_client(server.socket) as client:
        for mode, text in PROCEDURES:
            _set_mode(client, mode)
            client.query(text)
        with recording(tmp_path / "t", "--pid", str(server.pid), "--rung", "symbol", "--children"):
            for mode in MODES:
                _set_mode(client, mode)
                for procedure in (b"m_plain", b"m_ansi", b"m_sets"):
                    client.query(b"call %s()" % procedure)
                    client.query(STATEMENTS[mode][0])
    run = Run(tmp_path / "t")
    assert run.loss == {}
    assert "secret" not in str(run.text_of)
    for _, shape in STATEMENTS.values():
        assert run.executions(command="query")[shape] == 3
    assert len(run.queries[run.queries["command"] == "child"]) >= 4 * len(MODES)


def test_a_statement_prepared_before_hides_what_is_uncertain(
    server: DatabaseServer, tmp_path: Path
) -> None:
    """Its session may have had another mode then."""
    with mysql_client(server.socket) as client:
        _set_mode(client, PLAIN)
        plain = client.prepare(STATEMENTS[PLAIN][0])
        sure = client.prepare(b"select 'secret', 'it''s secret', ? as m_sure")
        _set_mode(client, b"")
        with _traced(server, tmp_path) as runs:
            client.execute(plain)
            client.execute(sure, 1)
    for run in runs:
        assert run.executions() == {"select ?…": 1, "select ?, ?, ? as m_sure": 1}


def test_the_live_view_follows_modes(server: DatabaseServer) -> None:
    with live_top("--energy", "none", "--pid", str(server.pid)) as top:
        with mysql_client(server.socket) as client:
            for mode in MODES:
                _set_mode(client, mode)
                client.query(STATEMENTS[mode][0])
            client.query(b"select 1 as m_last")
        snapshots = top.finish(lambda row: row.get("shape") == "select ? as m_last")
    assert "secret" not in str(snapshots)
    assert all(shape in str(snapshots) for _, shape in STATEMENTS.values())
