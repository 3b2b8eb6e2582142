# SPDX-License-Identifier: Apache-2.0
"""Stacks of what real queries wait for: they are the waits of the queries' own accounts, to the
nanosecond where all are sampled, and a flood of them is sampled within the rate.
"""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pandas as pd
import psycopg
import pymysql
import pytest

from qjoule.commands.frame_names import trace_frame_names
from qjoule.engine.attribute import AttributionRequest
from qjoule.engine.flame import flame
from qjoule.engine.stack_waits import WaitSum
from qjoule.trace.reader import Trace
from qjoule.trace.vocabulary import WAIT_KINDS, WAITS
from qjoule_studies.servers.mysql import mariadb_server
from qjoule_studies.servers.process import DatabaseServer
from servers.databases import or_skip
from tracing.planted_waits import SLOW_S, Story
from tracing.recording import Run, at_once, check_waits, qjoule, recording
from waiting import until

pytestmark = [pytest.mark.root, pytest.mark.server]
ENERGY = ("--energy", "estimated:5,8,12,20")
#: Draws all waits, if a CPU has no more than 188 of a kind in an eighth of a second.
ALL = ("--stacks", "5999", "--ring-mb", "64", *ENERGY)
HZ = 99
EXITING = {"stack"}  #: samples of the CPU time of backends that have no memory any more


def sampled_waits(trace: Trace) -> pd.DataFrame:
    """The rows of `waits`, of which all have an end."""
    waits = trace.pandas("waits")
    assert len(waits) and waits["ns"].notna().all()
    own_ns = (waits["ns"] - waits["run_queue_ns"]).astype("int64")
    return waits.assign(
        own_ns=own_ns,
        kind=waits["kind"].astype(str),
        query=waits["query"].astype("uint64"),
        probability=waits["probability"].astype(float),
    )


def check_most_are_whole(waits: pd.DataFrame) -> None:
    """Asserts that nearly all stacks reach their thread's entry."""
    assert waits["whole"].mean() >= 0.95, waits[~waits["whole"]].to_string()


def check_all_sampled(trace: Trace) -> None:
    """Asserts that each query's sampled waits are those of its own account, but for those in which
    it was preempted. In a login any reply may be the last one. Whether a piece of a wait for a
    metadata lock was a sleep is known later.
    """
    waits, queries = sampled_waits(trace), check_waits(trace)
    queries = queries[queries["command"] != "connect"].set_index("query")
    assert (waits["probability"] == 1).all()
    sums = waits.pivot_table("own_ns", "query", "kind", "sum", fill_value=0)
    sums = sums.reindex(index=queries.index, columns=WAIT_KINDS, fill_value=0).astype("int64")
    own = queries[WAITS].astype("int64").set_axis(WAIT_KINDS, axis=1)
    for kinds in (["lock", "sleep"], ["io"], ["network"], ["other"]):
        off = own[kinds].sum(axis=1) - sums[kinds].sum(axis=1)
        assert not off.any(), f"{kinds}:\n{queries.assign(off=off)[off != 0].head(9).to_string()}"


def statements(server: DatabaseServer) -> None:
    with closing(server.connect()) as connection, connection.cursor() as cursor:
        for number in range(300):
            cursor.execute(f"select {number} as waits_plain")
            cursor.fetchall()


