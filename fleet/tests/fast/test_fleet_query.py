# SPDX-License-Identifier: Apache-2.0
"""`qjoule fleet query`: SQL over the views, which sees the dataset and nothing else."""

from __future__ import annotations

import csv
import io
import re
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest

import fleet_dataset
from cli_runner import invoke, printed_json
from fleet_dataset import Fleet, Host
from qjoule.agent.rollup_layout import HOURLY, SLOW
from qjoule_fleet.commands.fleet import command
from qjoule_fleet.questions import cells, groups, owned, parse_by, totals
from qjoule_fleet.views import VIEWS, direct

DAY = ("--from", "2026-11-01T00:00Z", "--to", "2026-11-01T03:00Z", "--memory", 200, "--threads", 1)
FLEET = Fleet([Host("db1"), Host("db2", grade="estimated")], 2, (0, 30), tags=("alpha",))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fleet_dataset.write(tmp_path_factory.mktemp("fleet"), FLEET)


run = partial(invoke, command, "query")


def rows(root: Path, sql: str, *arguments: object) -> Any:
    return printed_json(command, "query", "--json", root, sql, *(arguments or DAY))


def test_views_have_the_rows_of_the_range_alone(root: Path) -> None:
    assert all(rows(root, f"select * from {view} limit 1") for view in VIEWS)
    (minutes,) = rows(root, "select count(distinct minute) as n, sum(calls) as calls from minutes")
    (spans,) = rows(root, "select sum(calls) as calls from queries")
    assert minutes == {"n": 6, "calls": spans["calls"]}
    half = ("--from", "2026-11-01T00:15Z", *DAY[2:])
    assert rows(root, "select count(distinct minute) as n from minutes", *half) == [{"n": 5}]
    note = "2026-11-01T00:20:00Z to 2026-11-01T03:00:00Z is taken"
    assert note in run(root, "from queries", *half).stderr
    assert rows(root, "select count(*) as n from hours where kind = 'node'") == [{"n": 12}]


def test_formats(root: Path, tmp_path: Path) -> None:
    sql = "select host, sum(energy_nj) as nj, null as nothing from queries group by all order by 1"
    lines = list(csv.reader(io.StringIO(run(root, sql, *DAY, "--format", "csv").output)))
    assert lines[0] == ["host", "nj", "nothing"] and [line[0] for line in lines[1:]] == [
        "db1",
        "db2",
    ]
    printed = rows(root, sql)
    assert [str(row["nj"]) for row in printed] == [line[1] for line in lines[1:]]
    out = tmp_path / "out.parquet"
    assert run(root, sql, *DAY, "--format", "parquet", "-o", out).exit_code == 0
    assert [int(value) for value in pq.read_table(out)["nj"].to_pylist()] == [
        r["nj"] for r in printed
    ]
    assert "2 rows" in run(root, sql, *DAY).output
    assert rows(root, sql.replace("group by", "where false group by")) == []
    assert "the first 500 rows" in run(root, "select 1 from spans, range(100)", *DAY).output


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("select 1; select 2", "give one SELECT"),
        ("copy (select 1) to 'x'", "give one SELECT"),
        ("attach 'x.db'", "give one SELECT"),
        ("selec 1", "syntax error"),
        ("select * from queries, read_text('/etc/passwd')", "Permission"),
        ("select * from queries, read_parquet('https://127.0.0.1/x.parquet')", "Permission|http"),
        ("select getenv('HOME') from queries", "getenv"),
        ("select * from '/etc/passwd'", "passwd"),
        ("select * from selections", "selections"),  # a local variable
    ],
)
def test_what_is_refused_is_one_line(root: Path, sql: str, message: str) -> None:
    result = run(root, sql, *DAY)
    assert result.exit_code == 1
    text = str(result.exception)
    assert "\n" not in text and re.search(message, text)


def test_the_printed_views_give_the_same_numbers_without_qjoule(root: Path, tmp_path: Path) -> None:
    """DuckDB alone, with the questions that `fleet top` asks."""
    printed = run(root, "--print-views", "duckdb").output
    tables = [*HOURLY, *SLOW]
    assert printed.replace(";\n\n", ";\n").count(";\n") == len(direct("x", "duckdb", tables))
    connection = duckdb.connect()
    connection.execute(printed)
    by = parse_by("host")
    connection.execute(f"create table cells as {cells(by)}")
    connection.execute(f"create table owned as {owned()}")
    groups_found = connection.sql(groups(by)).to_arrow_table().to_pylist()
    energies = {row["key0"]: int(row["energy_nj"]) for row in groups_found}
    wanted = rows(root, "select host, sum(energy_nj) as nj from queries group by host")
    assert energies == {row["host"]: row["nj"] for row in wanted}
    assert connection.sql(totals()).to_arrow_table().num_rows == 2 * 8
    bare = fleet_dataset.write(tmp_path, Fleet([Host("db1", schema="2")], 1, (0,)))
    connection = duckdb.connect()
    connection.execute(run(bare, "--print-views", "duckdb").output)
    select = "select distinct calls > 0, waits_latency_ns, wait_lock_ns from queries"
    assert connection.sql(select).fetchall() == [(True, None, None)], "of an earlier agent"
    printed = run(bare, "--print-views", "spark").output
    assert "tag_parts" not in printed and "hour" in printed
