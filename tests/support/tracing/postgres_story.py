# SPDX-License-Identifier: Apache-2.0
"""A workload for PostgreSQL: every way to send a statement, each counted.

Markers as in `mysql_story`; here most are names of tables, which pg_stat_statements distinguishes.
What drivers cannot do goes through `postgres_client`.
"""

from __future__ import annotations

import subprocess
import threading
from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import psycopg

from qjoule_studies.servers.process import DatabaseServer
from tracing import postgres_client as wire
from tracing.mysql_story import MARKER
from tracing.postgres_client import (
    FLUSH,
    SYNC,
    PostgresClient,
    bind,
    execute,
    parse,
    postgres_client,
    query,
)
from tracing.recording import at_once, statements
from waiting import until

PROTOCOLS = ("simple", "extended", "prepared")
CLIENTS, SELECTS_EACH, TRANSACTIONS_EACH = 8, 400, 50
TURNS = 20
LENGTHS = (64, 4095, 4096, 4097, 8187, 8192, 1 << 20, 1 << 24)
BEFORE, STATEMENTS = 4, 12  #: sessions from before the recording, each with statements
LONG = b"select 1 as m_long" + b", 1 as m_column" * 100
LONG_NAME = b"n" * 63  #: as long as the server keeps
MANY = 32  #: clients at once, each with a table of its own
ROUNDS = statements(3_000) // (3 * MANY)
TABLES = {
    **{f"m_client_{number}": 1 for number in range(MANY)},
    **{"m_simple": 1, "m_extended": 1, "m_prepared": 1, "m_kept": 1, "m_nothing": 1},
    **{"m_same": 1, "m_other": 1, "m_inside": 1, "m_many": 1, "m_failing_pipe": 1},
    **{"m_declared": 950, "m_filled": 1, "m_by_name": 1, "m_fails": 1, "m_before_it": 1},
    **{"m_aborted": 1, "m_after_it": 1, "m_portal": 20, "m_between": 1, "m_only_parsed": 1},
    **{"m_multi": 1, "m_parallel": 400_000},
}
FUNCTION = """create or replace function m_adds(n int) returns int language plpgsql as $$
declare one record; total int := 0; begin
  for one in select generate_series(1, n) as m_within loop total := total + 1; end loop;
  begin perform 1 / 0 as m_within; exception when division_by_zero then null; end;
  return total; end $$"""
PROCEDURE = """create or replace procedure m_commits() language plpgsql as $$
begin
  insert into m_kept values (1); rollback;
  insert into m_kept values (2); commit;
end $$"""
FAILS = "select 1 / (i - 1) from m_fails"


@dataclass
class Story:
    sent: Counter[str] = field(default_factory=Counter)  #: under markers without a table
    tables: Counter[str] = field(default_factory=Counter)  #: by marker, of pg_stat_statements
    parallel_leader: int = 0  #: the process that led parallel workers
    parallel_workers: int = 0


def prepare_server(server: DatabaseServer) -> None:
    with server.connect() as connection:
        connection.execute("create extension if not exists pg_stat_statements")
        for table, rows in TABLES.items():
            connection.execute(f"drop table if exists {table}")
            connection.execute(f"create table {table} as select generate_series(1, {rows}) as i")
        connection.execute("analyze m_parallel")
        connection.execute(FUNCTION)
        connection.execute(PROCEDURE)
    pgbench(server, "-i", "-s", "1", "-q")


def pgbench(server: DatabaseServer, *options: str) -> None:
    binary = Path(server.argv[0]).with_name("pgbench")
    base = [str(binary), "-h", str(server.directory), "-p", str(server.port), "-U", "postgres"]
    subprocess.run([*base, "-n", *options, "postgres"], check=True, capture_output=True)


def before_shape(number: int) -> str:
    return f"select ? as m_literal, ? as m_before_{number}"


def prepare(client: PostgresClient, name: bytes, statement: bytes) -> None:
    assert not client.exchange(parse(statement, name), SYNC)["E"]


def run(client: PostgresClient, *names: bytes) -> Counter[str]:
    """Executes prepared statements in one request."""
    messages = [part for name in names for part in (bind(name), execute())]
    return client.exchange(*messages, SYNC)


#: Executions by text, on sockets, beside each statement once in each session.
BEFORE_EXTRA = Counter(
    {
        before_shape(0): 1,
        before_shape(1): 1,
        before_shape(2): 2,
        before_shape(3): 1,
        "select ? as m_new": 1,
        "select ? as m_newer": 1,
        "select ? as m_long_name": 1,
        LONG.replace(b"1", b"?").decode(): 1,
    }
)


