# SPDX-License-Identifier: Apache-2.0
"""Nodes of plans on sampled stacks: their shares are about those that EXPLAIN (ANALYZE) times,
alone and in parallel, nodes of one name are told apart, and waits are in the node that waits.

EXPLAIN's times contain its own clock and what else the machine does, so bench/bench_plan_nodes.py
tells how close they are.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import psycopg
import pytest

from qjoule.engine.plan_nodes import plan_nodes
from qjoule.servers.elf import open_executable
from qjoule.servers.stack_tables import mapped
from qjoule_studies.servers.process import DatabaseServer
from servers.newer import Release
from tracing.plan_shares import ALONE, ENERGY, LARGE, PARALLEL, in_nodes, run, sampled, timed
from tracing.planted_waits import HOLD_S, Story, waits_by_node
from tracing.recording import qjoule, recording
from tracing.releases import releases, running

pytestmark = [pytest.mark.root, pytest.mark.server]
TABLES = """
create table item as select n % 200000 as o, n % 7 as kind, (n::bigint * 7919) % 1000003 as price,
    n % 1000 as day from generate_series(1, 800000) n;
create table purchase as select n as o, n % 30000 as c, n % 1000 as day
    from generate_series(0, 199999) n;
create table client as select n as c, n % 25 as region, 'client ' || n as name
    from generate_series(0, 29999) n;