@pytest.mark.parametrize("name", ["mariadb", "postgres"])
@pytest.mark.parametrize("attach_mode", ["socket", "symbol"])
def test_sampled_waits_are_the_queries_own(
    name: str, attach_mode: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    server: DatabaseServer = request.getfixturevalue(name)
    with recording(tmp_path / "t", f"--pid={server.pid}", "--attach", attach_mode, *ALL):
        at_once(statements, [server] * 4)
        for plant in (Story.row_lock, Story.table_lock, Story.sleep):
            plant(Story(server))
    run = Run(tmp_path / "t")
    assert run.loss.keys() <= EXITING
    check_all_sampled(run.trace)
    if name == "mariadb":  # a backend has few waits, and the first since it mapped code is cut
        check_most_are_whole(sampled_waits(run.trace))


@pytest.mark.parametrize("plant", [Story.table_lock, Story.sleep])
def test_pieces_of_a_wait_for_a_metadata_lock_are_no_sleeps(
    plant: Callable[[Story], None], mariadb: DatabaseServer, tmp_path: Path
) -> None:
    with recording(tmp_path / "t", f"--pid={mariadb.pid}", *ALL):
        plant(Story(mariadb))
    trace = Trace(tmp_path / "t")
    rows = flame(trace, AttributionRequest(("fingerprint",)), trace_frame_names(trace, None)).rows
    row = max(rows, key=lambda row: row.row.waits.latency_ns if row.row.waits else 0)
    assert row.row.waits is not None
    sums = WaitSum()
    for wait_sum in row.waits.values():
        sums.add_all(wait_sum)
    assert sums.by_kind_ns["lock"] == row.row.waits.lock
    assert sums.by_kind_ns["sleep"] == row.row.waits.sleep
    assert max(row.row.waits.lock, row.row.waits.sleep) > 0.4e9


def test_without_stacks_no_wait_is_sampled(postgres: DatabaseServer, tmp_path: Path) -> None:
    with recording(tmp_path / "t", f"--pid={postgres.pid}", *ENERGY):
        Story(postgres).sleep()
    assert not Trace(tmp_path / "t").rows("waits")


def test_of_a_flood_of_short_waits_few_are_sampled_and_the_sum_is_right(
    postgres: DatabaseServer, tmp_path: Path
) -> None:
    text = "select count(*) from generate_series(1, 5000) n where pg_sleep(0.00001) is not null"
    with (
        recording(tmp_path / "t", f"--pid={postgres.pid}", "--stacks", str(HZ), *ENERGY),
        closing(postgres.connect()) as connection,
    ):
        begin = time.monotonic()
        connection.execute(text)
        seconds = time.monotonic() - begin
    run = Run(tmp_path / "t")
    assert run.loss.keys() <= EXITING
    (query,) = run.having("pg_sleep").to_dict("records")
    waits = sampled_waits(run.trace)
    waits = waits[(waits["query"] == query["query"]) & (waits["kind"] == "sleep")]
    cpus = len(os.sched_getaffinity(0))
    assert 100 < len(waits) < 1.3 * cpus * HZ / 4 * (seconds + 1), f"in {seconds} s"
    check_most_are_whole(waits)
    weight = 1 / waits["probability"]
    error_ns = math.sqrt((weight * (weight - 1) * waits["own_ns"].astype(float) ** 2).sum())
    estimate_ns = (weight * waits["own_ns"]).sum()
    assert abs(estimate_ns - query["wait_sleep_ns"]) < 4 * error_ns
    assert error_ns < 0.2 * estimate_ns


def sleeps(connection: psycopg.Connection) -> None:
    with suppress(psycopg.Error):
        connection.execute("select pg_sleep(30)")


@pytest.mark.parametrize("ends", ["the backend", "the trace"])
def test_a_wait_that_is_cut_off(ends: str, postgres: DatabaseServer, tmp_path: Path) -> None:
    """Its backend is terminated, or tracing ends meanwhile."""
    with closing(postgres.connect()) as connection, closing(postgres.connect()) as other:
        pid = connection.info.backend_pid
        sleeper = threading.Thread(target=sleeps, args=(connection,))
        with recording(tmp_path / "t", f"--pid={postgres.pid}", *ALL):
            sleeper.start()
            time.sleep(SLOW_S)
            if ends == "the backend":
                other.execute(f"select pg_terminate_backend({pid})")
                sleeper.join()
        other.execute(f"select pg_terminate_backend({pid})")
        sleeper.join()
    trace = Trace(tmp_path / "t")
    waits = sampled_waits(trace)
    slept = waits[waits["kind"] == "sleep"]
    assert len(slept) == 1
    assert slept["own_ns"].iloc[0] == pytest.approx(SLOW_S * 1e9, rel=0.3)
    assert "an end" not in qjoule("flame", str(tmp_path / "t"), "--format", "nodes").stderr


def test_a_server_that_is_killed_while_its_query_waits(tmp_path: Path) -> None:
    with or_skip(), mariadb_server() as server:
        server.may_be_killed = True
        with recording(tmp_path / "t", f"--pid={server.pid}", *ALL):
            waiter = threading.Thread(target=_waits_for_ever, args=(server,))
            waiter.start()
            until(lambda: "sleep(30)" in _processes(server))
            time.sleep(SLOW_S)
            os.kill(server.pid, signal.SIGKILL)
            waiter.join()
    waits = Trace(tmp_path / "t").pandas("waits")
    longest = waits["ns"].dropna().max()
    assert longest > SLOW_S * 0.9e9
    assert (waits["ns"].isna().sum()) <= 1, "of the thread that was killed first"


def _waits_for_ever(server: DatabaseServer) -> None:
    with suppress(pymysql.Error):
        Story(server).execute("select sleep(30)")


def _processes(server: DatabaseServer) -> str:
    with closing(server.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("show processlist")
        return str(cursor.fetchall())
