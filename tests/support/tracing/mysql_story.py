# SPDX-License-Identifier: Apache-2.0
"""A workload for MySQL or MariaDB: every way to send a statement, each counted.

Each kind of statement has a marker, an identifier that begins with `m_` and so stays in its shape.
What the clients sent under each marker is in `Story.sent`; the trace must agree.
"""

from __future__ import annotations

import re
import subprocess
import threading
from collections import Counter
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pandas as pd
import pymysql

from qjoule_studies.servers.process import DatabaseServer
from tracing import mysql_client as wire
from tracing.mysql_client import MysqlClient, MysqlError, mysql_client
from tracing.recording import at_once, statements
from waiting import until

MARKER = re.compile(r"m_[a-z0-9_]+")
POINT_SELECTS = 20_000
TRANSACTIONS = 500  #: of about 20 statements each
THREADS = 16
CHURN = 100
ESCAPES = "`m_escape\x1b[31m\x1b]0;owned\x07\x9b`"
LENGTHS = (64, 4095, 4096, 4097, 16384, 0xFFFFFE, 0xFFFFFF, 1 << 24)
FAKE = b"\x03select 1 as m_fake\n"  #: in a packet of number 0 this would be a command
PARTS = 600  #: packets of a file: their numbers wrap from 255 to 0 twice
HIDDEN = 5  #: sessions of each kind that sockets do not show
BEFORE, STATEMENTS, TURNS = 4, 12, 3  #: sessions from before the recording, each with statements
LONG = b"select ? as m_long, " + b"1 as m_column, " * 400 + b"2"  #: longer than is read of a text
COMMITTED, ROLLED_BACK, INSERTS = 40, 10, 5
CALLS, LOOPS = 20, 30
MANY = 64  #: clients at once, each with texts of its own
ROUNDS = statements(5_000) // (4 * MANY)

SCHEMA = (
    "set global local_infile = 1",
    *(f"drop database if exists {name}" for name in ("sbtest", "m_one", "m_two", "m_calls")),
    *(f"create database {name}" for name in ("sbtest", "m_one", "m_two", "m_calls")),
    "create table sbtest.numbers (id int primary key)",
    "create procedure sbtest.m_procedure() begin select 1 as m_inner; select 2; end",
    "create table m_one.t (a bigint, b longblob)",
    "create table m_one.k (a int primary key)",
    "create table m_one.tx (a int)",
    "create table m_one.tx_undone (a int)",
    "drop user if exists m_user",
    "create user m_user identified with mysql_native_password",
    "grant all on *.* to m_user",
)
PROCEDURES = (
    "create table t (a int, b int)",
    "create table log (a int)",
    "create procedure inner_one() begin insert into log values (7); end",
    f"""create procedure outer_one(in n int) begin
        declare i int default 0;
        declare c cursor for select a from t limit 1;
        insert into t values (n, 1);
        while i < {LOOPS} do
            update t set b = b + 1 where a = n;
            set i = i + 1;
        end while;
        open c; close c;
        call inner_one();
        select count(*) from t where a = n;
    end""",
    "create procedure failing() begin insert into t values (0, 0); select * from missing; end",
    "create trigger on_log after insert on log for each row update t set b = 0 where a = new.a",
)


@dataclass
class Story:
    """What was sent, and the server's own counts: of all, and of sysbench's part."""

    sent: Counter[str] = field(default_factory=Counter)
    hidden: Counter[str] = field(default_factory=Counter)  #: in sessions that sockets do not show
    hidden_sessions: int = 0
    counted: dict[str, int] = field(default_factory=dict)
    mass: dict[str, int] = field(default_factory=dict)

    def ask(self, client: MysqlClient, *texts: bytes) -> None:
        """Sends statements as text; the server may refuse them."""
        for text in texts:
            if marker := MARKER.search(text.decode("latin-1")):
                self.sent[marker[0]] += 1
            with suppress(MysqlError):
                client.query(text)


