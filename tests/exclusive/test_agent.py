# SPDX-License-Identifier: Apache-2.0
"""The agent beside real servers: its counts are the servers' own, and its joules add up."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pyarrow.dataset as ds
import pytest

from metrics_pages import is_monotone, total
from qjoule_studies.servers.mysql import mariadb_server
from qjoule_studies.servers.postgres import postgres_server
from qjoule_studies.servers.redis import installed_redis, redis_in
from tracing.agent import INTERVAL_S, Agent, fingerprint_of, value
from tracing.root_part import holds_nothing

pytestmark = [pytest.mark.root, pytest.mark.server, pytest.mark.timeout(240)]

CALLS = 500
WARM_S = 60.0
#: The statement, how its shape begins, and which server gets it.
ADDITION = "select {n} + 41", "select ? + ?"
COUNT = "select count(*) from pg_class where relpages > {n}", "select count(*) from pg_class"
DIVISION = "select 7 / ({n} % 5) from generate_series(1, 3)", "select ? / ("  # every fifth, by zero
ROWS = "select {n} + g from generate_series(1, 3) g", "select ? + g"
PACKAGE = ("node", "package")
MARIADB_CALLS = "show global status like 'Com_select'"
POSTGRES_CALLS = (
    "select sum(calls) from pg_stat_statements where query ilike 'select count(*) from pg_class%'"
)


@contextmanager
def running(directory: Path, *pids: int, more: str = "") -> Iterator[Agent]:
    agent = Agent(directory, *pids, more=more)
    try:
        agent.started()
        yield agent
    finally:
        agent.close()


def execute(connection: Any, statement: str, times: int) -> tuple[int, int]:
    """Returns how many executions failed, and how many rows the others returned."""
    cursor = connection.cursor()
    errors = rows = 0
    for number in range(times):
        try:
            cursor.execute(statement.format(n=number))
            rows += len(cursor.fetchall())
        except psycopg.Error:
            errors += 1
    return errors, rows


def scalar(connection: Any, statement: str, column: int = 0) -> int:
    cursor = connection.cursor()
    cursor.execute(statement)
    return int(cursor.fetchone()[column] or 0)


def warmed(agent: Agent, connection: Any, statement: str, text: str) -> str:
    """Runs a statement until it has a series; returns its fingerprint."""
    deadline = time.monotonic() + WARM_S
    while not (fingerprint := fingerprint_of(agent.samples(), text)):
        assert time.monotonic() < deadline, text
        execute(connection, statement, 5)
        time.sleep(0.3)
    return fingerprint


def settled(agent: Agent, *counters: tuple[str, str]) -> list[float]:
    """The values of counters (name, fingerprint), once no interval changes them."""
    before: list[float] = []
    while True:
        page = agent.samples()
        now = [
            value(page, f"qjoule_query_{name}_total", fingerprint=fingerprint) or 0
            for name, fingerprint in counters
        ]
        if now == before:
            return now
        before = now
        time.sleep(3 * INTERVAL_S)


def test_counts_errors_and_rows_are_the_servers_own(tmp_path: Path) -> None:
    with (
        mariadb_server() as maria,
        postgres_server() as postgres,
        running(tmp_path, maria.pid, postgres.pid) as agent,
        maria.connect() as to_maria,
        postgres.connect() as to_postgres,
    ):
        to_postgres.autocommit = True
        to_postgres.execute("create extension if not exists pg_stat_statements")
        first_page = agent.samples()
        addition = warmed(agent, to_maria, *ADDITION)
        count, division, rows = (
            warmed(agent, to_postgres, *statement) for statement in (COUNT, DIVISION, ROWS)
        )
        counters = [("calls", addition), ("calls", count)]
        counters += [(name, each) for each in (division, rows) for name in ("errors", "rows")]
        before = settled(agent, *counters)
        servers_before = scalar(to_maria, MARIADB_CALLS, 1), scalar(to_postgres, POSTGRES_CALLS)
        execute(to_maria, ADDITION[0], CALLS)
        execute(to_postgres, COUNT[0], 2 * CALLS)
        outcomes = execute(to_postgres, DIVISION[0], 50), execute(to_postgres, ROWS[0], 50)
        servers_after = scalar(to_maria, MARIADB_CALLS, 1), scalar(to_postgres, POSTGRES_CALLS)
        after = settled(agent, *counters)
        assert _difference(servers_before, servers_after) == [CALLS, 2 * CALLS]
        assert outcomes == ((10, 120), (0, 150))
        assert _difference(before, after) == [CALLS, 2 * CALLS, 10, 120, 0, 150]
        page = agent.samples()
        assert is_monotone(first_page, page)
        for domain in {dict(labels)["domain"] for name, labels in page if "node_joules" in name}:
            node = total(page, "qjoule_node_joules_total", domain=domain)
            owners = total(page, "qjoule_owner_joules_total", domain=domain)
            assert abs(owners - node) <= 1e-6 + 1e-12 * node
        assert b"select 41" not in agent.page().lower(), "no literal"
        holds_nothing(_listener(agent))
        agent.stop()
    stored = ds.dataset(agent.store / "rollups", partitioning="hive").to_table().to_pylist()
    assert sum(row["calls"] for row in stored if row["fingerprint"] == count) == after[1]
    node_nj = [row["energy_nj"] for row in stored if (row["kind"], row["name"]) == PACKAGE]
    assert sum(node_nj) == sum(row["energy_nj"] for row in stored if row["kind"] != "node")


def _difference(before: Any, after: Any) -> list[float]:
    return [late - early for early, late in zip(before, after, strict=True)]


def _listener(agent: Agent) -> int:
    """The process that listens for Prometheus; it holds sockets and /dev/null alone."""
    for process in agent.processes():
        addresses = [connection.laddr for connection in process.net_connections("tcp")]
        if any(address and address[1] == agent.port for address in addresses):
            links = [str(each.readlink()) for each in Path(f"/proc/{process.pid}/fd").iterdir()]
            assert all(link.startswith("socket:") or link == "/dev/null" for link in links), links
            return int(process.pid)
    raise AssertionError("nothing listens")


def test_an_orderly_restart_is_no_reset_and_a_kill_is_one(tmp_path: Path) -> None:
    start = "qjoule_start_time_seconds"
    with mariadb_server() as server, server.connect() as connection:
        with running(tmp_path, server.pid) as agent:
            fingerprint = warmed(agent, connection, *ADDITION)
            before = agent.samples()
            agent.stop()
        with running(tmp_path, server.pid) as agent:
            later = agent.samples()
            assert is_monotone(before, later)
            assert fingerprint_of(later, ADDITION[1]) == fingerprint
            assert value(later, start) == value(before, start)
            processes = agent.processes()
            max(processes, key=lambda process: process.memory_info().rss).kill()  # the engine
            assert agent.process.wait(30) != 0
            assert not psutil.wait_procs(processes, 20)[1], "nothing stays attached"
        with running(tmp_path, server.pid) as agent:
            assert (value(agent.samples(), start) or 0) > (value(later, start) or 0)
            processes = agent.processes()
            agent.process.kill()  # the root part
            assert not psutil.wait_procs(processes, 20)[1]


def test_a_server_that_restarts_is_followed(tmp_path: Path) -> None:
    program = installed_redis()
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()

    def work(server: Any) -> None:
        with server.connect() as client:
            for number in range(CALLS):
                client.set(f"key:{number}", number)

    with ExitStack() as stack:
        with redis_in(tmp_path / "a", program) as first:
            agent = stack.enter_context(running(tmp_path, first.pid))
            work(first)
            name = f"redis:{first.port}"
            agent.until(
                lambda page: total(page, "qjoule_query_calls_total", server=name) >= CALLS,
                "calls before",
            )
        agent.until(
            lambda page: value(page, "qjoule_server_traced", server=name) == 0, "it is dark"
        )
        with redis_in(tmp_path / "b", program) as second:
            agent.until(
                lambda page: value(page, "qjoule_server_traced", server=name) == 1, "followed"
            )
            before = total(agent.samples(), "qjoule_query_calls_total", server=name)
            work(second)
            agent.until(
                lambda page: total(page, "qjoule_query_calls_total", server=name) >= before + CALLS,
                "calls after",
            )
            agent.stop()
