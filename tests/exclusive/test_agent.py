# SPDX-License-Identifier: Apache-2.0
"""The agent beside real servers: its counts are the servers' own, and its joules add up."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pyarrow.dataset as ds
import pytest

from metrics_pages import is_monotone, total
from qjoule.root_part.protocol import START_AGAIN
from qjoule.studies.servers.redis import installed_redis, redis_in
from servers.mariadb import mariadb_server
from servers.postgres import postgres_server
from tracing.agent import Agent, fingerprint_of, value
from tracing.live_top import QJOULE, live_top

pytestmark = [pytest.mark.root, pytest.mark.server, pytest.mark.timeout(240)]

CALLS = 500
WARM_S = 60.0
PG_CALLS = (
    "select sum(calls) from pg_stat_statements where query ilike 'select count(*) from pg_class%'"
)


@contextmanager
def running(directory: Path, *pids: int, store: bool = True) -> Iterator[Agent]:
    agent = Agent(directory, *pids, store=store)
    try:
        agent.started()
        yield agent
    finally:
        agent.close()


def execute(connection: Any, statement: str, times: int) -> None:
    cursor = connection.cursor()
    for number in range(times):
        cursor.execute(statement.format(n=number))
        cursor.fetchall()


def scalar(connection: Any, statement: str, column: int = 0) -> int:
    cursor = connection.cursor()
    cursor.execute(statement)
    return int(cursor.fetchone()[column] or 0)


def warmed(agent: Agent, connection: Any, statement: str, text: str) -> str:
    """Runs a statement until it has a series; returns its fingerprint."""
    deadline = time.monotonic() + WARM_S
    while not (found := fingerprint_of(agent.samples(), text)):
        assert time.monotonic() < deadline, text
        execute(connection, statement, 5)
        time.sleep(0.3)
    return found


def calls(agent: Agent, fingerprint: str) -> float:
    return value(agent.samples(), "qjoule_query_calls_total", fingerprint=fingerprint) or 0


def settled(agent: Agent, fingerprint: str) -> float:
    """The calls once two pages, more than an interval apart, agree."""
    before = -1.0
    while (now := calls(agent, fingerprint)) != before:
        before = now
        time.sleep(3.5)
    return now


def test_counts_are_the_servers_own(tmp_path: Path) -> None:
    maria_text, pg_text = "select {n} + 41", "select count(*) from pg_class where relpages > {n}"
    com = "show global status like 'Com_select'"
    with mariadb_server() as maria, postgres_server() as postgres:
        with running(tmp_path, maria.pid, postgres.pid) as agent:
            before_page = agent.samples()
            with maria.connect() as one, postgres.connect() as other:
                other.execute("create extension if not exists pg_stat_statements")
                a = warmed(agent, one, maria_text, "select ? + ?")
                b = warmed(agent, other, pg_text, "select count(*) from pg_class")
                before = settled(agent, a), settled(agent, b)
                server_before = scalar(one, com, 1), scalar(other, PG_CALLS)
                execute(one, maria_text, CALLS)
                execute(other, pg_text, 2 * CALLS)
                server_after = scalar(one, com, 1), scalar(other, PG_CALLS)
                after = settled(agent, a), settled(agent, b)
            counted = [later - earlier for earlier, later in zip(before, after, strict=True)]
            said = [late - early for early, late in zip(server_before, server_after, strict=True)]
            assert counted == said == [CALLS, 2 * CALLS]
            found = agent.samples()
            assert is_monotone(before_page, found)
            for domain in {dict(key[1])["domain"] for key in found if "node_joules" in key[0]}:
                node = total(found, "qjoule_node_joules_total", domain=domain)
                owners = total(found, "qjoule_owner_joules_total", domain=domain)
                assert abs(owners - node) <= 1e-6 + 1e-12 * node
            assert total(found, "qjoule_query_calls_total", fingerprint=a) >= CALLS
            assert b"select 41" not in agent.page().lower(), "no literal"
            agent.stop()
        rows = ds.dataset(agent.store / "rollups", partitioning="hive").to_table().to_pylist()
        stored = sum(row["calls"] for row in rows if row["fingerprint"] == b)
        assert stored == after[1]
        node_nj = sum(row["energy_nj"] for row in rows if (row["kind"], row["name"]) == MAIN)
        owners_nj = sum(row["energy_nj"] for row in rows if row["kind"] != "node")
        assert node_nj == owners_nj


def test_hours_are_summed_by_tags_that_clients_send(tmp_path: Path) -> None:
    statement = "select {n} + 41 /*tenant='%s',endpoint='x'*/"
    with mariadb_server() as server, server.connect() as connection:
        agent = Agent(tmp_path, server.pid, more='tags = ["tenant"]\n')
        try:
            agent.started()
            fingerprint = warmed(agent, connection, statement % "first", "select ? + ?")
            for tenant, times in (("a", CALLS), ("b", 2 * CALLS)):
                execute(connection, statement % tenant, times)
            settled(agent, fingerprint)
            agent.stop()
        finally:
            agent.close()
    found = ds.dataset(agent.store / "tags", partitioning="hive").to_table().to_pylist()
    ours = [row for row in found if row["fingerprint"] == fingerprint]
    assert {row["tag"] for row in found} == {"tenant"}
    counted = {row["value"]: row["calls"] for row in ours}
    assert (counted["a"], counted["b"]) == (CALLS, 2 * CALLS)
    assert all(row["energy_nj"] > 0 and row["server"] for row in ours if row["value"] in "ab")


MAIN = ("node", "package")

FAILS = "select 7 / ({n} % 5) from generate_series(1, 3)"  # every fifth, by zero
GIVES = "select {n} + g from generate_series(1, 3) g"


def amount(agent: Agent, name: str, fingerprint: str) -> float:
    return value(agent.samples(), f"qjoule_query_{name}_total", fingerprint=fingerprint) or 0


def test_errors_and_rows_are_what_the_client_got(tmp_path: Path) -> None:
    with (
        postgres_server() as server,
        running(tmp_path, server.pid) as agent,
        server.connect() as connection,
    ):
        connection.autocommit = True
        cursor = connection.cursor()

        def run(statement: str, times: int) -> tuple[int, int]:
            """Errors and rows that came back."""
            errors = rows = 0
            for number in range(times):
                try:
                    cursor.execute(statement.format(n=number))
                    rows += len(cursor.fetchall())
                except Exception:  # of the driver: division by zero
                    errors += 1
            return errors, rows

        for statement, text in ((FAILS, "select ? / ("), (GIVES, "select ? + g")):
            deadline = time.monotonic() + WARM_S
            while not (found := fingerprint_of(agent.samples(), text)):
                assert time.monotonic() < deadline, text
                run(statement, 5)
                time.sleep(0.3)
            settled(agent, found)
            before = [amount(agent, name, found) for name in ("errors", "rows")]
            got = run(statement, 50)
            settled(agent, found)
            after = [amount(agent, name, found) for name in ("errors", "rows")]
            assert tuple(b - a for a, b in zip(before, after, strict=True)) == got
            assert got == ((10, 120) if statement is FAILS else (0, 150))
        agent.stop()


def test_an_orderly_restart_is_no_reset_and_a_kill_is_one(tmp_path: Path) -> None:
    with mariadb_server() as server, server.connect() as connection:
        with running(tmp_path, server.pid) as agent:
            fingerprint = warmed(agent, connection, "select {n} + 41", "select ? + ?")
            before = agent.samples()
            agent.stop()
        with running(tmp_path, server.pid) as agent:
            again = agent.samples()
            assert is_monotone(before, again)
            assert fingerprint_of(again, "select ? + ?") == fingerprint
            name = "qjoule_start_time_seconds"
            assert value(again, name) == value(before, name)
            processes = agent.processes()
            engine = max(processes, key=lambda one: one.memory_info().rss)
            engine.kill()
            assert agent.process.wait(30) != 0
            _, alive = psutil.wait_procs(processes, 20)
            assert not alive, "nothing stays attached when the engine is killed"
        with running(tmp_path, server.pid) as agent:
            reset = agent.samples()
            assert (value(reset, name) or 0) > (value(again, name) or 0)
            processes = agent.processes()
            agent.process.kill()  # the root part
            _, alive = psutil.wait_procs(processes, 20)
            assert not alive


def test_a_server_that_restarts_is_followed(tmp_path: Path) -> None:
    program = installed_redis()
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with redis_in(tmp_path / "a", program) as first:
        agent = Agent(tmp_path, first.pid)
        try:
            agent.started()
            with first.connect() as client:
                for number in range(CALLS):
                    client.set(f"before:{number}", number)
            name = f"redis:{first.port}"
            agent.until(
                lambda found: total(found, "qjoule_query_calls_total", server=name) >= CALLS,
                "calls before",
            )
        except BaseException:
            agent.close()
            raise
    try:
        agent.until(
            lambda found: value(found, "qjoule_server_traced", server=name) == 0, "it is dark"
        )
        with redis_in(tmp_path / "b", program) as second:
            agent.until(
                lambda found: value(found, "qjoule_server_traced", server=name) == 1, "followed"
            )
            before = total(agent.samples(), "qjoule_query_calls_total", server=name)
            with second.connect() as client:
                for number in range(CALLS):
                    client.set(f"after:{number}", number)
            agent.until(
                lambda found: (
                    total(found, "qjoule_query_calls_total", server=name) >= before + CALLS
                ),
                "calls after",
            )
            agent.stop()
    finally:
        agent.close()


def test_reload_second_agent_and_top_beside_it(tmp_path: Path) -> None:
    with mariadb_server() as server, running(tmp_path, server.pid) as agent:
        windows = value(agent.samples(), "qjoule_windows_total") or 0
        with live_top("--pid", str(server.pid)) as top:
            top.wait_for(2)
        again = subprocess.run(
            [QJOULE, "agent", "--config", str(agent.config), "--pid", str(server.pid)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert again.returncode == 1
        assert again.stderr.splitlines()[-1].endswith("Address already in use")
        agent.configure(shapes=7)
        agent.process.send_signal(signal.SIGHUP)
        time.sleep(2)
        agent.config.write_text("[metrics]\nshape = 7\n")
        agent.process.send_signal(signal.SIGHUP)
        time.sleep(2)
        found = agent.until(
            lambda one: (value(one, "qjoule_windows_total") or 0) > windows + 30, "windows go on"
        )
        assert value(found, "qjoule_unattributed_windows_total") == 0
        words = agent.stop()
    assert "the configuration was read again" in words
    assert "the configuration stays as it was" in words and "metrics.shape" in words
    assert len([line for line in words.splitlines() if "Traceback" in line]) == 0


def test_the_process_that_listens_has_no_rights(tmp_path: Path) -> None:
    with mariadb_server() as server, running(tmp_path, server.pid) as agent:
        listening = next(
            one
            for one in agent.processes()
            if any(
                connection.laddr and connection.laddr[1] == agent.port
                for connection in one.net_connections("tcp")
            )
        )
        status = Path(f"/proc/{listening.pid}/status").read_text()
        fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        assert int(fields["CapEff"], 16) == int(fields["CapPrm"], 16) == 0
        assert int(fields["CapBnd"], 16) == 0
        assert fields["NoNewPrivs"] == "1" and fields["Seccomp"] == "2"
        assert "0" not in fields["Uid"].split()
        links = [str(one.readlink()) for one in Path(f"/proc/{listening.pid}/fd").iterdir()]
        assert all(one.startswith("socket:") or one == "/dev/null" for one in links), links
        agent.stop()


SCRIPT = """
import os, sys
path = sys.argv[-1]
with open(path, "a") as file:
    file.write(f"{os.getppid()} {os.geteuid()}\\n")
with open(path) as file:
    sys.exit(%d if len(file.readlines()) < 3 else 7)
"""


@pytest.mark.parametrize(("command", "starts"), [("agent", 3), ("top", 1)])
def test_the_root_part_starts_the_agent_again(tmp_path: Path, command: str, starts: int) -> None:
    script, log = tmp_path / "script.py", tmp_path / "log"
    script.write_text(SCRIPT % START_AGAIN)
    log.touch()
    log.chmod(0o666)
    root = str(Path(sys.executable).parent / "qjoule-root")
    words = [root, sys.executable, "-I", str(script), command, str(log)]
    code = subprocess.run(words, timeout=60, check=False).returncode
    lines = log.read_text().splitlines()
    assert len(lines) == starts and code == (7 if starts == 3 else START_AGAIN)
    assert len(set(lines)) == 1, "the same process, and each time without rights"
    assert "0" not in lines[0].split()
