# SPDX-License-Identifier: Apache-2.0
"""Nodes of plans by the functions on sampled stacks: in MariaDB their shares are about those that
ANALYZE times, in MySQL they are those that EXPLAIN lists, in Redis the commands of a script.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from qjoule.commands.frame_names import trace_frame_names
from qjoule.engine.attribute import AttributionRequest
from qjoule.engine.flame import flame
from qjoule.engine.plan_nodes import plan_nodes
from qjoule.engine.stacks import RowStacks
from qjoule.trace.reader import Trace
from qjoule_studies.servers.process import DatabaseServer
from servers.newer import RELEASES
from tracing.planted_waits import HOLD_S, Story, waits_by_node
from tracing.recording import qjoule, recording
from tracing.redis_client import redis_client, resp
from tracing.releases import running

pytestmark = [pytest.mark.root, pytest.mark.server]
OPTIONS = ("--stacks", "5999", "--energy", "estimated:5,8,12,20")
FAR = 0.1  #: shares that differ by more are of another node
TIMES = 3
TABLES = """
create table item (o int, kind int, price int, day int);
create table purchase (o int primary key, c int, day int);
create table client (c int primary key, region int);
insert into item with recursive s(n) as (select 0 union all select n + 1 from s where n < 200000)
    select n % 60000, n % 7, (n * 7919) % 1000003, n % 1000 from s;
