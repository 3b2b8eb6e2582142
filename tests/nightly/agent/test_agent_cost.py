# SPDX-License-Identifier: Apache-2.0
"""The cost that the agent reports of itself, beside a real server under load. Also: its random
sample of queries.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from metrics_pages import total
from qjoule.agent import handover
from qjoule.agent.degradation import DegradationLevel
from qjoule.agent.handover import Handover
from qjoule.lazy_import import pc
from qjoule.metrics.counters import Counters, Limits
from qjoule.root_part.protocol import Account, Kind, Refused, ask
from qjoule.servers import registry
from qjoule.servers.decoding import fingerprint
from qjoule_fleet.samples import estimate
from qjoule_studies.servers.mysql import mariadb_server
from qjoule_studies.servers.postgres import postgres_server
from tracing.agent import INTERVAL_S, Agent, value
from tracing.live_top import QJOULE
from tracing.root_part import RootPart, root_part
from tracing.tracer import load, load_bytes

pytestmark = [pytest.mark.root, pytest.mark.timeout(240)]

PROGRAM = "on_fork"
CALLS = 500
TRACING = 26  #: BPF_PROG_TYPE_TRACING


def kernels_own(root: RootPart) -> Account:
    """The sum over the root part's programs (bpf_prog_show_fdinfo(), kernel/bpf/syscall.c)."""
    by_program: dict[int, tuple[int, int]] = {}
    for info in Path(f"/proc/{root.pid}/fdinfo").iterdir():
        try:
            text = info.read_text()
        except FileNotFoundError:  # it was closed since it was listed
            continue
        fields = dict(line.partition(":\t")[::2] for line in text.splitlines())
        if "prog_type" in fields and "run_cnt" in fields:
            by_program[int(fields["prog_id"])] = int(fields["run_cnt"]), int(fields["run_time_ns"])
    return Account(
        sum(runs for runs, _ in by_program.values()), sum(ns for _, ns in by_program.values())
    )


def forks(number: int) -> None:
    for _ in range(number):
        os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)


def test_accounts_are_the_kernels_own() -> None:
    with root_part() as root, root.tracer() as tracer:
        assert sum(account.runs for account in read_accounts(root)) == 0, "nothing is loaded"
        load(tracer, load_bytes(PROGRAM))
        ask(tracer, Kind.ATTACH, text=bytes(16) + PROGRAM.encode())
        ask(tracer, Kind.DONE)
        first = ask(root.connection, Kind.ACCOUNTS)
        before = first.accounts()[TRACING]
        forks(50)
        low = kernels_own(root)
        now = read_accounts(root)
        high = kernels_own(root)
        os.close(first.fd)
        assert low.runs <= now[TRACING].runs <= high.runs and low.ns <= now[TRACING].ns <= high.ns
        assert now[TRACING].runs - before.runs >= 50 and now[TRACING].ns > before.ns
        assert not any(account.runs for at, account in enumerate(now) if at != TRACING)


def read_accounts(root: RootPart) -> tuple[Account, ...]:
    reply = ask(root.connection, Kind.ACCOUNTS)
    os.close(reply.fd)
    return reply.accounts()


def test_only_the_command_may_ask() -> None:
    with root_part() as root, root.tracer() as tracer:
        with pytest.raises(Refused):
            ask(tracer, Kind.ACCOUNTS)
        load(tracer, load_bytes(PROGRAM))  # and the refusal did no harm
        assert read_accounts(root)


@pytest.mark.server
def test_a_level_is_handed_over_and_counts_stay_exact(tmp_path: Path) -> None:
    """Level 2: windows of 500 ms, no hardware counters, no uprobes where sockets suffice."""
    with mariadb_server() as server, server.connect() as connection:
        agent = Prepared(tmp_path, server.pid)
        try:
            agent.started()
            first = agent.until(lambda page: "qjoule_budget_level" in {key[0] for key in page}, "")
            assert value(first, "qjoule_budget_level") == 2
            assert value(first, "qjoule_budget_ratio") == 0.001
            cursor = connection.cursor()
            before = total(agent.samples(), "qjoule_query_calls_total")
            for number in range(CALLS):
                cursor.execute(f"select {number} + 41")
                cursor.fetchall()
            agent.until(
                lambda page: total(page, "qjoule_query_calls_total") >= before + CALLS, "calls"
            )
            time.sleep(3 * INTERVAL_S)
            assert total(agent.samples(), "qjoule_query_calls_total") == before + CALLS
            name = "qjoule_budget_used_ratio"
            page = agent.until(
                lambda page: (value(page, name, part="programs") or 0) > 0, "a sample of the cost"
            )
            assert (value(page, name, part="programs") or 0) < 0.9
            assert 0 <= (value(page, name, part="processes") or 0) < 1
            assert value(page, name, part="traps") == 0, "the socket mode has no uprobes"
            agent.stop()
        finally:
            agent.close()
    taken_over = handover.take(agent.store, Limits(), time.time())
    assert taken_over.continued and taken_over.shed.level == 2


class Prepared(Agent):
    """An agent whose predecessor left level 2."""

    def configure(self, *, store: bool = True, shapes: int = 100, more: str = "") -> None:
        super().configure(store=store, shapes=shapes, more=f'[budget]\ncpu = "0.1%"\n{more}')
        now_s = time.time()
        shed = DegradationLevel(level=2, since_s=now_s)
        handover.leave(self.store, Handover(Counters(Limits(), now_s), shed=shed))
        os.chown(self.store / handover.NAME, self.store.stat().st_uid, -1)