def _connect(server: DatabaseServer, **options: Any) -> Any:
    """Connects in plain text; `_hidden` covers TLS, which MySQL's clients use."""
    return server.connect(ssl_disabled=True, **options)


def marker_counts(queries: pd.DataFrame) -> Counter[str]:
    """Executions by marker; a text with several markers counts under the first."""
    counts: Counter[str] = Counter()
    for text, executions in zip(queries["text"], queries["executions"], strict=True):
        marker = MARKER.search(text) if isinstance(text, str) else None
        if marker and executions:
            counts[marker[0]] += int(executions)
    return counts


def prepare_server(server: DatabaseServer) -> None:
    """Tables and limits that the story needs, set up before anything is recorded."""
    with _connect(server) as connection, connection.cursor() as cursor:
        cursor.execute("set global max_allowed_packet = 67108864")
        for statement in (*SCHEMA, "use m_calls", *PROCEDURES):
            cursor.execute(statement)
    sysbench(server, "oltp_read_only", "prepare")


def sysbench(server: DatabaseServer, script: str, command: str, *options: str) -> None:
    base = ["sysbench", "--db-driver=mysql", f"--mysql-socket={server.socket}"]
    base += ["--mysql-user=root", "--tables=1", "--table-size=2000", "--time=0"]
    base += [f"--threads={THREADS if command == 'run' else 1}", *options, script, command]
    subprocess.run(base, check=True, capture_output=True)


def status(server: DatabaseServer) -> dict[str, int]:
    with _connect(server) as connection, connection.cursor() as cursor:
        cursor.execute("show global status")
        return {name: int(value) for name, value in cursor.fetchall() if value.isdigit()}


def grown(after: dict[str, int], before: dict[str, int]) -> dict[str, int]:
    return {name: after[name] - before.get(name, 0) for name in after}


def before_shape(number: int) -> str:
    return f"select ? as m_before_{number}, ? as m_literal"


class Before:
    """Sessions and statements from before the recording. They stay open until `close`."""

    def __init__(self, server: DatabaseServer) -> None:
        self._server = server
        self._stack = ExitStack()
        self._set_log(1)
        self._clients = [self._session(database="m_one") for _ in range(BEFORE)]
        self._prepared = [
            [
                client.prepare(b"select ? as m_before_%d, 'secret' as m_literal" % number)
                for number in range(STATEMENTS)
            ]
            for client in self._clients
        ]
        self._clients[0].execute(self._prepared[0][0], 1)  # its text in the log has its values
        self._long = self._clients[0].prepare(LONG)
        self._closed = self._clients[1].prepare(b"select ? as m_closed")
        self._nowhere = self._session()
        self._compressed = self._session(flags=wire.ZLIB)
        self._compressed.query(b"do 1")
        self._transacting = [self._session(database="m_one") for _ in range(3)]
        for client in self._transacting[:2]:
            client.query(b"begin")
            client.query(b"insert into tx values (1)")

    def _session(self, **options: Any) -> MysqlClient:
        return self._stack.enter_context(mysql_client(self._server.socket, **options))

    def _set_log(self, on: int) -> None:
        with closing(_connect(self._server)) as connection, connection.cursor() as cursor:
            cursor.execute("set global log_output = 'NONE'")
            cursor.execute(f"set global general_log = {on}")

    def go_on(self, story: Story) -> None:
        for turn in range(TURNS):
            for client, prepared in zip(self._clients, self._prepared, strict=True):
                for number, statement in enumerate(prepared):
                    client.execute(statement, 1000 + turn)
                    story.sent[f"m_before_{number}"] += 1
        self._set_log(0)
        self._clients[0].execute(self._long, 1)
        self._clients[1].close_statement(self._closed)
        new = self._clients[1].prepare(b"select ? as m_new")
        self._clients[1].execute(new, 1)
        story.sent += Counter(m_long=1, m_new=1)
        story.ask(self._nowhere, b"select 1 as m_nowhere")
        story.ask(self._clients[2], b"select 1 as m_first_one")
        self._clients[2].init_db(b"mysql")
        story.ask(self._clients[2], b"select 1 as m_then_mysql")
        for _ in range(20):
            self._compressed.query(b"set @m_compressed = 1")
        story.hidden["m_compressed"] += 20
        story.hidden_sessions += 1
        self._transactions(story)

    def _transactions(self, story: Story) -> None:
        goes_on, ends, idle = self._transacting
        insert = b"insert into tx values (1)"
        story.ask(goes_on, b"select count(*) from tx", insert, insert, b"commit")
        story.ask(ends, b"rollback")
        story.ask(idle, insert)
        for client in (goes_on, ends, idle):
            story.ask(client, b"begin", insert, b"commit")
        last = self._session(database="m_one")
        story.ask(last, b"begin", insert)  # it stays open

    def close(self) -> None:
        self._stack.close()


