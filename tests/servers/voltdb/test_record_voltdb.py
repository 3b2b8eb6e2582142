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
class Trial:
    story: day.ServerCounts
    run: Run
    site_cpu_ns: dict[int, int]  #: by thread, the scheduler's own
    server_cpu_ns: int
    collections: int


@pytest.fixture(scope="module")
def prepared(voltdb: DatabaseServer) -> DatabaseServer:
    day.prepare(voltdb)
    return voltdb


@pytest.fixture(scope="module")
def trial(prepared: DatabaseServer, tmp_path_factory: pytest.TempPathFactory) -> Trial:
    directory = tmp_path_factory.mktemp("voltdb") / "trace"
    with recording(directory, "--pid", str(prepared.pid), "--ring-mb", "64"):
        before, moved = cpu_ns(prepared.pid), collections(prepared)
        story = day.tell(prepared)
        after, moved = cpu_ns(prepared.pid), collections(prepared) - moved
    used = {tid: ns - before.get(tid, 0) for tid, ns in after.items()}
    sites = {tid: used[tid] for tid in site_threads(prepared.pid)}
    return Trial(story, Run(directory), sites, sum(used.values()), moved)


def cpu_ns(pid: int) -> dict[int, int]:
    """CPU time of each thread (Documentation/scheduler/sched-stats.rst)."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return {int(t.name): int((t / "schedstat").read_text().split()[0]) for t in tasks}


def site_threads(pid: int) -> set[int]:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return {int(t.name) for t in tasks if (t / "comm").read_text().startswith("SP ")}


def test_voltdb_nothing_is_lost_and_no_value_is_told(trial: Trial) -> None:
    check_whole(trial.run, "symbol")
    check_waits(trial.run.trace)


def test_voltdb_every_procedure_counts(trial: Trial) -> None:
    """The server's own count, by name; failures and multiple batches count as one call."""
    invocations = trial.story.invocations
    expected = {name: n for name, n in invocations.items() if not name.startswith("AdHoc")}
    assert set(expected) == day.PROCEDURES
    counts = trial.run.executions()
    assert {name: counts[name] for name in day.PROCEDURES} == expected
    assert counts.total() == invocations.total() >= day.CALLS * 0.95


def test_voltdb_failures_are_told(trial: Trial) -> None:
    failed = trial.run.queries[trial.run.queries["status"] == "error"]
    assert Counter(failed["text"]) == trial.story.failures
    assert set(trial.run.queries["status"]) == {"ok", "error"}


def test_voltdb_ad_hoc_sql_is_told_by_statement(trial: Trial) -> None:
    counts = trial.run.executions()
    assert {text: counts[text] for text in trial.story.ad_hoc} == trial.story.ad_hoc


def test_voltdb_names_are_right_although_objects_move(trial: Trial) -> None:
    """All recorded texts are expected ones, although the collector moved objects meanwhile."""
    assert trial.collections > 10
    assert set(trial.run.executions()) == day.PROCEDURES | set(trial.story.ad_hoc)


def test_voltdb_a_procedure_of_all_partitions_is_one_call_on_all_their_threads(
    trial: Trial,
) -> None:
    parts = trial.run.queries[trial.run.queries["text"] == "total"]
    assert parts["executions"].sum() == trial.story.invocations["total"]
    assert parts["pid"].nunique() == PARTITIONS


def test_voltdb_cpu_time_has_owners_with_names(trial: Trial) -> None:
    segments, owners = trial.run.trace.pandas("segments"), trial.run.trace.pandas("owners")
    segments["ns"] = segments["t1_ns"] - segments["t0_ns"]
    of_server = segments.merge(owners, on="owner", suffixes=("", "_owner"))
    of_server = of_server[of_server["kind"].isin(["query", "server"])]
    with_text = set(trial.run.queries[trial.run.queries["text"].notna()]["query"])
    with_name = of_server["query"].isin(with_text) | (
        of_server["role"].notna() & of_server["role"].ne("")
    )
    assert of_server[with_name]["ns"].sum() >= 0.98 * trial.server_cpu_ns
    # Under load, the work of the threads that execute procedures belongs to the procedures.
    sites = of_server[of_server["pid"].isin(list(trial.site_cpu_ns))]
    of_queries = sites[sites["query"].isin(with_text)]["ns"].sum()
    assert of_queries >= 0.9 * sum(trial.site_cpu_ns.values())


def test_voltdb_has_no_socket_attach_mode(prepared: DatabaseServer, tmp_path: Path) -> None:
    pid = str(prepared.pid)
    done = qjoule(
        "record", "-o", str(tmp_path / "t"), "--pid", pid, "--attach", "socket", "-d", "1"
    )
    assert done.returncode == 1
    assert "other threads than connections" in done.stderr