insert into purchase select distinct o, o % 30000, o % 1000 from item;
insert into client select distinct c, c % 25 from purchase;
analyze table item, purchase, client
"""
JOIN = (
    "select region, sum(price), count(*) from item join purchase using (o) join client using (c) "
    "group by region"
)
#: Of two tables without a fitting index: both are scanned.
HASH_JOIN = "select count(*) from item join purchase p on item.day = p.c"
SUBQUERY = "select count(*) from purchase where day < (select avg(day) from item)"


def fill(server: DatabaseServer, recursion: str) -> None:
    """Fills the tables. `recursion`: the variable that bounds recursive queries."""
    with closing(server.connect(autocommit=True)) as connection, connection.cursor() as cursor:
        first = "create database plans", "use plans", f"set {recursion} = 300000"
        for statement in (*first, *TABLES.split(";")):
            cursor.execute(statement)


@pytest.fixture(scope="module")
def shop(mariadb: DatabaseServer) -> Iterator[DatabaseServer]:
    fill(mariadb, "max_recursive_iterations")
    yield mariadb
    with closing(mariadb.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("drop database plans")


def recorded(
    server: DatabaseServer, trace: Path, text: str, *settings: str
) -> tuple[Any, RowStacks]:
    """A statement that ANALYZE (or EXPLAIN) explains before it is recorded, and its row."""
    explain = (
        "analyze format=json" if "mariadb" in server.executable.name else "explain format=tree"
    )
    with closing(server.connect()) as connection, connection.cursor() as cursor:
        for statement in ("use plans", *settings, text):  # the last one reads the tables
            cursor.execute(statement)
            cursor.fetchall()
        cursor.execute(f"{explain} {text}")
        plan = cursor.fetchall()[0][0]
        with recording(trace, "--pid", str(server.pid), *OPTIONS):
            for _ in range(TIMES):
                cursor.execute(text)
                cursor.fetchall()
    return plan, largest(trace)


def largest(trace: Path) -> RowStacks:
    """The row with the most samples."""
    read = Trace(trace)
    names = trace_frame_names(read, None)
    return max(
        flame(read, AttributionRequest(("fingerprint",)), names).rows, key=lambda row: row.count
    )


def shares(row: RowStacks) -> dict[str, float]:
    return {str(node.name): node.samples / row.count for node in plan_nodes(row)}


def timed(plan: dict[str, Any]) -> list[float]:
    """Each joined table's share of the time. A block of rows that are joined at once has times of
    its own, which count as its table's.
    """
    block = plan["query_block"]
    block = block.get("filesort", block)
    tables = block.get("temporary_table", block)["nested_loop"]
    ms = [own_ms(table) for table in tables]
    return [own / sum(ms) for own in ms]


def own_ms(node: dict[str, Any]) -> float:
    times = (float(node[key]) for key in node if key.startswith("r_") and key.endswith("_ms"))
    below = [own_ms(child) for key, child in node.items() if key in ("table", "block-nl-join")]
    return sum(times) + sum(below)


@pytest.mark.parametrize("cache_level", [0, 4], ids=["nested loops", "join buffers"])
def test_tables_of_a_join_take_what_analyze_times(
    cache_level: int, shop: DatabaseServer, tmp_path: Path
) -> None:
    setting = f"set join_cache_level = {cache_level}"
    plan, row = recorded(shop, tmp_path / "t", JOIN, setting)
    sampled_shares, timed_shares = shares(row), timed(json.loads(plan))
    path = "table #1"
    for number, share in enumerate(timed_shares, 1):
        path += f" > table #{number}" if number > 1 else ""
        assert abs(sampled_shares[path] - share) < FAR, (sampled_shares, timed_shares)
    assert len(timed_shares) == 3 and sampled_shares.get("None", 0.0) < FAR
    assert sum(node.energy_nj for node in plan_nodes(row)) == row.row.energy_nj
    text = qjoule("flame", str(tmp_path / "t"), "--format", "nodes").stdout
    assert "  table #1\n" in text and "    table #2\n" in text


def test_a_subquerys_table_is_not_its_statements(shop: DatabaseServer, tmp_path: Path) -> None:
    _, row = recorded(shop, tmp_path / "t", SUBQUERY)
    sampled_shares = shares(row)
    assert sampled_shares["table #1 > subquery > table #1"] > sampled_shares["table #1"] > 0


@pytest.fixture(scope="module")
def newest() -> Iterator[DatabaseServer]:
    (release,) = (release for release in RELEASES if release.server == "mysql")
    with running(release) as server:
        fill(server, "cte_max_recursion_depth")
        yield server


@pytest.mark.versions
def test_iterators_are_those_that_explain_lists(newest: DatabaseServer, tmp_path: Path) -> None:
    plan, row = recorded(newest, tmp_path / "t", SUBQUERY)
    assert "subquery in condition" in plan
    sampled_shares = shares(row)
    scans = [path for path in sampled_shares if path.endswith("Table scan")]
    inner, outer = sorted(scans, key=lambda path: "subquery" not in path)
    assert len(scans) == 2 and sampled_shares[inner] > 0.2, sampled_shares
    assert "Aggregate" in inner and "subquery" not in outer


@pytest.mark.versions
def test_the_inputs_of_a_hash_join_take_what_analyze_times(
    newest: DatabaseServer, tmp_path: Path
) -> None:
    _, row = recorded(newest, tmp_path / "t", HASH_JOIN)
    with closing(newest.connect()) as connection, connection.cursor() as cursor:
        for statement in ("use plans", "set explain_json_format_version = 2"):
            cursor.execute(statement)
        cursor.execute(f"explain analyze format=json {HASH_JOIN}")
        plan = json.loads(cursor.fetchall()[0][0])
    plan = plan.get("query_plan", plan)
    (join,) = plan["inputs"]
    ms = {child.get("heading"): child["actual_last_row_ms"] for child in join["inputs"]}
    assert set(ms) == {None, "Hash"}, plan
    node_shares = shares(row)
    above = next(path for path in node_shares if path.endswith("Hash join"))
    probe, build = node_shares[f"{above} > Table scan"], node_shares[f"{above} > Hash > Table scan"]
    assert min(probe, build) > 0.03, node_shares
    # Of both scans: the clock of ANALYZE makes what calls them dearer, by up to a third.
    assert abs(build / (probe + build) - ms["Hash"] / sum(ms.values())) < FAR, (node_shares, ms)


def test_a_scripts_commands_are_nodes_below_it(redis: DatabaseServer, tmp_path: Path) -> None:
    script = b"for n = 1, 200000 do redis.call('hset', 'h', n % 1000, n) end"
    options = ("--pid", str(redis.pid), *OPTIONS)
    with redis_client(redis.port) as client, recording(tmp_path / "t", *options):
        for _ in range(TIMES):
            client.ask(resp(b"EVAL", script, b"0"))
    sampled_shares = shares(largest(tmp_path / "t"))
    assert sampled_shares["script > HSET"] > 0.02 and sampled_shares["script"] > 0.3, sampled_shares


def test_a_row_lock_is_waited_for_in_the_table_that_has_the_row(
    mariadb: DatabaseServer, tmp_path: Path
) -> None:
    """One that the executor reads: the optimiser has read rows by a unique key before."""
    wanting = "select n from waits_rows where n < 100 for update"
    with recording(tmp_path / "t", "--pid", str(mariadb.pid), *OPTIONS):
        Story(mariadb).hold_lock(wanting, "begin", "update waits_rows set n = 7 where id = 1")
    found, row = waits_by_node(tmp_path / "t", "select n from")
    assert row.row.waits is not None
    locked = {node: kinds["lock"] for node, kinds in found.items() if kinds.get("lock", 0) > 0.1}
    assert list(locked) == ["table #1"], found
    assert locked["table #1"] == pytest.approx(row.row.waits.lock / 1e9, rel=0.01)
    assert locked["table #1"] > 0.9 * HOLD_S


def test_of_two_tables_the_one_that_sleeps_has_the_wait(
    shop: DatabaseServer, tmp_path: Path
) -> None:
    text = (
        "select count(*) from (select c from client order by c limit 3) few "
        "straight_join purchase using (c) where sleep(few.c * 0 + 0.2) = 0"
    )
    with (
        recording(tmp_path / "t", "--pid", str(shop.pid), *OPTIONS),
        closing(shop.connect()) as connection,
        connection.cursor() as cursor,
    ):
        for statement in ("use plans", text):
            cursor.execute(statement)
            cursor.fetchall()
    found, row = waits_by_node(tmp_path / "t", "sleep")
    assert row.row.waits is not None
    slept = {node: kinds["sleep"] for node, kinds in found.items() if kinds.get("sleep")}
    assert list(slept) == ["table #1"], found
    assert slept["table #1"] == pytest.approx(row.row.waits.sleep / 1e9, rel=0.01)
    assert slept["table #1"] == pytest.approx(0.6, rel=0.1)