class Before:
    """Sessions and statements from before the recording."""

    def __init__(self, server: DatabaseServer) -> None:
        self._stack = ExitStack()
        self._clients = [
            self._stack.enter_context(postgres_client(server.port)) for _ in range(BEFORE)
        ]
        for client in self._clients:
            for number in range(STATEMENTS):
                text = b"select 'secret' as m_literal, 1 as m_before_%d" % number
                prepare(client, b"S_%d" % number, text)
        prepare(self._clients[0], b"m", LONG)
        prepare(self._clients[0], LONG_NAME, b"select 1 as m_long_name")
        prepare(self._clients[0], b"gone", b"select 1 as m_gone")
        prepare(self._clients[1], b"", b"select 1 as m_unnamed")

    def go_on(self) -> None:
        """First each statement in each session."""
        for client in self._clients:
            for number in range(STATEMENTS):
                run(client, b"S_%d" % number)
        first = self._clients[0]
        run(first, b"S_4", b"S_5")  # of different statements: sockets show neither
        run(first, b"S_1")
        run(first, b"S_2", b"S_2")
        first.exchange(bind(b"S_3", b"a"), bind(b"S_3", b"b"), execute(0, b"b"), SYNC)
        run(first, b"m")
        run(first, LONG_NAME)
        run(first, b"S_0")
        first.exchange(wire.message("C", b"SS_0\0"), SYNC)
        prepare(first, b"S_0", b"select 1 as m_new")
        run(first, b"S_0")
        first.exchange(query(b"deallocate gone"))
        assert run(first, b"gone")["E"]
        prepare(first, b"gone", b"select 1 as m_newer")
        run(first, b"gone")
        assert run(first, b"m_unknown")["E"]

    def run_unnamed(self) -> None:
        run(self._clients[1], b"")

    def close(self) -> None:
        self._stack.close()


def tell(server: DatabaseServer, before: Before) -> Story:
    story = Story()
    before.run_unnamed()
    before.go_on()
    for protocol in PROTOCOLS:
        _mass(server, protocol)
    with closing(server.connect()) as observer:
        observer.execute("select pg_stat_statements_reset()")
        with closing(server.connect(tcp=True)) as connection:
            _protocols(connection)
            _pipelines(connection)
            _cursors_and_copies(connection)
            _functions_and_errors(connection)
        _portals(server.port)
        _many_clients(server)
        with closing(server.connect()) as connection:
            _parallel(connection, story)
        story.tables = _counted(
            observer.execute("select query, calls from pg_stat_statements").fetchall()
        )
    _odd_statements(server, story)
    _lengths(server, story)
    _killed(server, story)
    return story


def _counted(rows: Iterable[tuple[str, int]]) -> Counter[str]:
    counted: Counter[str] = Counter()
    for text, calls in rows:
        marker = MARKER.search(text)
        if marker or text.startswith("do "):
            counted[marker[0] if marker else "do"] += calls
    return counted


def _mass(server: DatabaseServer, protocol: str) -> None:
    options = ["-c", str(CLIENTS), "-j", "2", "-M", protocol]
    pgbench(server, *options, "-S", "-t", str(SELECTS_EACH))
    pgbench(server, *options, "-t", str(TRANSACTIONS_EACH))


def _protocols(connection: Any) -> None:
    for value in range(TURNS):
        connection.execute(f"select {value} from m_simple")
        connection.execute("select %s::int from m_extended", [value], prepare=False)
        connection.execute("select %s::int from m_prepared", [value], prepare=True)
        connection.execute("insert into m_kept values (%s) returning 1", [value], prepare=True)
        connection.execute("select i from m_nothing where false")