# --------------------------------------------------------------------------------------------------
#
# The agent's random sample of queries, beside real servers that count all of theirs.

SAMPLES = 40
#: A correct sample misses by more than this once in two million tests.
SIGMAS = 5.0
CHEAP, DEAR = "select {n} + 41", "select benchmark({n} % 7 * 3000 + 3000, sha2('x', 256))"


def execute(connection: Any, statement: str, times: int) -> None:
    cursor = connection.cursor()
    for number in range(times):
        cursor.execute(statement.format(n=number))
        cursor.fetchall()


def columns(rows: pa.Table, rows_chosen: pa.Array | None = None) -> dict[str, np.ndarray[Any, Any]]:
    selected = rows if rows_chosen is None else rows.filter(rows_chosen)
    return {
        name: selected[name].to_numpy() for name in ("calls", "cpu_ns", "energy_nj", "probability")
    }


def within(values: np.ndarray[Any, Any], probability: np.ndarray[Any, Any], truth: float) -> None:
    """The estimate is as near the truth as its own variance allows."""
    group = np.zeros(len(values), np.int64)
    estimated = estimate(values.astype(np.float64), probability, group, 1)
    spread = float(np.sqrt(np.sum((1 - probability) * (values / probability) ** 2)))
    assert abs(estimated.total[0] - truth) <= SIGMAS * spread + 0.02 * truth, (estimated, truth)


@pytest.mark.server
def test_estimates_are_near_what_the_sums_and_the_server_count(tmp_path: Path) -> None:
    with mariadb_server() as server, server.connect() as first, server.connect() as second:
        first.cursor().execute("create user 'reader'@'%' identified by 'p'")
        agent = Agent(tmp_path, server.pid, more=f"samples = {SAMPLES}\n")
        try:
            agent.started()
            with server.connect(user="reader", password="p") as reader:
                execute(first, CHEAP, 3000)
                execute(reader, CHEAP, 9000)
                execute(second, DEAR, 400)
                time.sleep(3)
            assert (value(agent.samples(), "qjoule_store_samples_total") or 0) > 2 * SAMPLES
            agent.stop()
        finally:
            agent.close()
    rows = ds.dataset(agent.store / "samples", partitioning="hive").to_table()
    sums = ds.dataset(agent.store / "rollups", partitioning="hive").to_table().to_pylist()
    shapes = {row["fingerprint"]: row for row in sums if row["kind"] == "queries"}
    counts = rows.group_by("fingerprint").aggregate([("calls", "count")]).to_pylist()
    assert {row["fingerprint"] for row in counts} >= shapes.keys() - {"other"}, "each shape has one"
    assert max(row["calls_count"] for row in counts) < 12 * SAMPLES
    # Until a statement has a series, its sums are in `other`. So what it took is only known in all.
    everything = columns(rows)
    for name in ("calls", "cpu_ns", "energy_nj"):
        truth = float(sum(row[name] for row in sums if row["kind"] == "queries"))
        within(np.nan_to_num(everything[name]), everything["probability"], truth)
    for statement, times in ((CHEAP, 12_000), (DEAR, 400)):
        shape = fingerprint(statement.format(n=1).encode(), registry.dialect("mysql"))
        samples_of_shape = columns(rows, pc.equal(rows["fingerprint"], shape.fingerprint))
        within(samples_of_shape["calls"], samples_of_shape["probability"], times)
    cheap = {user: rows.filter(pc.equal(rows["user"], user)) for user in ("reader", "root")}
    samples_of_reader = columns(cheap["reader"])
    within(samples_of_reader["calls"], samples_of_reader["probability"], 9000)
    rows_by_user = json.loads(ask_command(agent, "--by", "user", "--json"))
    by_user = {row["user"]: row for row in rows_by_user}
    assert by_user["root"]["joules"] > by_user["reader"]["joules"], "the dear statement is root's"
    assert (
        by_user["reader"]["calls_low"]
        <= by_user["reader"]["calls"]
        <= by_user["reader"]["calls_high"]
    )
    assert "reader" in ask_command(agent, "--by", "user,client", "--last", "1h")


def ask_command(agent: Agent, *arguments: str) -> str:
    done = subprocess.run(
        [QJOULE, "samples", str(agent.store), *arguments],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


@pytest.mark.server
def test_errors_and_rows_of_drawn_queries(tmp_path: Path) -> None:
    with postgres_server() as server, server.connect() as connection:
        agent = Agent(tmp_path, server.pid, more="samples = 1000\n")
        try:
            agent.started()
            connection.autocommit = True
            execute(connection, "select {n} + g from generate_series(1, 3) g", 50)
            for _ in range(20):
                with suppress(Exception):  # of the driver: division by zero
                    execute(connection, "select 7 / (1 - g) from generate_series(1, 3) g", 1)
            time.sleep(3)
            agent.stop()
        finally:
            agent.close()
    rows = ds.dataset(agent.store / "samples", partitioning="hive").to_table().to_pylist()
    three = [row for row in rows if row["rows"] == 3]
    assert len(three) == 50 and {row["probability"] for row in three} == {1.0}
    assert {row["outcome"] for row in three} == {"ok"} and {row["client"] for row in three} != {
        None
    }
    assert sum(row["outcome"] == "error" for row in rows) == 20
    assert all(row["cpu_ns"] > 0 and row["latency_ns"] > 0 for row in three)