def tell(server: DatabaseServer, before: Before) -> Story:
    story = Story()
    first = status(server)
    _mass(server, story)
    _many_clients(server, story)
    before.go_on(story)
    _churn(server, story)
    with mysql_client(server.socket, database="sbtest") as client:
        _prepared(client, story)
        _odd_commands(client, story)
    with mysql_client(port=server.port, database="sbtest") as client:
        _lengths(client, story)
    with mysql_client(server.socket, database="m_one", flags=wire.CONNECT_ATTRIBUTES) as client:
        _outcomes(client, story)
        _files(client, story)
        _long_data(client)
    if server.name == "mariadb":
        _bulk(server)
    with mysql_client(port=server.port, database="m_one") as client:
        _changes(client, story)
    with mysql_client(server.socket, database="m_one") as client:
        _transactions(client, story)
        story.ask(client, b"begin", b"insert into tx values (1)")
        client.quit()
    _calls(server, story)
    _hidden(server, story)
    _killed(server, story)
    _take_over(server)
    story.counted = grown(status(server), first)
    return story


def _mass(server: DatabaseServer, story: Story) -> None:
    before = status(server)
    sysbench(server, "oltp_point_select", "run", f"--events={POINT_SELECTS}")
    text = ("--db-ps-mode=disable", f"--events={TRANSACTIONS}")
    sysbench(server, "oltp_read_write", "run", *text, "--mysql-ignore-errors=all")
    story.mass = grown(status(server), before)


def _many_clients(server: DatabaseServer, story: Story) -> None:
    """Texts and prepared statements alternate. The statements' ids are the same in all sessions."""
    ready = threading.Barrier(MANY)

    def client(number: int) -> None:
        where: dict[str, Any] = {"port": server.port} if number % 2 else {"unix": server.socket}
        marker = b"m_client_%d" % number
        with mysql_client(**where) as connection:
            ready.wait(60)
            prepared = connection.prepare(b"select ? + 1 as " + marker)
            other = connection.prepare(b"set @last = (select ? as " + marker + b")")
            for value in range(ROUNDS):
                connection.query(b"select %d as %s" % (value, marker))
                connection.execute(prepared, value)
                connection.query(b"set @last = (select %d as %s)" % (value, marker))
                connection.execute(other, value)

    at_once(client, range(MANY))
    story.sent.update({f"m_client_{number}": 4 * ROUNDS for number in range(MANY)})


