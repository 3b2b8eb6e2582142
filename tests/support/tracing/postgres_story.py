# SPDX-License-Identifier: Apache-2.0
"""A long story for a PostgreSQL: every way to send it a statement, each counted.

Markers as in `mysql_story`. What drivers cannot do goes through `postgres_client`.
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections import Counter
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from servers.process import DatabaseServer
from tracing.postgres_client import FLUSH, SYNC, bind, execute, parse, postgres_client, query

PROTOCOLS = ("simple", "extended", "prepared")
CLIENTS, SELECTS_EACH, TRANSACTIONS_EACH = 8, 1_000, 100
CHURN = 100
PIPELINED = 2_000


@dataclass
class Story:
    sent: Counter[str] = field(default_factory=Counter)
    #: by protocol: the counts of pg_stat_statements for pgbench's statements
    counted: dict[str, Counter[str]] = field(default_factory=dict)
    executed_before_attach: int = 0
    parallel_leader: int = 0  #: the process that led parallel workers
    parallel_workers: int = 0


def prepare_server(server: DatabaseServer) -> None:
    with server.connect() as connection:
        connection.execute("create extension if not exists pg_stat_statements")
        connection.execute("create table if not exists m_copied (a int, b text)")
        connection.execute(
            "create or replace function m_function() returns int language plpgsql as "
            "'begin perform 1 as m_inner; perform 2; return 3; end'"
        )
        connection.execute("drop table if exists m_parallel")
        connection.execute(
            "create table m_parallel as select i, md5(i::text) b from generate_series(1, 400000) i"
        )
        connection.execute("analyze m_parallel")
    pgbench(server, "-i", "-s", "1", "-q")


def pgbench(server: DatabaseServer, *options: str) -> None:
    binary = Path(server.argv[0]).with_name("pgbench")
    base = [str(binary), "-h", str(server.directory), "-p", str(server.port), "-U", "postgres"]
    subprocess.run([*base, "-n", *options, "postgres"], check=True, capture_output=True)


class Before:
    """A session with a statement prepared before the recording begins."""

    def __init__(self, server: DatabaseServer) -> None:
        self.connection = server.connect()
        self._run("m_before", 1)

    def _run(self, marker: str, value: int) -> None:
        self.connection.execute(f"select %s::int as {marker}", [value], prepare=True)

    def go_on(self, story: Story) -> None:
        for value in range(3):
            self._run("m_before", value)
        story.executed_before_attach = 3
        for value in range(2):
            self._run("m_after", value)
        story.sent["m_after"] += 2
        self.connection.close()


def tell(server: DatabaseServer, before: Before) -> Story:
    story = Story()
    for protocol in PROTOCOLS:
        _mass(server, protocol, story)
    before.go_on(story)
    _churn(server, story)
    with closing(server.connect(tcp=True)) as connection:
        _driver(connection, story)
        _copy(connection, story)
    with closing(server.connect()) as connection:
        _pipeline(connection, story)
        _parallel(connection, story)
    _bare(server, story)
    _lengths(server, story)
    _killed(server, story)
    return story


def _mass(server: DatabaseServer, protocol: str, story: Story) -> None:
    """pgbench's statements are the same for every protocol, so their counts must be, too."""
    with server.connect() as connection:
        connection.execute("select pg_stat_statements_reset()")
        each = ["-c", str(CLIENTS), "-j", "2", "-M", protocol]
        pgbench(server, *each, "-S", "-t", str(SELECTS_EACH))
        pgbench(server, *each, "-t", str(TRANSACTIONS_EACH))
        rows = connection.execute(
            "select query, calls from pg_stat_statements where query ~ 'pgbench|BEGIN|END'"
        )
        story.counted[protocol] = Counter(dict(rows.fetchall()))


def _churn(server: DatabaseServer, story: Story) -> None:
    for number in range(CHURN):
        with closing(server.connect(tcp=bool(number % 2))) as connection:
            connection.execute("select 1 as m_churn")
    story.sent["m_churn"] += CHURN


