# SPDX-License-Identifier: Apache-2.0
"""The agent's random sample of queries, beside real servers that count all of theirs."""

from __future__ import annotations

import json
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from qjoule.lazy_import import pc
from qjoule.servers import registry
from qjoule.servers.shapes import fingerprint
from qjoule_fleet.sampling import estimate
from qjoule_studies.servers.mysql import mariadb_server
from qjoule_studies.servers.postgres import postgres_server
from tracing.agent import Agent, value
from tracing.live_top import QJOULE

pytestmark = [pytest.mark.root, pytest.mark.server, pytest.mark.timeout(240)]

SAMPLES = 40
#: A correct sample misses by more than this once in two million tests.
SIGMAS = 5.0
CHEAP, DEAR = "select {n} + 41", "select benchmark({n} % 7 * 3000 + 3000, sha2('x', 256))"


def execute(connection: Any, statement: str, times: int) -> None:
    cursor = connection.cursor()
    for number in range(times):
        cursor.execute(statement.format(n=number))
        cursor.fetchall()


def columns(rows: pa.Table, of: pa.Array | None = None) -> dict[str, np.ndarray[Any, Any]]:
    found = rows if of is None else rows.filter(of)
    return {
        name: found[name].to_numpy() for name in ("calls", "cpu_ns", "energy_nj", "probability")
    }


def within(values: np.ndarray[Any, Any], probability: np.ndarray[Any, Any], truth: float) -> None:
    """The estimate is as near the truth as its own variance allows."""
    group = np.zeros(len(values), np.int64)
    found = estimate(values.astype(np.float64), probability, group, 1)
    spread = float(np.sqrt(np.sum((1 - probability) * (values / probability) ** 2)))
    assert abs(found.total[0] - truth) <= SIGMAS * spread + 0.02 * truth, (found, truth)


def test_estimates_are_near_what_the_sums_and_the_server_count(tmp_path: Path) -> None:
    with mariadb_server() as server, server.connect() as one, server.connect() as other:
        one.cursor().execute("create user 'reader'@'%' identified by 'p'")
        agent = Agent(tmp_path, server.pid, more=f"samples = {SAMPLES}\n")
        try:
            agent.started()
            with server.connect(user="reader", password="p") as reader:
                execute(one, CHEAP, 3000)
                execute(reader, CHEAP, 9000)
                execute(other, DEAR, 400)
                time.sleep(3)
            assert (value(agent.samples(), "qjoule_store_samples_total") or 0) > 2 * SAMPLES
            agent.stop()
        finally:
            agent.close()
    rows = ds.dataset(agent.store / "samples", partitioning="hive").to_table()
    sums = ds.dataset(agent.store / "rollups", partitioning="hive").to_table().to_pylist()
    shapes = {row["fingerprint"]: row for row in sums if row["kind"] == "queries"}
    drawn = rows.group_by("fingerprint").aggregate([("calls", "count")]).to_pylist()
    assert {one["fingerprint"] for one in drawn} >= shapes.keys() - {"other"}, "each shape has one"
    assert max(one["calls_count"] for one in drawn) < 12 * SAMPLES
    # Until a statement has a series, its sums are in `other`. So what it took is only known in all.
    everything = columns(rows)
    for name in ("calls", "cpu_ns", "energy_nj"):
        truth = float(sum(row[name] for row in sums if row["kind"] == "queries"))
        within(np.nan_to_num(everything[name]), everything["probability"], truth)
    for statement, times in ((CHEAP, 12_000), (DEAR, 400)):
        shape = fingerprint(statement.format(n=1).encode(), registry.dialect("mysql"))
        mine = columns(rows, pc.equal(rows["fingerprint"], shape.fingerprint))
        within(mine["calls"], mine["probability"], times)
    cheap = {user: rows.filter(pc.equal(rows["user"], user)) for user in ("reader", "root")}
    found = columns(cheap["reader"])
    within(found["calls"], found["probability"], 9000)
    told = json.loads(ask(agent, "--by", "user", "--json"))
    of = {row["user"]: row for row in told}
    assert of["root"]["joules"] > of["reader"]["joules"], "the dear statement is root's"
    assert of["reader"]["calls_low"] <= of["reader"]["calls"] <= of["reader"]["calls_high"]
    assert "reader" in ask(agent, "--by", "user,client", "--last", "1h")


def ask(agent: Agent, *words: str) -> str:
    done = subprocess.run(
        [QJOULE, "samples", str(agent.store), *words], capture_output=True, text=True, check=True
    )
    return done.stdout


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
