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
from fleet_asked import asked
from fleet_dataset import Fleet, Host
from qjoule.fleet import questions
from qjoule.fleet.layout import HOURLY, SLOW
from qjoule.fleet.questions import parse_by
from qjoule.fleet.views import direct

pytestmark = [pytest.mark.beside, pytest.mark.spark, pytest.mark.timeout(1200)]
sql: Any = pytest.importorskip("pyspark.sql", reason="needs pip install 'qjoule[spark]'")

HOSTS = [Host("db1"), Host("db2", grade="estimated"), Host("db3"), Host("old", schema="1")]
FLEET = Fleet(HOSTS, shapes=3, minutes=(0, 30), tags=("alpha", "beta"))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made.write(tmp_path_factory.mktemp("fleet"), FLEET)


@pytest.fixture(scope="module")
def spark(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    if not shutil.which("java"):
        pytest.skip("Spark needs Java")
    local = str(tmp_path_factory.mktemp("spark"))
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = sql.SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.local.dir", local).config("spark.sql.warehouse.dir", local)
    session = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    for statement in direct(str(root), "spark", [*HOURLY, *SLOW]):
        session.sql(statement)
    yield session
    session.stop()


@pytest.mark.parametrize("by", ["shape", "host,release", "tag:tenant"])
def test_rows_intervals_and_histograms_are_the_same(root: Path, spark: Any, by: str) -> None:
    keys, expected = parse_by(by), asked(root, by, limit=None).rows
    spark.sql(questions.cells(keys, "spark")).createOrReplaceTempView("cells")
    spark.sql(questions.top(keys, "energy", None)).createOrReplaceTempView("wanted")
    rows = [row.asDict() for row in spark.table("wanted").collect()]
    for row, other in zip(rows, expected, strict=True):
        assert [row[name] for name in keys.columns] == list(other.keys.values())
        for name in ("energy_nj", "calls", "cpu_ns", "hosts", "shapes"):
            assert int(row[name]) == getattr(other, name)
        assert (row["low_nj"], row["high_nj"]) == pytest.approx(other.energy_nj_ci95, rel=1e-9)
    histograms = spark.sql(questions.latencies(keys, "spark")).collect()
    timed = sum(int(row[f"b{i}"]) for row in histograms for i in range(1, 49))
    assert timed == sum(row.calls for row in expected) or keys.tag


def test_totals_and_texts_are_the_same(root: Path, spark: Any) -> None:
    expected = {(one.grade, one.policy): one for one in asked(root, "shape").totals}
    spark.sql(questions.owned("spark")).createOrReplaceTempView("owned")
    for row in spark.sql(questions.totals()).collect():
        total = expected[row["grade"], row["policy"]]
        if row["kind"] == "node":
            assert int(row["energy_nj"]) == total.node_nj
            assert int(row["lost_records"]) == total.lost_records
        elif row["kind"] != "queries":
            assert int(row["energy_nj"]) == total.parts_nj[row["kind"]]
    texts = {row["fingerprint"]: row["text"] for row in spark.table("shapes").collect()}
    assert texts == {made.fingerprint(number): made.text(number) for number in range(3)}
