# SPDX-License-Identifier: Apache-2.0
"""The workload `tpch` on real servers: its answers equal those of pandas for the same data."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pandas as pd
import pytest

from qjoule.errors import QjouleError
from qjoule.studies.workload import Target, Value
from qjoule.studies.workloads.postgres_session import explain
from qjoule.studies.workloads.sql_session import connect
from qjoule.studies.workloads.tpch import Tpch, check_join_order
from qjoule.studies.workloads.tpch_data import TpchData
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
ORDER = ("region", "nation", "customer", "orders", "lineitem", "supplier")


def target_of(server: DatabaseServer) -> Target:
    return Target(server.name, server.pid, port=server.port, socket=str(server.socket))


@contextmanager
def filled(server: DatabaseServer) -> Iterator[Any]:
    """A connection to the tables, which are created if missing."""
    Tpch().prepare(target_of(server), OPTIONS)
    with closing(connect(target_of(server))) as connection:
        yield connection


def answer(connection: Any, query: str, parameters: Parameters) -> list[list[Any]]:
    cursor = connection.cursor()
    cursor.execute(statement(query, parameters, SCHEMA))
    return [
        [value.strip() if isinstance(value, str) else value for value in row]
        for row in cursor.fetchall()
    ]


@pytest.mark.parametrize("parameters", [Parameters(), random_parameters(1, 5)], ids=["own", "5"])
@pytest.mark.parametrize("flavour", ["postgres", "mariadb"])
def test_answers(request: pytest.FixtureRequest, flavour: str, parameters: Parameters) -> None:
    with filled(request.getfixturevalue(flavour)) as connection:
        found = {query: answer(connection, query, parameters) for query in QUERIES}
    assert all(found.values())
    parts = list(TpchData(SCALE, 1).orders_and_lines())
    orders = pd.concat([orders for orders, _ in parts], ignore_index=True)
    lines = pd.concat([lines for _, lines in parts], ignore_index=True)
    read = lines[
        lines["l_shipmode"].isin(parameters.q12_modes)
        & (lines["l_commitdate"] < lines["l_receiptdate"])
        & (lines["l_shipdate"] < lines["l_commitdate"])
        & (lines["l_receiptdate"].dt.year == parameters.q12_date.year)
    ].merge(orders, left_on="l_orderkey", right_on="o_orderkey")
    urgent = read["o_orderpriority"].isin(["1-URGENT", "2-HIGH"])
    assert found["Q12"] == [
        [mode, int(urgent[of_mode].sum()), int((~urgent[of_mode]).sum())]
        for mode in sorted(parameters.q12_modes)
        if (of_mode := read["l_shipmode"] == mode).any()
    ]


def test_all_queries_run_in_parallel_and_join_as_they_are_told(postgres: DatabaseServer) -> None:
    options = {**OPTIONS, "query": "all", "parallel_workers": 2, "parameters": "random"}
    target = target_of(postgres)
    Tpch().prepare(target, options)
    outcome = Tpch().run(target, options)
    assert (outcome.operations, outcome.errors) == (4, 0)
    assert set(outcome.commands) == {*QUERIES, "all"}
    assert "2 of 2 workers launched" in " ".join(outcome.notes)
    assert "no TPC-H result" in outcome.notes[0]
    Tpch().prepare(target, {**OPTIONS, "query": "Q5", "join_order": ",".join(ORDER)})
    with filled(postgres) as connection:
        free = explain(connection, statement("Q5", Parameters(), SCHEMA, ORDER))
    with pytest.raises(QjouleError, match="did not follow join_order"):
        check_join_order(free, ORDER[::-1])
