# SPDX-License-Identifier: Apache-2.0
"""A long story for a MySQL or MariaDB: every way to send it a statement, each counted.

Each kind of statement has a marker, an identifier that begins with `m_` and so stays in its shape.
What the clients sent under each marker is in `Story.sent`; the trace must agree.
"""

from __future__ import annotations

import re
import subprocess
import threading
import time
from collections import Counter
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import pymysql

from servers.process import DatabaseServer
from tracing import mysql_client as wire
from tracing.at_once import at_once
from tracing.mysql_client import MysqlClient, MysqlError, mysql_client

MARKER = re.compile(r"m_[a-z0-9_]+")
POINT_SELECTS = 60_000
TRANSACTIONS = 1_500  #: of about 20 statements each
THREADS = 16
CHURN = 200
ESCAPES = "`m_escape\x1b[31m\x1b]0;owned\x07\x9b`"
STATUS = ("select", "insert", "update", "delete", "begin", "commit")


@dataclass
class Story:
    """What was sent, and the server's own counts for the part with sysbench."""

    sent: Counter[str] = field(default_factory=Counter)
    prepares: int = 0
    executed_before_attach: int = 0
    counted: dict[str, int] = field(default_factory=dict)


def _connect(server: DatabaseServer, **options: Any) -> Any:
    """Connects in plain text; `tell_encrypted` covers TLS, which MySQL's clients use."""
    return server.connect(ssl_disabled=True, **options)


def marker_counts(queries: pd.DataFrame) -> Counter[str]:
    """Executions by marker; a text with several markers counts under the first."""
    counts: Counter[str] = Counter()
    for text, executions in zip(queries["text"], queries["executions"], strict=True):
        found = MARKER.search(text) if isinstance(text, str) else None
        if found and executions:
            counts[found[0]] += int(executions)
    return counts


def prepare_server(server: DatabaseServer) -> None:
    """Tables and limits that the story needs, set up before anything is recorded."""
    with _connect(server) as connection, connection.cursor() as cursor:
        cursor.execute("set global max_allowed_packet = 67108864")
        cursor.execute("set global local_infile = 1")
        cursor.execute("drop database if exists sbtest")
        cursor.execute("create database sbtest")
        cursor.execute("create table sbtest.m_loaded (a int, b varchar(100))")
        cursor.execute("create table sbtest.numbers (id int primary key)")
        cursor.execute(
            "create procedure sbtest.m_procedure() begin select 1 as m_inner; select 2; end"
        )
    sysbench(server, "oltp_read_only", "prepare")


def sysbench(server: DatabaseServer, script: str, command: str, *options: str) -> None:
    base = ["sysbench", "--db-driver=mysql", f"--mysql-socket={server.socket}"]
    base += ["--mysql-user=root", "--tables=1", "--table-size=2000", "--time=0"]
    base += [f"--threads={THREADS if command == 'run' else 1}", *options, script, command]
    subprocess.run(base, check=True, capture_output=True)


class Before:
    """A session with statements prepared before the recording begins."""

    def __init__(self, server: DatabaseServer) -> None:
        self.client = MysqlClient(server.socket)
        self.statement = self.client.prepare(b"select ? as m_before")
        self.client.execute(self.statement, 1)

    def go_on(self, story: Story) -> None:
        for value in range(3):
            self.client.execute(self.statement, value)
        story.executed_before_attach = story.sent["m_before"] = 3
        after = self.client.prepare(b"select ? as m_after")
        story.prepares += 1
        for value in range(2):
            self.client.execute(after, value)
        story.sent["m_after"] += 2
        self.client.quit()


def tell(server: DatabaseServer, before: Before, scratch: Path) -> Story:
    story = Story()
    _mass(server, story)
    before.go_on(story)
    _churn(server, story)
    with mysql_client(server.socket, database="sbtest") as client:
        _prepared(client, story)
        _odd_commands(client, story)
        _odd_statements(client, story)
    with mysql_client(port=server.port, database="sbtest") as client:
        _lengths(client, story)
    _load_data(server, story, scratch)
    _killed(server, story)
    _vanished(server, story)
    _take_over(server)
    return story


def status(server: DatabaseServer) -> dict[str, int]:
    with _connect(server) as connection, connection.cursor() as cursor:
        cursor.execute("show global status")
        return {name: int(value) for name, value in cursor.fetchall() if value.isdigit()}


def _mass(server: DatabaseServer, story: Story) -> None:
    before = status(server)
    sysbench(server, "oltp_point_select", "run", f"--events={POINT_SELECTS}")
    text = ("--db-ps-mode=disable", f"--events={TRANSACTIONS}")
    sysbench(server, "oltp_read_write", "run", *text, "--mysql-ignore-errors=all")
    after = status(server)
    story.counted = {name: after[name] - before.get(name, 0) for name in after}