def _churn(server: DatabaseServer, story: Story) -> None:
    """Connections that come and go: the server reuses their threads for others."""

    def client(first: int) -> None:
        for number in range(first, CHURN, 4):
            transport = "tcp" if number % 2 else "unix"
            with closing(_connect(server, tcp=bool(number % 2))) as connection:
                connection.query(f"select {number} as m_churn")
                connection.query(f"select 'x' as m_churn_{transport}")

    at_once(client, range(4))
    story.sent += Counter(m_churn=CHURN, m_churn_tcp=CHURN // 2, m_churn_unix=CHURN // 2)


def _prepared(client: MysqlClient, story: Story) -> None:
    statements = {i: client.prepare(b"select ? as m_prepared_%d" % i) for i in range(40)}
    for turn in range(10):
        for i, statement in statements.items():
            if turn <= i % 10:
                client.execute(statement, turn)
                story.sent[f"m_prepared_{i}"] += 1
    for statement in list(statements.values())[::2]:
        client.close_statement(statement)
    with suppress(MysqlError):
        client.prepare(b"select from where m_refused")
    statement_id = client.prepare(b"select ? + 1 as m_prepared_again")
    client.execute(statement_id, 1)
    client.execute(statements[1], 1)
    many = client.prepare(b"select id as m_cursor from numbers where id < ?")
    client.query(b"insert into numbers values (1),(2),(3),(4),(5)")
    client.execute(many, 100, cursor=True)
    assert [client.fetch(many, 2) for _ in range(3)] == [2, 2, 1]
    story.sent += Counter(m_prepared_again=1, m_prepared_1=1, m_cursor=1)


def _odd_commands(client: MysqlClient, story: Story) -> None:
    story.ask(client, b"select 1 as m_multi; select 2; select 3", b"call m_procedure()")
    for command in (wire.COM_PING, wire.COM_STATISTICS):
        client.simple(command)
    client.change_user()
    story.ask(client, b"select 1 as m_changed_user")
    client.simple(wire.COM_RESET_CONNECTION)
    client.query(b"use sbtest")
    statement = client.prepare(b"select ? as m_reset")
    client.execute(statement, 1)
    story.sent["m_reset"] += 1
    client.query(b"prepare p from 'select ? as m_text_protocol'")
    client.query(b"execute p using @a")
    story.ask(client, b"select * from m_missing", b"select m_failing(", b"")
    story.ask(client, b"select 1 as m_bytes, '\xff\xfe\x80', 'a\0b'")
    story.ask(client, f"select 1 as {ESCAPES} /* \x1b[2J */".encode())


def _lengths(client: MysqlClient, story: Story) -> None:
    """Lengths near the limits: of what is read of a statement, the server's buffer, and a
    packet.
    """
    for length in LENGTHS:
        start = b"select 1 as m_length_%d, length('" % length
        story.ask(client, start + b"x" * (length - len(start) - 2) + b"')")


def _outcomes(client: MysqlClient, story: Story) -> None:
    story.ask(client, b"insert into k values (1), (2) /* m */", b"insert into k (a) values (1)")
    story.ask(client, b"select * from m_absent", b"select 1 as m_rows")
    statement = client.prepare(b"insert into k /* m_exec */ (k.a) values (?)")
    client.execute(statement, 3)
    with suppress(MysqlError):
        client.execute(statement, 3)


def _files(client: MysqlClient, story: Story) -> None:
    for early in (False, True):
        statement = b"/* first */ load data local infile 'm' into table t character set binary (b)"
        client.load_file(statement, [FAKE] * PARTS, early=early)
        story.ask(client, b"select 1 as m_after_file")


def _long_data(client: MysqlClient) -> None:
    statement = client.prepare(b"insert into t (b) values (concat(?, 'm_long'))")
    for _ in range(3):
        client.long_data(statement, 0, b"x" * 100_000)
        client.long_data(statement, 0, b"x" * 100_000)
        client.execute_long(statement)
    client.reset_statement(statement)
    client.close_statement(statement)
    client.simple(wire.COM_PING)


def _bulk(server: DatabaseServer) -> None:
    with mysql_client(server.socket, database="m_one", flags=wire.BULK) as client:
        statement = client.prepare(b"insert into t (a) /* m */ values (?) -- bulk\n")
        client.bulk_execute(statement, range(100))
        client.bulk_execute(statement, range(50))


def _changes(client: MysqlClient, story: Story) -> None:
    story.ask(client, b"select 1 as m_in_one")
    client.init_db(b"m_two")
    story.ask(client, b"select 1 as m_in_two")
    with suppress(MysqlError):
        client.init_db(b"m_none")
    story.ask(client, b"select 1 as m_still_two", b"use m_none", b"select 1 as m_still_two")
    story.ask(client, b"/* app */ USE `m_one`", b"select 1 as m_again_one")
    story.ask(client, b"select 1; use m_two", b"select 1 as m_again_two")
    client.simple(wire.COM_RESET_CONNECTION)
    story.ask(client, b"select 1 as m_reset_two")
    client.change_user(b"m_user", b"m_one")
    story.ask(client, b"select 1 as m_user_one")


def _transactions(client: MysqlClient, story: Story) -> None:
    insert = b"insert into tx values (1)"
    for _ in range(COMMITTED):
        story.ask(client, b"begin", *[insert] * INSERTS)
        story.ask(client, b"select count(*) from tx", b"commit", insert)
    for _ in range(ROLLED_BACK):
        story.ask(client, b"start transaction", b"update tx_undone set a = a + 1", b"rollback")
    story.ask(client, b"begin", insert, b"begin", insert)  # the second one commits the first
    story.ask(client, b"create table tx_ddl (a int)", b"select 1")
    story.ask(client, b"begin", b"insert into tx_missing values (1)", b"rollback")
    story.ask(client, b"set autocommit = 0", *[insert, b"commit"] * 3)
    story.ask(client, b"set autocommit = 1", insert)


def _calls(server: DatabaseServer, story: Story) -> None:
    with (
        closing(_connect(server, database="m_calls")) as connection,
        connection.cursor() as cursor,
    ):
        for number in range(CALLS):
            cursor.execute(f"call outer_one({number})")
            while cursor.nextset():
                pass
            cursor.execute("select 1 as m_between")
        for _ in range(3):
            with suppress(pymysql.Error):
                cursor.execute("call failing()")
        cursor.execute("insert into log values (1)")
    story.sent["m_between"] += CALLS
    with mysql_client(server.socket, database="m_calls") as client:
        statement = client.prepare(b"call inner_one()")
        for _ in range(5):
            client.execute(statement)


def _hidden(server: DatabaseServer, story: Story) -> None:
    """Compressed and encrypted sessions take turns with plain ones on the same threads."""
    for number in range(HIDDEN):
        with mysql_client(server.socket, flags=wire.ZLIB) as client:
            client.query(b"set @m_packed = %d" % number)
            once, twice = (client.prepare(b"set @m_%s = 1" % name) for name in (b"p_one", b"p_two"))
            for statement in (once, twice, twice, once):
                client.execute(statement)
        story.hidden += Counter(m_packed=1, m_p_one=2, m_p_two=2)
        story.hidden_sessions += 1
        if server.name == "mysql":
            with closing(server.connect(ssl={})) as secure:
                secure.query("select 1 as m_secure")
            story.hidden["m_secure"] += 1
            story.hidden_sessions += 1
        with mysql_client(server.socket) as client:
            story.ask(client, b"select 1 as m_plain")


def _killed(server: DatabaseServer, story: Story) -> None:
    """KILL QUERY keeps the session; KILL ends it."""
    for marker, kill in (("m_kill_query", "kill query"), ("m_kill_session", "kill")):
        with closing(_connect(server)) as victim, closing(_connect(server)) as killer:
            sleeper = threading.Thread(target=_expect_to_fail, args=(victim, marker))
            sleeper.start()
            until(partial(_runs, killer, marker))
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


def _runs(connection: Any, marker: str) -> bool:
    with connection.cursor() as cursor:
        threads: int = cursor.execute(
            "select 1 from information_schema.processlist where info like %s and id != %s",
            (f"select sleep%{marker}%", connection.thread_id()),
        )
    return threads > 0


def _take_over(server: DatabaseServer) -> None:
    """New clients for every thread that the server keeps."""
    with ExitStack() as stack:
        for _ in range(THREADS + 24):
            stack.enter_context(mysql_client(server.socket))