create index on item (o); vacuum analyze item; vacuum analyze purchase; vacuum analyze client
"""
SCANS = 0.03  #: without what finds its rows a scan had 0.006
FAR = 0.2  #: shares that differ by more are of another node
JOINS = (
    "select region, sum(price), count(*) from item join purchase using (o) join client using (c) "
    "group by region"
)
#: Scans that filter nothing: their functions call what finds the next row last, and are not on the
#: stack then.
LOOKUPS = "select count(*), sum(price) from purchase join item using (o)"
NESTED = (*ALONE, "enable_hashjoin = off", "enable_mergejoin = off", "enable_memoize = off")
BITMAPS = (*NESTED, "enable_indexscan = off")
COUNTED = "select count(*) from item join purchase using (o)"


@pytest.fixture(scope="module")
def filled(postgres: DatabaseServer) -> Iterator[DatabaseServer]:
    with closing(postgres.connect()) as connection, connection.cursor() as cursor:
        fill(cursor)
        yield postgres
        cursor.execute("drop table item, purchase, client")


def fill(cursor: psycopg.Cursor) -> None:
    for statement in TABLES.split(";"):
        cursor.execute(statement)


@pytest.mark.parametrize(
    ("text", "settings"),
    [(JOINS, ALONE), (JOINS, PARALLEL), (LOOKUPS, NESTED), (LOOKUPS, BITMAPS)],
    ids=["alone", "parallel", "index", "bitmap"],
)
def test_shares_are_those_that_explain_times(
    text: str, settings: tuple[str, ...], filled: DatabaseServer, tmp_path: Path
) -> None:
    executions = run(filled, tmp_path / "t", text, *settings)
    row = executions.alone
    sampled_nodes = sampled(row)
    listed = [(node, sampled_nodes.get(number)) for number, node in timed(executions.plans).items()]
    for node, sampled_node in listed:
        if node.share > LARGE:
            assert sampled_node is not None, listed
            assert sampled_node[0] == node.name, listed
            assert abs(sampled_node[1] - node.share) < FAR + node.rounding, listed
    assert in_nodes(row) > 0.95
    assert sum(node.energy_nj for node in plan_nodes(row)) == row.row.energy_nj


@pytest.mark.versions
@pytest.mark.parametrize("release", releases("postgres"))
def test_a_scan_that_filters_nothing_has_its_samples(release: Release, tmp_path: Path) -> None:
    """In PostgreSQL 18 as compiled, the function that scans keeps its slot but not its node."""
    with running(release) as server:
        with closing(server.connect()) as connection, connection.cursor() as cursor:
            fill(cursor)
        executions = run(server, tmp_path / "t", COUNTED, *ALONE)
    every = timed(executions.plans)
    scan = max((n for n in every if every[n].name == "Seq Scan"), key=lambda n: every[n].share)
    name, share = sampled(executions.alone)[scan]
    assert name == "Seq Scan"
    assert share > SCANS, (share, every)  # EXPLAIN's 8 to 10 % vary with what else runs


def test_joins_of_one_plan_are_told_apart_on_the_screen(
    filled: DatabaseServer, tmp_path: Path
) -> None:
    row = run(filled, tmp_path / "t", JOINS, *PARALLEL).alone
    joins = [str(node.name) for node in plan_nodes(row) if str(node.name).startswith("Hash Join")]
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
    row = run(filled, tmp_path / "t", text).alone
    names = {str(node.name) for node in plan_nodes(row) if node.name}
    assert names == {"Aggregate #0", "Function Scan #1"}
    assert row.count > 100


def forged(server: DatabaseServer) -> bytes:
    """What a bytea of a PlanState has after its length: of a scan, with a plan that can be read."""
    executable = open_executable(server.executable)
    scan = executable.functions("ExecScan")[0].vaddr - executable.code_vaddr
    maps = list(mapped(Path(f"/proc/{server.pid}/maps").read_bytes()))
    own = [mapping for mapping in maps if mapping.name == str(server.executable)]
    code = next(mapping for mapping in own if mapping.executable)
    constants = next(
        mapping for mapping in own if mapping.start > code.start and not mapping.executable
    )
    with Path(f"/proc/{server.pid}/mem").open("rb") as memory:
        memory.seek(constants.start)
        values = np.frombuffer(memory.read(constants.end - constants.start), "<u4")[::2]
    tags, ids = values[:-5], values[5:]
    plan = constants.start + 8 * int(np.flatnonzero((tags > 0) & (tags < 1024) & (ids < 65536))[0])
    function = code.start + scan
    return struct.pack("<I4Q3QQQQ", 0, plan, plan, function, function, 0, 0, 0, 0, 0, 0)


WAITING = ("--stacks", "5999", *ENERGY)


@pytest.mark.parametrize(
    ("wanting", "node"),
    [
        ("update waits_rows set n = 8 where id = 1", "ModifyTable #0"),
        ("select n from waits_rows where id = 1 for update", "LockRows #0"),
    ],
)
def test_a_row_lock_is_waited_for_in_the_node_that_locks(
    wanting: str, node: str, postgres: DatabaseServer, tmp_path: Path
) -> None:
    with recording(tmp_path / "t", "--pid", str(postgres.pid), *WAITING):
        Story(postgres).hold_lock(wanting, "begin", "update waits_rows set n = 7 where id = 1")
    found, row = waits_by_node(tmp_path / "t", wanting.partition(" waits_rows")[0])
    assert row.row.waits is not None
    assert found[node]["lock"] == pytest.approx(row.row.waits.lock / 1e9, rel=0.01)
    assert found[node]["lock"] > 0.9 * HOLD_S


def test_of_two_nodes_the_one_that_sleeps_has_the_wait(
    postgres: DatabaseServer, tmp_path: Path
) -> None:
    text = (
        "select count(*) from generate_series(1, 3) a join generate_series(1, 300000) b "
        "on a = b where pg_sleep(a * 0 + 0.2) is not null"
    )
    with (
        recording(tmp_path / "t", "--pid", str(postgres.pid), *WAITING),
        closing(postgres.connect()) as connection,
    ):
        connection.execute(text)
    found, row = waits_by_node(tmp_path / "t", "pg_sleep")
    assert row.row.waits is not None
    slept = {node: kinds["sleep"] for node, kinds in found.items() if kinds.get("sleep")}
    assert len(slept) == 1 and all("Function Scan" in node for node in slept), found
    assert sum(slept.values()) == pytest.approx(row.row.waits.sleep / 1e9, rel=0.01)
    assert sum(slept.values()) == pytest.approx(0.6, rel=0.1)
    lines = qjoule("flame", str(tmp_path / "t"), "--format", "nodes").stdout.splitlines()
    (line,) = (line for line in lines if line.endswith(f" {next(iter(slept))}"))
    assert "  sleep  " in line


def test_waits_of_workers_are_in_their_leaders_node(filled: DatabaseServer, tmp_path: Path) -> None:
    text = "select count(*) from client where c % 10000 = 0 and pg_sleep(c * 0 + 0.3) is not null"
    settings = (*PARALLEL, "parallel_leader_participation = off")
    with closing(filled.connect()) as connection, connection.cursor() as cursor:
        for setting in settings:
            cursor.execute(f"set {setting}")
        with recording(tmp_path / "t", "--pid", str(filled.pid), *WAITING):
            cursor.execute(text)
    found, row = waits_by_node(tmp_path / "t", "pg_sleep")
    assert row.row.helpers is not None
    scan = next(node for node in found if node.startswith("Seq Scan"))
    assert found[scan]["sleep"] == pytest.approx(row.row.helpers.sleep / 1e9, rel=0.01)
    assert found[scan]["sleep"] == pytest.approx(0.9, rel=0.1)
    gather = next(node for node in found if node.startswith("Gather"))
    assert found[gather]["other"] > 0.25, "the leader waits for its workers"
