# SPDX-License-Identifier: Apache-2.0
"""MariaDB and MySQL of Debian's newer suites: `make test-versions`. Also: settings of sessions
that decide what is a literal.

Half of the sessions are open and half of the statements prepared before tracing begins. TLS is on
by default, and the executables are stripped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from qjoule.contract import AttachMode
from qjoule_studies.servers.process import DatabaseServer
from servers.newer import Release
from tracing.mysql_client import MysqlClient, mysql_client
from tracing.mysql_story import marker_counts
from tracing.recording import Run, both_attach_modes
from tracing.releases import (
    CLIENTS,
    DATABASE,
    STATEMENTS,
    USER,
    Trial,
    check_documented_and_stripped,
    check_names,
    check_sockets,
    planned,
    releases,
    running,
)

pytestmark = [pytest.mark.root, pytest.mark.server]


@pytest.fixture(scope="module", params=releases("mariadb", "mysql"))
def trial(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Trial]:
    with running(request.param) as server:
        with closing(server.connect()) as connection, connection.cursor() as cursor:
            cursor.execute(f"create database {DATABASE}")
            cursor.execute(f"create user {USER}")
            cursor.execute(f"grant all on *.* to {USER}")
        yield _record_release(request.param, server, tmp_path_factory.mktemp("versions"))


def _record_release(release: Release, server: DatabaseServer, directory: Path) -> Trial:
    sent = Counter[str]()
    with ExitStack() as stack:
        clients = [stack.enter_context(mysql_client(port=server.port)) for _ in range(CLIENTS)]
        statements = [client.prepare(b"select ? as m_before") for client in clients]
        application = stack.enter_context(closing(_application(server)))
        before = _selects(server)
        with both_attach_modes(directory, server.pid):
            for client, statement in zip(clients, statements, strict=True):
                for value in range(STATEMENTS):
                    client.execute(statement, value)
            for client in [*clients, *(_new(stack, server) for _ in range(CLIENTS))]:
                _ask(client, sent)
            _run(application, "m_app_before", sent)
            with closing(_application(server)) as later:
                _run(later, "m_app_after", sent)
            with closing(server.connect(tcp=True, ssl={}, ssl_verify_cert=False)) as secure:
                _run(secure, "m_tls", sent)
        selects = _selects(server) - before
    symbol, socket = (Run(directory / attach_mode) for attach_mode in ("symbol", "socket"))
    return Trial(release, server, symbol, socket, selects, sent)


def _new(stack: ExitStack, server: DatabaseServer) -> MysqlClient:
    return stack.enter_context(mysql_client(port=server.port))


def _application(server: DatabaseServer) -> Any:
    return server.connect(tcp=True, user=USER, database=DATABASE, ssl_disabled=True)


def _ask(client: MysqlClient, sent: Counter[str]) -> None:
    statement = client.prepare(b"select ? as m_prepared")
    for value in range(STATEMENTS):
        client.query(b"select %d as m_text" % value)
        client.execute(statement, value)
    sent.update(m_text=STATEMENTS, m_prepared=STATEMENTS)


def _run(connection: Any, marker: str, sent: Counter[str]) -> None:
    with connection.cursor() as cursor:
        for value in range(STATEMENTS):
            cursor.execute(f"select {value} as {marker}")
    sent[marker] += STATEMENTS


def _selects(server: DatabaseServer) -> int:
    with closing(server.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("show global status like 'Com_select'")
        ((_, value),) = cursor.fetchall()
    return int(value)


@pytest.mark.versions
def test_its_plan_is_exact_with_tls(trial: Trial) -> None:
    check_documented_and_stripped(trial)
    plan = planned(trial.server)
    assert plan.server.flavour == trial.release.server
    assert (plan.choice.attach_mode, plan.choice.exact) == (AttachMode.SYMBOL, True)
    assert "TLS is on by default" in plan.choice.why


@pytest.mark.versions
def test_every_statement_counts(trial: Trial) -> None:
    assert trial.symbol.loss == {}
    counted = marker_counts(trial.symbol.queries)
    early = counted.pop("m_before", 0)  # where its text is known
    assert counted == trial.sent
    unnamed = trial.symbol.queries[trial.symbol.queries["text"].isna()]["executions"].sum()
    assert early + unnamed == CLIENTS * STATEMENTS
    assert trial.selects == trial.sent.total() + CLIENTS * STATEMENTS, "by the server's own count"
    check_sockets(trial)
    for run in (trial.symbol, trial.socket):
        check_names(run, "m_app_after")


# --------------------------------------------------------------------------------------------------
#
# Settings of sessions that decide what is a literal: no literal shows under any of them.
#
# Every literal has the word `secret`.

PLAIN, ANSI = b"NO_BACKSLASH_ESCAPES", b"ANSI_QUOTES"
MODES = (b"", PLAIN, ANSI, PLAIN + b"," + ANSI)

#: By mode: a statement that is right under it, and its shape.
STATEMENTS_OF_MODES = {
    b"": (
        b"select 'a\\', secret', \"b\\\", secret\", 'it''s secret' as m_escapes",
        "select ?, ?, ? as m_escapes",
    ),
    PLAIN: (
        b"select 'a\\', 'secret', \"b\\\", 'secret' as m_plain",
        "select ?, ?, ?, ? as m_plain",
    ),
    ANSI: (
        b"select \"m_x\" as m_names from (select 'a\\', secret' as \"m_x\") m_t where 'secret'<>''",
        "select m_x as m_names from (select ? as m_x) m_t where ? <> ?",
    ),
    PLAIN + b"," + ANSI: (
        b"select \"m_x\", 'a\\', 'secret' as m_both from (select 1 as \"m_x\") m_t",
        "select m_x, ?, ? as m_both from (select ? as m_x) m_t",
    ),
}


CHARSETS = {"sjis": 13, "cp932": 95, "gbk": 28, "big5": 1}  #: with a collation of each
#: In every one of these a backslash is the second byte of a character.
WIDE = {"sjis": b"\x95\x5c", "cp932": b"\x95\x5c", "gbk": b"\xb1\x5c", "big5": b"\xa5\x5c"}
HIDDEN = "select ?, ?, ? as m_hidden"
#: Texts of several statements, of which one may change how the rest is read.
SEVERAL = {
    b"set sql_mode = 'NO_BACKSLASH_ESCAPES'; select 'a\\', 'secret' as m_then": (
        "set sql_mode = ?…"
    ),
    b"select 'a\\'; select 2, secret' as m_one;"
    b" set names gbk; select '\xb1\\', 'secret' as m_two": "select ? as m_one; set names gbk…",
    b"prepare m_s from 'set sql_mode = ''ANSI_QUOTES''';"
    b' execute m_s; select \'secret "\', 1 as "m_x"': "prepare m_s from ?; execute m_s…",
}
PROCEDURES = (
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


def _set_mode(client: MysqlClient, mode: bytes) -> None:
    client.query(b"set sql_mode = '%s'" % mode)


def _every_mode(client: MysqlClient) -> None:
    for mode in MODES * 2:
        _set_mode(client, mode)
        client.query(STATEMENTS_OF_MODES[mode][0])
        client.execute(client.prepare(STATEMENTS_OF_MODES[mode][0]))


def _charsets(server: DatabaseServer) -> None:
    """The client names its character set in its login, or by a statement."""
    for charset, collation in CHARSETS.items():
        wide = WIDE[charset]
        hidden = b"select 'a%s', 'secret', '%s\\'secret' as m_hidden" % (wide, wide)
        with mysql_client(server.socket, collation=collation) as client:
            client.query(hidden)
        with mysql_client(server.socket) as client:
            for change in (b"set names %s", b"set character_set_client = '%s'"):
                client.query(change % charset.encode())
                client.query(hidden)
            client.query(b"set names utf8")
            client.query(b"select 'a\\', secret' as m_again")


def _procedures(client: MysqlClient) -> None:
    """A mode of its own holds for its statements; the session's own is back when it ends."""
    for mode in MODES:
        _set_mode(client, mode)
        for procedure in (b"m_plain", b"m_ansi", b"m_sets"):
            client.query(b"call %s()" % procedure)
            client.query(STATEMENTS_OF_MODES[mode][0])


