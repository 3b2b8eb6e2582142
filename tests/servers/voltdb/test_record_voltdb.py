# SPDX-License-Identifier: Apache-2.0
"""Procedures of a real VoltDB: the server's counts equal the trace's, by name."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from qjoule_studies.servers.process import DatabaseServer
from qjoule_studies.servers.voltdb import PARTITIONS
from servers.databases import collections
from tracing import voltdb_story as day
from tracing.recording import Run, check_waits, check_whole, qjoule, recording

pytestmark = [pytest.mark.beside, pytest.mark.root, pytest.mark.server]


@dataclass
class Told:
    story: day.Told
    run: Run
    site_cpu_ns: dict[int, int]  #: by thread, the scheduler's own
    server_cpu_ns: int
    collections: int


@pytest.fixture(scope="module")
def prepared(voltdb: DatabaseServer) -> DatabaseServer:
    day.prepare(voltdb)
    return voltdb


@pytest.fixture(scope="module")
def told(prepared: DatabaseServer, tmp_path_factory: pytest.TempPathFactory) -> Told:
    directory = tmp_path_factory.mktemp("voltdb") / "trace"
    with recording(directory, "--pid", str(prepared.pid), "--ring-mb", "64"):
        before, moved = cpu_ns(prepared.pid), collections(prepared)
        story = day.tell(prepared)
        after, moved = cpu_ns(prepared.pid), collections(prepared) - moved
    used = {tid: ns - before.get(tid, 0) for tid, ns in after.items()}
    sites = {tid: used[tid] for tid in site_threads(prepared.pid)}
    return Told(story, Run(directory), sites, sum(used.values()), moved)


def cpu_ns(pid: int) -> dict[int, int]:
    """CPU time of each thread (Documentation/scheduler/sched-stats.rst)."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return {int(t.name): int((t / "schedstat").read_text().split()[0]) for t in tasks}


def site_threads(pid: int) -> set[int]:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return {int(t.name) for t in tasks if (t / "comm").read_text().startswith("SP ")}


def test_voltdb_nothing_is_lost_and_no_value_is_told(told: Told) -> None:
    check_whole(told.run, "symbol")
    check_waits(told.run.trace)


def test_voltdb_every_procedure_counts(told: Told) -> None:
    """The server's own count, by name; failures and multiple batches count as one call."""
    invocations = told.story.invocations
    expected = {name: n for name, n in invocations.items() if not name.startswith("AdHoc")}
    assert set(expected) == day.PROCEDURES
    counts = told.run.executions()
    assert {name: counts[name] for name in day.PROCEDURES} == expected
    assert counts.total() == invocations.total() >= day.CALLS * 0.95


def test_voltdb_failures_are_told(told: Told) -> None:
    failed = told.run.queries[told.run.queries["status"] == "error"]
    assert Counter(failed["text"]) == told.story.failures
    assert set(told.run.queries["status"]) == {"ok", "error"}


def test_voltdb_ad_hoc_sql_is_told_by_statement(told: Told) -> None:
    counts = told.run.executions()
    assert {text: counts[text] for text in told.story.ad_hoc} == told.story.ad_hoc


def test_voltdb_names_are_right_although_objects_move(told: Told) -> None:
    """All texts are known ones, and the collector did move objects meanwhile."""
    assert told.collections > 10
    assert set(told.run.executions()) == day.PROCEDURES | set(told.story.ad_hoc)


def test_voltdb_a_procedure_of_all_partitions_is_one_call_on_all_their_threads(told: Told) -> None:
    parts = told.run.queries[told.run.queries["text"] == "total"]
    assert parts["executions"].sum() == told.story.invocations["total"]
    assert parts["pid"].nunique() == PARTITIONS


def test_voltdb_cpu_time_has_owners_with_names(told: Told) -> None:
    segments, owners = told.run.trace.pandas("segments"), told.run.trace.pandas("owners")
    segments["ns"] = segments["t1_ns"] - segments["t0_ns"]
    mine = segments.merge(owners, on="owner", suffixes=("", "_owner"))
    mine = mine[mine["kind"].isin(["query", "server"])]
    named = set(told.run.queries[told.run.queries["text"].notna()]["query"])
    with_name = mine["query"].isin(named) | (mine["role"].notna() & mine["role"].ne(""))
    assert mine[with_name]["ns"].sum() >= 0.98 * told.server_cpu_ns
    # Under load, the work of the threads that execute procedures belongs to the procedures.
    sites = mine[mine["pid"].isin(list(told.site_cpu_ns))]
    of_queries = sites[sites["query"].isin(named)]["ns"].sum()
    assert of_queries >= 0.9 * sum(told.site_cpu_ns.values())


def test_voltdb_has_no_socket_attach_mode(prepared: DatabaseServer, tmp_path: Path) -> None:
    pid = str(prepared.pid)
    done = qjoule(
        "record", "-o", str(tmp_path / "t"), "--pid", pid, "--attach", "socket", "-d", "1"
    )
    assert done.returncode == 1
    assert "other threads than connections" in done.stderr
