# SPDX-License-Identifier: Apache-2.0
"""Procedures of a real VoltDB: the server's counts equal the trace's, by name."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from qjoule.contract import Block, Mode
from qjoule.machine.kernel_facts import read_kernel_facts
from qjoule.servers.discovery import find_servers
from qjoule.servers.plan import AttachPlan, build_plan
from servers.process import DatabaseServer
from servers.voltdb import PARTITIONS, collections, voltdb_server
from tracing import voltdb_story as day
from tracing.recording import Run, qjoule, recording
from tracing.tracer import tracing

pytestmark = [pytest.mark.beside, pytest.mark.root, pytest.mark.server]

PROCEDURES = {"total", "Batches", "T.insert", "T.upsert", "get", day.LONG_NAME}


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


def told_counts(run: Run) -> Counter[str]:
    """Executions by procedure."""
    counts = run.executions()
    return Counter({name: counts[name] for name in PROCEDURES if counts[name]})


def test_voltdb_nothing_is_lost(told: Told) -> None:
    assert told.run.loss == {}
    assert told.run.trace.complete
    assert set(told.run.queries["rung"]) == {"symbol"}


def test_voltdb_every_procedure_counts(told: Told) -> None:
    """The server's own count, by name; failures and multiple batches count as one call."""
    invocations = told.story.invocations
    expected = {name: n for name, n in invocations.items() if not name.startswith("AdHoc")}
    assert set(expected) == PROCEDURES
    assert told_counts(told.run) == expected
    assert told.run.executions().total() == invocations.total() >= day.CALLS * 0.95


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
    assert set(told.run.executions()) == PROCEDURES | set(told.story.ad_hoc)


def test_voltdb_no_value_is_told(told: Told) -> None:
    shapes = told.run.trace.pandas("shapes")
    assert not [text for text in shapes["text"] if "secret" in text]
    assert len(told.run.trace.pandas("statements")) == 0


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


def test_voltdb_background_has_the_names_of_its_threads(told: Told) -> None:
    owners = told.run.trace.pandas("owners")
    roles = set(owners[owners["kind"] == "server"]["role"])
    assert {"GC Thread#?", "SP ? Site - ?:?", "MP Site - ?:?", "Volt Server Net"} <= roles


def test_voltdb_attached_in_the_middle(prepared: DatabaseServer, tmp_path: Path) -> None:
    """Whatever runs at that moment, later calls are complete and under their own names."""
    with (
        calling(prepared, "get"),
        recording(tmp_path / "t", "--pid", str(prepared.pid)),
        prepared.connect() as client,
    ):
        for key in range(200):
            client.call("Batches", key, 2, 1)
    counts = Run(tmp_path / "t").executions()
    assert counts["Batches"] == 200
    assert set(counts) == {"get", "Batches"}


@contextmanager
def calling(server: DatabaseServer, procedure: str) -> Iterator[None]:
    """One client calls it all the time."""
    done = threading.Event()

    def call() -> None:
        with server.connect() as client:
            key = 0
            while not done.is_set():
                client.call(procedure, key)
                key += 1

    thread = threading.Thread(target=call)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def plan_of(pid: int) -> AttachPlan:
    return build_plan(find_servers(), read_kernel_facts(), pids=[pid])


def test_voltdb_sums_of_the_live_view_count_the_same(prepared: DatabaseServer) -> None:
    arguments = ("--energy", "none", "--only-running")
    with tracing(Mode.LIVE, *arguments, plan=plan_of(prepared.pid)) as session:
        story = day.tell(prepared, calls=1280)
        session.finish()
        sums = session.records(Block.AGGREGATE)
    assert int(sums["calls"].sum()) == story.invocations.total()


def test_voltdb_other_collector_and_plain_references(tmp_path: Path) -> None:
    """Names are elsewhere in the heap, and move differently."""
    plain = ("-XX:-UseCompressedOops", "-XX:-UseCompressedClassPointers")
    with voltdb_server("-XX:+UseParallelGC", "-Xmn16m", *plain) as server:
        day.prepare(server)
        with recording(tmp_path / "t", "--pid", str(server.pid), "--ring-mb", "64"):
            story = day.tell(server, calls=1280)
    run = Run(tmp_path / "t")
    assert run.loss == {}
    assert set(run.executions()) == PROCEDURES | set(story.ad_hoc)
    assert run.executions().total() == story.invocations.total()


def test_voltdb_as_doctor_shows_it(prepared: DatabaseServer) -> None:
    servers = json.loads(qjoule("doctor", "--json").stdout)["servers"]
    (found,) = [server for server in servers if server["pids"] == [prepared.pid]]
    assert found["label"] == f"voltdb:{prepared.port}"
    assert (found["version"], found["rung"], found["exact"]) == ("10.0", "symbol", True), found
    assert {probe["role"] for probe in found["probes"]} == {"voltdb-begin", "voltdb-end"}
    assert 0 < found["boundary_cost_ns"] < 5000


def test_voltdb_has_no_socket_rung(prepared: DatabaseServer, tmp_path: Path) -> None:
    done = qjoule(
        "record",
        "-o",
        str(tmp_path / "t"),
        "--pid",
        str(prepared.pid),
        "--rung",
        "socket",
        "-d",
        "1",
    )
    assert done.returncode == 1
    assert "other threads than connections" in done.stderr