def _churn(server: DatabaseServer, story: Story) -> None:
    """Connections that come and go: the server reuses their threads for others."""

    def client(first: int) -> None:
        for number in range(first, CHURN, 4):
            transport = "tcp" if number % 2 else "unix"
            with (
                closing(_connect(server, tcp=bool(number % 2))) as connection,
                connection.cursor() as cursor,
            ):
                cursor.execute(f"select {number} as m_churn")
                cursor.execute(f"select 'x' as m_churn_{transport}")

    at_once(client, range(4))
    story.sent += Counter(m_churn=CHURN, m_churn_tcp=CHURN // 2, m_churn_unix=CHURN // 2)


def _prepared(client: MysqlClient, story: Story) -> None:
    statements = {i: client.prepare(b"select ? as m_prepared_%d" % i) for i in range(40)}
    story.prepares += 40
    for turn in range(10):
        for i, statement in statements.items():
            if turn <= i % 10:
                client.execute(statement, turn)
                story.sent[f"m_prepared_{i}"] += 1
    for statement in list(statements.values())[::2]:
        client.close_statement(statement)
    with suppress(MysqlError):
        client.prepare(b"select from where m_refused")
    story.prepares += 1
    again = client.prepare(b"select ? + 1 as m_prepared_again")
    story.prepares += 1
    client.execute(again, 1)
    client.execute(statements[1], 1)
    story.sent += Counter(m_prepared_again=1, m_prepared_1=1)
    many = client.prepare(b"select id as m_cursor from numbers where id < ?")
    client.query(b"insert into numbers values (1),(2),(3),(4),(5)")
    story.prepares += 1
    client.execute(many, 100, cursor=True)
    assert [client.fetch(many, 2) for _ in range(3)] == [2, 2, 1]
    story.sent["m_cursor"] += 1


def _odd_commands(client: MysqlClient, story: Story) -> None:
    assert client.query(b"select 1 as m_multi; select 2; select 3") == 3
    client.query(b"call m_procedure()")
    for command in (wire.COM_PING, wire.COM_STATISTICS):
        client.simple(command)
    client.change_user()
    client.query(b"select 1 as m_changed_user")
    client.simple(wire.COM_RESET_CONNECTION)
    client.query(b"use sbtest")
    statement = client.prepare(b"select ? as m_reset")
    client.execute(statement, 1)
    story.prepares += 1
    client.query(b"prepare p from 'select ? as m_text_protocol'")
    client.query(b"execute p using @a")
    story.sent += Counter(m_multi=1, m_procedure=1, m_changed_user=1, m_reset=1)


def _odd_statements(client: MysqlClient, story: Story) -> None:
    for statement in (b"select * from m_missing", b"select m_failing(", b""):
        with suppress(MysqlError):
            client.query(statement)
    client.query(b"select 1 as m_bytes, '\xff\xfe\x80', 'a\0b'")
    client.query(f"select 1 as {ESCAPES} /* \x1b[2J */".encode())
    story.sent += Counter(m_missing=1, m_failing=1, m_bytes=1, m_escape=1)


def _lengths(client: MysqlClient, story: Story) -> None:
    """Lengths near the limits: of what is read of a statement, the server's buffer, and a
    packet.
    """
    for length in (64, 4095, 4096, 4097, 16383, 16384, 16385, 1 << 20, 0xFFFFFE, 0xFFFFFF, 1 << 24):
        start = b"select 1 as m_length_%d, length('" % length
        client.query(start + b"x" * (length - len(start) - 2) + b"')")
        story.sent[f"m_length_{length}"] += 1


def _load_data(server: DatabaseServer, story: Story, scratch: Path) -> None:
    data = scratch / "rows.csv"
    data.write_text("".join(f"{i},{'x' * 50}\n" for i in range(60_000)))
    with (
        closing(_connect(server, database="sbtest", local_infile=True)) as connection,
        connection.cursor() as cursor,
    ):
        statement = f"load data local infile '{data}' into table m_loaded"
        assert cursor.execute(f"{statement} fields terminated by ','") == 60_000
        cursor.execute("select 1 as m_after_load")
    story.sent += Counter(m_loaded=1, m_after_load=1)


def _killed(server: DatabaseServer, story: Story) -> None:
    """KILL QUERY keeps the session; KILL ends it."""
    for marker, kill in (("m_kill_query", "kill query"), ("m_kill_session", "kill")):
        with closing(_connect(server)) as victim, closing(_connect(server)) as killer:
            sleeper = threading.Thread(target=_expect_to_fail, args=(victim, marker))
            sleeper.start()
            _wait_for(killer, marker)
            with killer.cursor() as cursor:
                cursor.execute(f"{kill} {victim.thread_id()}")
            sleeper.join()
            if marker == "m_kill_query":
                victim.query("select 1 as m_survivor")
                story.sent["m_survivor"] += 1
        story.sent[marker] += 1


def _expect_to_fail(connection: Any, marker: str) -> None:
    with suppress(pymysql.Error), connection.cursor() as cursor:
        cursor.execute(f"select sleep(30) as {marker}")


def _wait_for(connection: Any, marker: str) -> None:
    while not _runs(connection, marker):
        time.sleep(0.01)


def _runs(connection: Any, marker: str) -> bool:
    with connection.cursor() as cursor:
        found: int = cursor.execute(
            "select 1 from information_schema.processlist where info like %s and id != %s",
            (f"select sleep%{marker}%", connection.thread_id()),
        )
    return found > 0


def _vanished(server: DatabaseServer, story: Story) -> None:
    """A client that closes its socket while its query runs."""
    with mysql_client(server.socket) as client:
        client.send(wire.COM_QUERY, b"select sleep(0.2) as m_vanished")
        time.sleep(0.05)
    with closing(_connect(server)) as observer:
        while _runs(observer, "m_vanished"):
            time.sleep(0.01)
    story.sent["m_vanished"] += 1


def _take_over(server: DatabaseServer) -> None:
    """New clients for every thread that the server keeps, including those of killed and vanished
    ones.

    Only then does the socket rung learn that the old clients are gone.
    """
    with ExitStack() as stack:
        for _ in range(THREADS + 8):
            stack.enter_context(mysql_client(server.socket))