def _driver(connection: Any, story: Story) -> None:
    for value in range(10):  # psycopg prepares at the fifth
        connection.execute("select %s::int as m_prepared", [value])
    connection.autocommit = False
    with connection.cursor(name="portal") as cursor:  # DECLARE, then FETCH statements
        cursor.itersize = 100
        cursor.execute("select i as m_declared from generate_series(1, 1000) i")
        assert sum(1 for _ in cursor) == 1000
    connection.commit()
    connection.autocommit = True
    for statement in ("select * from m_missing", "select m_failing(", "select 1/0 as m_zero"):
        with suppress(psycopg.Error):
            connection.execute(statement)
    connection.execute("select m_function()")
    connection.execute('select 1 as "m_escape\x1b[31m\x1b]0;owned\x07"')
    story.sent += Counter(m_prepared=10, m_declared=1, m_missing=1, m_failing=1, m_zero=1)
    story.sent += Counter(m_function=1, m_escape=1)


def _copy(connection: Any, story: Story) -> None:
    with connection.cursor() as cursor:
        with cursor.copy("copy m_copied from stdin") as copy:
            for number in range(60_000):
                copy.write_row((number, "x" * 50))
        with cursor.copy("copy m_copied to stdout") as copy:
            assert sum(len(block) for block in copy) > 1 << 20
        cursor.execute("select count(*) as m_after_copy from m_copied")
        assert cursor.fetchone() == (60_000,)
    story.sent += Counter(m_copied=2, m_after_copy=1)


def _pipeline(connection: Any, story: Story) -> None:
    with connection.pipeline():
        for value in range(PIPELINED):
            connection.execute("select %s::int as m_pipelined", [value])
    connection.execute("select 1 as m_after_pipeline")
    story.sent += Counter(m_pipelined=PIPELINED, m_after_pipeline=1)


def _parallel(connection: Any, story: Story) -> None:
    for setting in (
        "max_parallel_workers_per_gather = 2",
        "parallel_setup_cost = 0",
        "parallel_tuple_cost = 0",
        "min_parallel_table_scan_size = 0",
    ):
        connection.execute(f"set {setting}")
    statement = "select sum(length(md5(b || '%s'))) as m_gathered from m_parallel"
    plan = connection.execute(f"explain analyze {statement}").fetchall()
    launched = [row[0] for row in plan if "Workers Launched" in row[0]]
    assert launched, f"no parallel plan: {plan}"
    story.parallel_workers = int(launched[0].split(":")[1])
    for _ in range(5):
        connection.execute(statement)
    story.parallel_leader = connection.info.backend_pid
    story.sent["m_gathered"] += 6


def _bare(server: DatabaseServer, story: Story) -> None:
    with postgres_client(server.port) as client:
        assert client.exchange(query(b""))["I"] == 1
        assert client.exchange(query(b"select 1 as m_multi; select 2; select 3"))["C"] == 3
        many = parse(b"select i as m_portal from generate_series(1, 10) i")
        client.exchange(many, bind(portal=b"p"), execute(4, b"p"), SYNC)
        client.send(many, bind(), execute(4), FLUSH)
        client.replies("s")
        client.send(execute(4), FLUSH)
        client.replies("s")
        assert client.exchange(execute(4), SYNC)["C"] == 1
        client.exchange(
            parse(b"select 1 as m_named", b"a"), parse(b"select 2 as m_other", b"b"), SYNC
        )
        for name, marker in ((b"a", "m_named"), (b"b", "m_other"), (b"a", "m_named")):
            client.exchange(bind(name), execute(), SYNC)
            story.sent[marker] += 1
        with suppress(psycopg.Error):
            client.exchange(query(b"select 1 as m_bytes, '\xff\xfe'"))
    story.sent += Counter(m_multi=1, m_portal=2, m_bytes=1)


def _lengths(server: DatabaseServer, story: Story) -> None:
    """Lengths near the limits: of what is read of a statement, and the server's buffer of 8 KB."""
    with postgres_client(server.port) as client:
        for length in (64, 4095, 4096, 4097, 8186, 8187, 8188, 8192, 16384, 1 << 20, 1 << 24):
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
            while not _is_active(killer, pid):
                time.sleep(0.01)
            killer.execute(f"select pg_{kill}_backend({pid}) as m_killer")
            sleeper.join()
            if kill == "cancel":
                victim.execute("select 1 as m_survivor")
                story.sent["m_survivor"] += 1
        story.sent += Counter({marker: 1, "m_killer": 1})


def _expect_to_fail(connection: Any, marker: str) -> None:
    with suppress(psycopg.Error):
        connection.execute(f"select pg_sleep(30) as {marker}")


def _is_active(connection: Any, pid: int) -> bool:
    found = connection.execute(
        "select 1 from pg_stat_activity where pid = %s and wait_event = 'PgSleep'", [pid]
    )
    return found.fetchone() is not None
