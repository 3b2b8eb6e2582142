# SPDX-License-Identifier: Apache-2.0
"""Nodes of plans on sampled stacks: their shares are those that EXPLAIN (ANALYZE) times, alone and
in parallel, and nodes of one name are told apart.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from qjoule.commands.frame_names import frame_names
from qjoule.engine.attribute import AttributionRequest
from qjoule.engine.flame import flame
from qjoule.engine.plan_nodes import plan_nodes
from qjoule.engine.stacks import RowStacks
from qjoule.servers.elf import open_executable
from qjoule.servers.stack_tables import mapped
from qjoule.trace.reader import Trace
from qjoule_studies.servers.process import DatabaseServer
from tracing.recording import qjoule, recording

pytestmark = [pytest.mark.root, pytest.mark.server]
HZ = "4999"
ENERGY = ("--energy", "estimated:5,8,12,20")
LARGE, POINTS = 0.10, 0.05
TIMES = 3
ALONE = ("max_parallel_workers_per_gather = 0",)
PARALLEL = (
    "max_parallel_workers_per_gather = 2",
    *("parallel_setup_cost = 0", "parallel_tuple_cost = 0", "min_parallel_table_scan_size = 0"),
)
TABLES = """
create table item as select n % 200000 as o, n % 7 as kind, (n::bigint * 7919) % 1000003 as price,
    n % 1000 as day from generate_series(1, 800000) n;
create table purchase as select n as o, n % 30000 as c, n % 1000 as day
    from generate_series(0, 199999) n;
create table client as select n as c, n % 25 as region, 'client ' || n as name
    from generate_series(0, 29999) n;