@pytest.mark.beside
@pytest.mark.parametrize("name", ["mariadb", "mysql80"])
def test_no_literal_shows(name: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    server: DatabaseServer = request.getfixturevalue(name)
    with ExitStack() as stack:
        before = {mode: stack.enter_context(mysql_client(server.socket)) for mode in MODES}
        for mode, client in before.items():
            _set_mode(client, mode)
        uncertain, calls = (stack.enter_context(mysql_client(server.socket)) for _ in range(2))
        # A statement prepared before: its session may have had another mode then.
        _set_mode(uncertain, PLAIN)
        plain = uncertain.prepare(STATEMENTS_OF_MODES[PLAIN][0])
        sure = uncertain.prepare(b"select 'secret', 'it''s secret', ? as m_sure")
        _set_mode(uncertain, b"")
        for text in (b"drop database if exists m_modes", b"create database m_modes"):
            calls.query(text)
        calls.query(b"use m_modes")
        for mode, text in PROCEDURES:
            _set_mode(calls, mode)
            calls.query(text)
        with both_attach_modes(tmp_path, server.pid, options=("--children",)):
            for mode, client in before.items():
                client.query(STATEMENTS_OF_MODES[mode][0])
            with mysql_client(server.socket) as client:
                _every_mode(client)
            _charsets(server)
            for text in SEVERAL:
                with mysql_client(server.socket) as client:
                    client.query(text)
            _procedures(calls)
            uncertain.execute(plain)
            uncertain.execute(sure, 1)
    expected = Counter({shape: 3 + 3 for _, shape in STATEMENTS_OF_MODES.values()})
    expected.update(SEVERAL.values())
    expected += Counter({HIDDEN: 3 * len(CHARSETS), "select ? as m_again": len(CHARSETS)})
    executed = {shape: 2 for _, shape in STATEMENTS_OF_MODES.values()}
    executed |= {"select ?…": 1, "select ?, ?, ? as m_sure": 1}
    for attach_mode in ("socket", "symbol"):
        run = Run(tmp_path / attach_mode)
        assert run.loss == {}
        assert "secret" not in str(run.text_of)
        assert "secret" not in str(run.trace.pandas("queries").to_dict())
        queries = run.executions(command="query")
        assert {text: queries[text] for text in expected} == expected
        assert run.executions(command="execute") == executed
        assert (run.queries["command"] == "child").sum() >= 4 * len(MODES)
