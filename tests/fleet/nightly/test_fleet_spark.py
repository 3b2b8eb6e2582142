# SPDX-License-Identifier: Apache-2.0
"""Spark gives the same numbers as DuckDB, from the same questions over the printed views.

PySpark and Java are 500 MB, so only who installs `qjoule[spark]` runs this.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fleet_dataset as made
from fleet_dataset import Fleet, Host
from qjoule.fleet import questions
from qjoule.fleet.asked import InProcess, Question, Reader
from qjoule.fleet.files import dataset
from qjoule.fleet.layout import HOUR_S, HOURLY, SLOW
from qjoule.fleet.questions import parse_by
from qjoule.fleet.relations import Limits
from qjoule.fleet.times import Range
from qjoule.fleet.top import Top, top
from qjoule.fleet.views import direct

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1200)]
sql: Any = pytest.importorskip("pyspark.sql", reason="needs pip install 'qjoule[spark]'")

FLEET = Fleet(
    [Host("db1"), Host("db2", grade="estimated"), Host("db3"), Host("old", schema="1")],
    shapes=3,
    minutes=(0, 30),
    tags=("alpha", "beta"),
)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made.write(tmp_path_factory.mktemp("fleet"), FLEET)


@pytest.fixture(scope="module")
def spark(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    if not shutil.which("java"):
        pytest.skip("Spark needs Java")
    local = str(tmp_path_factory.mktemp("spark"))
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    session = (
        sql.SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.local.dir", local)
        .config("spark.sql.warehouse.dir", local)
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.memory", "1g")
        .getOrCreate()
    )
    for statement in direct(str(root), "spark", [*HOURLY, *SLOW]):
        session.sql(statement)
    yield session
    session.stop()


def by_duckdb(root: Path, by: str) -> Top:
    reader = Reader(dataset(str(root)), Limits(200, 1), InProcess())
    asked = Range(made.begin_s(), made.begin_s() + 3 * HOUR_S)
    return top(reader, asked, Question(parse_by(by), limit=None))


@pytest.mark.parametrize("by", ["shape", "host,release", "tag:tenant"])
def test_the_same_numbers(root: Path, spark: Any, by: str) -> None:
    keys, wanted = parse_by(by), by_duckdb(root, by)
    spark.sql(questions.cells(keys, "spark")).createOrReplaceTempView("cells")
    spark.sql(questions.top(keys, "energy", None)).createOrReplaceTempView("wanted")
    found = [row.asDict() for row in spark.table("wanted").collect()]
    assert len(found) == len(wanted.rows) > 1
    for one, other in zip(found, wanted.rows, strict=True):
        assert [one[name] for name in keys.columns] == list(other.keys.values())
        for name in ("energy_nj", "calls", "cpu_ns", "hosts", "shapes"):
            assert int(one[name]) == getattr(other, name)
        assert (one["low_nj"], one["high_nj"]) == pytest.approx(other.energy_nj_ci95, rel=1e-9)
    histograms = spark.sql(questions.latencies(keys, "spark")).collect()
    timed = sum(int(row[f"b{i}"]) for row in histograms for i in range(1, 49))
    assert timed == sum(row.calls for row in wanted.rows) or keys.tag


def test_the_same_totals(root: Path, spark: Any) -> None:
    wanted = {(one.grade, one.policy): one for one in by_duckdb(root, "shape").totals}
    spark.sql(questions.owned("spark")).createOrReplaceTempView("owned")
    for row in spark.sql(questions.totals()).collect():
        total = wanted[row["grade"], row["policy"]]
        if row["kind"] == "node":
            assert int(row["energy_nj"]) == total.node_nj
            assert int(row["lost_records"]) == total.lost_records
        elif row["kind"] != "queries":
            assert int(row["energy_nj"]) == total.parts_nj[row["kind"]]


def test_the_same_texts_and_states(spark: Any) -> None:
    texts = {row["fingerprint"]: row["text"] for row in spark.table("shapes").collect()}
    assert texts == {made.fingerprint(number): made.text(number) for number in range(3)}
    assert {row["release"] for row in spark.table("servers").collect()} == {"mysql 10.11.6"}
    assert (
        spark.table("hours").count()
        == spark.sql(
            "select count(*) as n from (select distinct date_trunc('hour', minute), kind, server, "
            "database, name, fingerprint, grade, policy, host, host_id from spans)"
        ).first()[0]
    )