vacuum analyze item; vacuum analyze purchase; vacuum analyze client
"""
JOINS = (
    "select region, sum(price), count(*) from item join purchase using (o) join client using (c) "
    "group by region"
)
Nodes = dict[int, tuple[str, float]]  #: name and share, by number


@pytest.fixture(scope="module")
def filled(postgres: DatabaseServer) -> Iterator[DatabaseServer]:
    with closing(postgres.connect()) as connection, connection.cursor() as cursor:
        for statement in TABLES.split(";"):
            cursor.execute(statement)
        yield postgres
        cursor.execute("drop table item, purchase, client")


def run(server: DatabaseServer, trace: Path, text: str, *settings: str) -> tuple[Any, RowStacks]:
    """Records a statement that EXPLAIN (ANALYZE) times in turn with it: plans, and its row. What
    reading the clock costs is divided between nodes by chance, so the row is that of the statement
    alone.
    """
    answers = []
    with closing(server.connect()) as connection, connection.cursor() as cursor:
        for setting in ("jit = off", "work_mem = '256MB'", *settings):
            cursor.execute(f"set {setting}")
        with recording(trace, "--pid", str(server.pid), "--stacks", HZ, *ENERGY):
            for _ in range(TIMES):
                cursor.execute(f"explain (analyze, timing, format json) {text}")
                answers.append(cursor.fetchall()[0][0][0]["Plan"])
                cursor.execute(text)
                cursor.fetchall()
    read = Trace(trace)
    found = flame(read, AttributionRequest(("fingerprint",)), frame_names(read.meta.modules))
    alone = [one for one in found.rows if one.row.shape.startswith("select")]
    return answers, max(alone, key=lambda one: one.count)


def timed(plan: dict[str, Any]) -> Nodes:
    """What each node took itself, as a share of all. Numbers are those of the planner, which
    counts from the root on (src/backend/optimizer/plan/setrefs.c). Gather waits for others.
    """
    own: dict[int, tuple[str, float]] = {}

    def visit(node: dict[str, Any]) -> float:
        number = len(own)
        own[number] = ("", 0.0)
        took = float(node["Actual Total Time"] * node["Actual Loops"])
        below = sum(visit(child) for child in node.get("Plans", ()))
        waits = node["Node Type"].startswith("Gather")
        own[number] = node["Node Type"], 0.0 if waits else max(took - below, 0.0)
        return took

    visit(plan)
    total = sum(took for _, took in own.values())
    return {number: (name, took / total) for number, (name, took) in own.items()}


def sampled(row: RowStacks) -> Nodes:
    found = [one for one in plan_nodes(row) if one.name is not None]
    own = {one.name.number: one for one in found if one.name and "Gather" not in one.name}
    total = sum(one.samples for one in own.values())
    return {
        number: (one.name.rpartition(" #")[0], one.samples / total)
        for number, one in own.items()
        if one.name
    }


@pytest.mark.parametrize("settings", [ALONE, PARALLEL], ids=["alone", "parallel"])
def test_shares_are_those_that_explain_times(
    settings: tuple[str, ...], filled: DatabaseServer, tmp_path: Path
) -> None:
    plans, row = run(filled, tmp_path / "t", JOINS, *settings)
    shares: Counter[int] = Counter()
    names: dict[int, str] = {}
    for plan in plans:
        for number, (name, share) in timed(plan).items():
            shares[number] += share / len(plans)  # type: ignore[assignment]
            names[number] = name
    found = sampled(row)
    listed = [(number, names[number], shares[number], found.get(number)) for number in names]
    for _, name, share, of in listed:
        if share > LARGE:
            assert of is not None, listed
            assert of[0] == name, listed
            assert abs(of[1] - share) < POINTS, listed
    outside = next((one.samples for one in plan_nodes(row) if one.name is None), 0)
    assert outside < 0.05 * row.count
    assert sum(one.energy_nj for one in plan_nodes(row)) == row.row.energy_nj


def test_joins_of_one_plan_are_told_apart_on_the_screen(
    filled: DatabaseServer, tmp_path: Path
) -> None:
    _, row = run(filled, tmp_path / "t", JOINS, *PARALLEL)
    joins = [str(one.name) for one in plan_nodes(row) if str(one.name).startswith("Hash Join")]
    assert len(set(joins)) == 2
    text = qjoule("flame", str(tmp_path / "t"), "--format", "nodes").stdout
    assert all(f" {name}\n" in text for name in joins)


def test_a_clients_string_is_no_node(filled: DatabaseServer, tmp_path: Path) -> None:
    """A bytea begins with its length, which may be that of a NodeTag. All else of a PlanState is
    the client's here, even the addresses, which a client does not know.
    """
    literal = forged(filled).hex()
    text = (
        "select count(*) from generate_series(1, 400000) n where "
        f"md5(case when n > 0 then '\\x{literal}'::bytea end) = "
        f"md5(substr(case when n > 0 then '\\x{literal}'::bytea end, 2))"
    )
    _, row = run(filled, tmp_path / "t", text)
    names = {str(one.name) for one in plan_nodes(row) if one.name}
    assert names == {"Aggregate #0", "Function Scan #1"}
    assert row.count > 100


def forged(server: DatabaseServer) -> bytes:
    """What a bytea of a PlanState has after its length: of a scan, with a plan that can be read."""
    executable = open_executable(server.executable)
    scan = executable.functions("ExecScan")[0].vaddr - executable.code_vaddr
    maps = list(mapped(Path(f"/proc/{server.pid}/maps").read_bytes()))
    own = [one for one in maps if one.name == str(server.executable)]
    code = next(one for one in own if one.executable)
    constants = next(one for one in own if one.start > code.start and not one.executable)
    with Path(f"/proc/{server.pid}/mem").open("rb") as memory:
        memory.seek(constants.start)
        words = np.frombuffer(memory.read(constants.end - constants.start), "<u4")[::2]
    tags, ids = words[:-5], words[5:]
    plan = constants.start + 8 * int(np.flatnonzero((tags > 0) & (tags < 1024) & (ids < 65536))[0])
    function = code.start + scan
    return struct.pack("<I4Q3QQQQ", 0, plan, plan, function, function, 0, 0, 0, 0, 0, 0)
