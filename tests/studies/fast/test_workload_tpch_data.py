# SPDX-License-Identifier: Apache-2.0
"""Generated TPC-H tables against the specification's domains, and Q5's join orders."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from qjoule.errors import UsageError
from qjoule.studies.workloads.tpch_data import MODES, REGIONS, TpchData
from qjoule.studies.workloads.tpch_queries import (
    Parameters,
    parse_join_order,
    random_parameters,
    statement,
)

DATA = TpchData(0.001, 7)


@pytest.fixture(scope="module")
def tables() -> dict[str, pd.DataFrame]:
    (orders, lines) = next(DATA.orders_and_lines())
    return {**dict(DATA.small_tables()), "orders": orders, "lineitem": lines}


def test_row_counts(tables: dict[str, pd.DataFrame]) -> None:
    counts = {name: len(table) for name, table in tables.items()}
    lines = counts.pop("lineitem")
    assert counts == {"region": 5, "nation": 25, "supplier": 10, "customer": 150, "orders": 1_500}
    assert 3.8 * 1_500 < lines < 4.2 * 1_500


def test_the_seed_decides_alone(tables: dict[str, pd.DataFrame]) -> None:
    _, again = next(TpchData(0.001, 7).orders_and_lines())
    pd.testing.assert_frame_equal(again, tables["lineitem"])
    _, other = next(TpchData(0.001, 8).orders_and_lines())
    assert not other["l_partkey"].head(100).equals(tables["lineitem"]["l_partkey"].head(100))


def test_orders(tables: dict[str, pd.DataFrame]) -> None:
    orders, lines = tables["orders"], tables["lineitem"]
    assert set((orders["o_orderkey"] - 1) % 32) == set(range(8))
    assert orders["o_orderkey"].is_unique
    assert (orders["o_custkey"] % 3 != 0).all()
    assert orders["o_custkey"].between(1, 150).all()
    assert orders["o_orderdate"].between("1992-01-01", "1998-08-02").all()
    lines = lines.merge(orders, left_on="l_orderkey", right_on="o_orderkey")
    price = lines["l_extendedprice"] * (100 + lines["l_tax"]) * (100 - lines["l_discount"])
    totals = price.groupby(lines["o_orderkey"]).sum() / 1e4
    assert np.abs(totals.to_numpy() - orders["o_totalprice"].to_numpy()).max() <= 0.5
    for status, kinds in {"F": {"F"}, "O": {"O"}, "P": {"F", "O"}}.items():
        of_status = lines[lines["o_orderstatus"] == status].groupby("o_orderkey")
        assert all(set(each["l_linestatus"]) == kinds for _, each in of_status)


def test_line_items(tables: dict[str, pd.DataFrame]) -> None:
    lines = tables["lineitem"]
    sizes = lines.groupby("l_orderkey")["l_linenumber"]
    assert (sizes.min() == 1).all()
    assert (sizes.max() == sizes.size()).all()
    assert set(sizes.size()) == set(range(1, 8))
    assert lines["l_suppkey"].between(1, 10).all()
    assert lines["l_quantity"].between(100, 5_000).all()
    assert set(lines["l_discount"]) == set(range(11))
    assert set(lines["l_tax"]) == set(range(9))
    assert (lines["l_shipdate"] < lines["l_receiptdate"]).all()
    current = pd.Timestamp("1995-06-17")
    assert ((lines["l_returnflag"] == "N") == (lines["l_receiptdate"] > current)).all()
    assert ((lines["l_linestatus"] == "O") == (lines["l_shipdate"] > current)).all()
    assert lines["l_comment"].str.len().between(10, 43).all()


@pytest.mark.parametrize("scale_factor", [1e-6, 1e-4, 0.0101])
def test_any_scale_factor(scale_factor: float) -> None:
    data = TpchData(scale_factor, 1, comment_bytes=200)
    for orders, lines in data.orders_and_lines():
        assert lines["l_suppkey"].between(1, data.suppliers).all()
        assert orders["o_custkey"].between(1, data.customers).all()
        assert (lines["l_comment"].str.len() == 200).all()


def test_random_parameters_are_in_their_domains() -> None:
    for number in range(300):
        drawn = random_parameters(3, number)
        assert drawn == random_parameters(3, number)
        assert 60 <= drawn.q1_delta_days <= 120
        assert "1993-01-01" <= str(drawn.q4_date) <= "1997-10-01"
        assert drawn.q4_date.day == 1
        assert drawn.q5_region in REGIONS
        assert 1993 <= drawn.q5_date.year <= 1997
        assert set(drawn.q12_modes) <= set(MODES)
        assert len(set(drawn.q12_modes)) == 2


def test_parameters_of_one_query() -> None:
    drawn = random_parameters(3, 1)
    assert drawn.of("Q1") == Parameters(q1_delta_days=drawn.q1_delta_days)


def test_join_orders() -> None:
    assert parse_join_order("planner") == ()
    order = parse_join_order("region, nation, customer, orders, lineitem, supplier")
    text = statement("Q5", Parameters(), "s", order)
    assert "JOIN s.customer ON c_nationkey = n_nationkey JOIN" in text
    assert "JOIN s.supplier ON l_suppkey = s_suppkey AND c_nationkey = s_nationkey AND" in text


@pytest.mark.parametrize(
    "order",
    [
        "",
        "customer",
        "region,nation,customer,orders,lineitem,lineitem",
        "region,nation,customer,orders,lineitem,supplier; DROP TABLE x",
        "region,customer,nation,orders,lineitem,supplier",  # a product of regions and customers
    ],
)
def test_join_orders_that_make_no_sense(order: str) -> None:
    with pytest.raises(UsageError, match="join_order"):
        parse_join_order(order)