def _pipelines(connection: Any) -> None:
    for is_prepared in (False, True):
        options = {"prepare": is_prepared}
        for turn in range(TURNS // 4):
            with connection.pipeline() as pipeline:
                for value in range(7):
                    connection.execute("select %s::int from m_same", [value], **options)
                    if value % 3 == turn % 3:
                        connection.execute("select %s::int from m_other", [value], **options)
                    if value == 4:
                        pipeline.sync()
            with connection.transaction(), connection.pipeline():
                connection.execute("select %s::int from m_inside", [turn], **options)
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
            for number in range(60_000):
                copy.write_row((number,))
        with cursor.copy("copy m_filled to stdout") as copy:
            assert sum(len(block) for block in copy)
        cursor.execute("select count(*) from m_filled")


def _functions_and_errors(connection: Any) -> None:
    for _ in range(3):
        connection.execute("select m_adds(5)")
        connection.execute("call m_commits()")
        connection.execute("do $$ begin perform 1; end $$")
    connection.execute("prepare m_by_name as select i from m_by_name")
    for _ in range(3):
        connection.execute("execute m_by_name")
        for failing in (FAILS, "select m_failing("):
            with suppress(psycopg.Error):
                connection.execute(failing)
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


def _many_clients(server: DatabaseServer) -> None:
    """The names of prepared statements are the same in all sessions."""
    ready = threading.Barrier(MANY)

    def client(number: int) -> None:
        table = f"m_client_{number}"
        with closing(server.connect(tcp=bool(number % 2))) as connection:
            ready.wait(60)
            for value in range(ROUNDS):
                connection.execute(f"select {value} from {table}")
                for is_prepared in (False, True):
                    connection.execute(f"select %s::int from {table}", [value], prepare=is_prepared)
            with connection.pipeline():
                for value in range(10):
                    connection.execute(f"delete from {table} where i = %s", [value], prepare=True)

    at_once(client, range(MANY))


def _parallel(connection: Any, story: Story) -> None:
    for setting in (
        "max_parallel_workers_per_gather = 2",
        "parallel_setup_cost = 0",
        "parallel_tuple_cost = 0",
        "min_parallel_table_scan_size = 0",
    ):
        connection.execute(f"set {setting}")
    statement = "select sum(length(md5(i::text))) from m_parallel"
    plan = connection.execute(f"explain analyze {statement}").fetchall()
    launched = [row[0] for row in plan if "Workers Launched" in row[0]]
    assert launched, f"no parallel plan: {plan}"
    story.parallel_workers = int(launched[0].split(":")[1])
    for _ in range(5):
        connection.execute(statement)
    story.parallel_leader = connection.info.backend_pid


def _odd_statements(server: DatabaseServer, story: Story) -> None:
    with postgres_client(server.port) as client:
        assert client.exchange(query(b""))["I"] == 1
        client.exchange(query(b'select 1 as "m_escape\x1b[31m\x1b]0;owned\x07"'))
        client.exchange(query(b"select 1 as m_bytes, '\xff\xfe'"))
        for name, marker in ((b"a", b"m_named"), (b"b", b"m_named_too")):
            client.exchange(parse(b"select 1 as " + marker, name), SYNC)
        for name in (b"a", b"b", b"a"):
            client.exchange(bind(name), execute(), SYNC)
        client.exchange(query(b"begin"))
        part = parse(b"select i as m_fetched from generate_series(1, 20) i")
        client.exchange(part, bind(portal=b"p"), execute(5, b"p"), SYNC)
        for _ in range(3):  # as drivers with a fetch size do
            client.exchange(execute(5, b"p"), SYNC)
        client.exchange(query(b"commit"))
    story.sent += Counter(m_escape=1, m_bytes=1, m_named=2, m_named_too=1, m_fetched=1)


def _lengths(server: DatabaseServer, story: Story) -> None:
    """Lengths near the limits: of what is read of a statement, and the server's buffer of 8 KB."""
    with postgres_client(server.port) as client:
        for length in LENGTHS:
            start = b"select 1 as m_length_%d, length('" % length
            statement = start + b"x" * (length - len(start) - 2) + b"')"
            client.exchange(query(statement))
            client.exchange(parse(statement), bind(), execute(), SYNC)
            story.sent[f"m_length_{length}"] += 2


def _killed(server: DatabaseServer, story: Story) -> None:
    for marker, kill in (("m_cancelled", "cancel"), ("m_terminated", "terminate")):
        with closing(server.connect()) as victim, closing(server.connect()) as killer:
            sleeper = threading.Thread(target=_expect_to_fail, args=(victim, marker))
            sleeper.start()
            pid = victim.info.backend_pid
            until(partial(_sleeps, killer, pid))
            killer.execute(f"select pg_{kill}_backend({pid}) as m_killer")
            sleeper.join()
            if kill == "cancel":
                victim.execute("select 1 as m_survivor")
                story.sent["m_survivor"] += 1
        story.sent += Counter({marker: 1, "m_killer": 1})


def _expect_to_fail(connection: Any, marker: str) -> None:
    with suppress(psycopg.Error):
        connection.execute(f"select pg_sleep(30) as {marker}")


def _sleeps(connection: Any, pid: int) -> bool:
    result = connection.execute(
        "select 1 from pg_stat_activity where pid = %s and wait_event = 'PgSleep'", [pid]
    )
    return result.fetchone() is not None
