# SPDX-License-Identifier: Apache-2.0
"""The workload `tpch` on real servers: its answers equal those of pandas for the same data."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest

from qjoule.errors import QjouleError, UsageError
from qjoule.studies.workload import Target, Value
from qjoule.studies.workloads.postgres_session import explain
from qjoule.studies.workloads.sql_session import connect
from qjoule.studies.workloads.tpch import Tpch, check_join_order
from qjoule.studies.workloads.tpch_data import TABLES, TpchData
from qjoule.studies.workloads.tpch_queries import (
    QUERIES,
    Parameters,
    random_parameters,
    statement,
)
from servers.process import DatabaseServer

pytestmark = [pytest.mark.beside, pytest.mark.server]
SCALE = 0.004
SCHEMA = "qjoule_tpch_4em03_1_none_0"
OPTIONS: dict[str, Value] = {**Tpch.defaults, "scale_factor": SCALE, "operations": 4}
PARAMETERS = [Parameters(), random_parameters(1, 0), random_parameters(1, 5)]
ORDER = ("region", "nation", "customer", "orders", "lineitem", "supplier")


@pytest.fixture(scope="module")
def frames() -> dict[str, pd.DataFrame]:
    data = TpchData(SCALE, 1)
    parts = list(data.orders_and_lines())
    found = dict(data.small_tables())
    found["orders"] = pd.concat([orders for orders, _ in parts], ignore_index=True)
    found["lineitem"] = pd.concat([lines for _, lines in parts], ignore_index=True)
    return found


def target_of(server: DatabaseServer) -> Target:
    return Target(server.name, server.pid, port=server.port, socket=str(server.socket))


@contextmanager
def filled(server: DatabaseServer) -> Iterator[Any]:
    """A connection to the tables, which are created if missing."""
    Tpch().prepare(target_of(server), OPTIONS)
    with closing(connect(target_of(server))) as connection:
        yield connection


def answer(connection: Any, query: str, parameters: Parameters, **how: Any) -> list[list[Any]]:
    cursor = connection.cursor()
    cursor.execute(statement(query, parameters, SCHEMA, **how))
    return [
        [value.strip() if isinstance(value, str) else value for value in row]
        for row in cursor.fetchall()
    ]


@pytest.mark.parametrize("parameters", PARAMETERS, ids=["validation", "random-0", "random-5"])
@pytest.mark.parametrize("flavour", ["postgres", "mariadb"])
def test_answers(
    request: pytest.FixtureRequest,
    frames: dict[str, pd.DataFrame],
    flavour: str,
    parameters: Parameters,
) -> None:
    with filled(request.getfixturevalue(flavour)) as connection:
        found = {query: answer(connection, query, parameters) for query in QUERIES}
        straight = flavour == "mariadb"
        ordered = answer(connection, "Q5", parameters, join_order=ORDER, straight=straight)
    lines = frames["lineitem"]
    q1 = expected_q1(lines, parameters)
    assert len(found["Q1"]) == len(q1) == 4
    for row, wanted in zip(found["Q1"], q1, strict=True):
        assert row[:6] == wanted[:6]
        assert [float(value) for value in row[6:]] == pytest.approx(wanted[6:], rel=1e-4)
    assert found["Q4"] == expected_q4(frames, parameters)
    assert found["Q5"] == ordered == expected_q5(frames, parameters)
    assert found["Q12"] == expected_q12(frames, parameters)
    assert all(found.values())


def test_all_queries_run_in_parallel(postgres: DatabaseServer) -> None:
    options = {**OPTIONS, "query": "all", "parallel_workers": 2, "parameters": "random"}
    target = target_of(postgres)
    Tpch().prepare(target, options)
    outcome = Tpch().run(target, options)
    assert (outcome.operations, outcome.errors) == (4, 0)
    assert {name: each.operations for name, each in outcome.commands.items()} == dict.fromkeys(
        QUERIES, 1
    ) | {"all": 4}
    assert "2 of 2 workers launched" in " ".join(outcome.notes)
    assert "no TPC-H result" in outcome.notes[0]


def test_a_run_on_mariadb(mariadb: DatabaseServer) -> None:
    target, options = target_of(mariadb), {**OPTIONS, "query": "Q12", "connections": 2}
    Tpch().prepare(target, options)
    outcome = Tpch().run(target, options)
    assert (outcome.operations, outcome.commands["Q12"].operations) == (4, 4)


def test_join_orders_are_followed(postgres: DatabaseServer) -> None:
    target = target_of(postgres)
    for order in (ORDER, ("supplier", "lineitem", "orders", "customer", "nation", "region")):
        Tpch().prepare(target, {**OPTIONS, "query": "Q5", "join_order": ",".join(order)})
    with filled(postgres) as connection:
        free = explain(connection, statement("Q5", Parameters(), SCHEMA, ORDER))
    with pytest.raises(QjouleError, match="did not follow join_order"):
        check_join_order(free, ORDER[::-1])


@pytest.mark.parametrize("compression", ["none", "pglz", "lz4"])
def test_compression_shrinks_long_comments(postgres: DatabaseServer, compression: str) -> None:
    options = {
        **OPTIONS,
        "scale_factor": 0.0002,
        "compression": compression,
        "comment_bytes": 3000,
    }
    Tpch().prepare(target_of(postgres), options)
    notes = " ".join(Tpch().run(target_of(postgres), options).notes)
    size_mb = float(notes.split("lineitem has ")[1].split(" MB")[0])
    if compression == "none":
        assert size_mb > 4  # 1,200 line items of 3 kB, two in a page of 8 kB
    else:
        assert f"100% of its comments are compressed ({compression})" in notes
        assert size_mb < 3.5


def test_compression_of_short_rows_says_that_there_is_none(postgres: DatabaseServer) -> None:
    options = {**OPTIONS, "scale_factor": 0.0002, "compression": "pglz"}
    Tpch().prepare(target_of(postgres), options)
    notes = " ".join(Tpch().run(target_of(postgres), options).notes)
    assert "0% of its comments" in notes
    assert "rows of more than 2 kB" in notes


def test_what_mariadb_cannot(mariadb: DatabaseServer) -> None:
    with pytest.raises(UsageError, match="mariadb has no parallel_workers"):
        Tpch().prepare(target_of(mariadb), {**OPTIONS, "parallel_workers": 1})


def test_tables_that_are_there_are_left_alone(postgres: DatabaseServer) -> None:
    with filled(postgres) as connection:
        told = "SELECT array_agg(oid ORDER BY oid) FROM pg_class WHERE relnamespace = "
        told += f"'{SCHEMA}'::regnamespace"
        before = connection.execute(told).fetchone()
        counts = {
            table: connection.execute(f"SELECT count(*) FROM {SCHEMA}.{table}").fetchone()[0]
            for table in TABLES
        }
        with filled(postgres):
            assert connection.execute(told).fetchone() == before
    assert counts["orders"] == 6_000
    assert counts["customer"] == 600
    assert (counts["supplier"], counts["nation"], counts["region"]) == (40, 25, 5)


def expected_q1(lines: pd.DataFrame, parameters: Parameters) -> list[list[Any]]:
    until = np.datetime64("1998-12-01") - np.timedelta64(parameters.q1_delta_days, "D")
    read = lines[lines["l_shipdate"] <= until]
    rows = []
    for flags, group in read.groupby(["l_returnflag", "l_linestatus"]):
        price, less = group["l_extendedprice"], 100 - group["l_discount"]
        charge = price * less * (100 + group["l_tax"])
        sums = [group["l_quantity"].sum(), price.sum(), (price * less).sum(), charge.sum()]
        exact = [
            Decimal(int(total)) / scale
            for total, scale in zip(sums, (100, 100, 10_000, 1_000_000), strict=True)
        ]
        means = [group["l_quantity"].mean(), price.mean(), group["l_discount"].mean()]
        rows.append([*flags, *exact, *(mean / 100 for mean in means), len(group)])
    return rows


def expected_q4(frames: dict[str, pd.DataFrame], parameters: Parameters) -> list[list[Any]]:
    lines, orders = frames["lineitem"], frames["orders"]
    late = set(lines[lines["l_commitdate"] < lines["l_receiptdate"]]["l_orderkey"])
    begin = pd.Timestamp(parameters.q4_date)
    within = orders["o_orderdate"].between(begin, begin + pd.DateOffset(months=3), inclusive="left")
    counts = orders[within & orders["o_orderkey"].isin(late)].groupby("o_orderpriority").size()
    return [[priority, count] for priority, count in counts.items()]


def expected_q5(frames: dict[str, pd.DataFrame], parameters: Parameters) -> list[list[Any]]:
    region = frames["region"]
    nations = frames["nation"].merge(
        region[region["r_name"] == parameters.q5_region],
        left_on="n_regionkey",
        right_on="r_regionkey",
    )
    of_year = frames["orders"]["o_orderdate"].dt.year == parameters.q5_date.year
    joined = (
        frames["lineitem"]
        .merge(frames["orders"][of_year], left_on="l_orderkey", right_on="o_orderkey")
        .merge(frames["customer"], left_on="o_custkey", right_on="c_custkey")
        .merge(frames["supplier"], left_on="l_suppkey", right_on="s_suppkey")
        .query("c_nationkey == s_nationkey")
        .merge(nations, left_on="s_nationkey", right_on="n_nationkey")
    )
    revenue = joined["l_extendedprice"] * (100 - joined["l_discount"])
    sums = revenue.groupby(joined["n_name"]).sum().sort_values(ascending=False)
    return [[name, Decimal(int(total)) / 10_000] for name, total in sums.items()]


def expected_q12(frames: dict[str, pd.DataFrame], parameters: Parameters) -> list[list[Any]]:
    lines = frames["lineitem"]
    read = lines[
        lines["l_shipmode"].isin(parameters.q12_modes)
        & (lines["l_commitdate"] < lines["l_receiptdate"])
        & (lines["l_shipdate"] < lines["l_commitdate"])
        & (lines["l_receiptdate"].dt.year == parameters.q12_date.year)
    ].merge(frames["orders"], left_on="l_orderkey", right_on="o_orderkey")
    urgent = read["o_orderpriority"].isin(["1-URGENT", "2-HIGH"])
    return [
        [mode, int(urgent[of_mode].sum()), int((~urgent[of_mode]).sum())]
        for mode in sorted(parameters.q12_modes)
        if (of_mode := read["l_shipmode"] == mode).any()
    ]


def test_validation_values_are_the_specifications() -> None:
    assert Parameters().q12_modes == ("MAIL", "SHIP")
    assert Parameters().q4_date == date(1993, 7, 1)
