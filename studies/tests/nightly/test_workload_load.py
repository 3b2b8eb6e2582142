# SPDX-License-Identifier: Apache-2.0
"""The workloads `load`, `operators` and `tpch` on real servers."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pandas as pd
import pytest

from qjoule_studies.servers.process import DatabaseServer
from qjoule_studies.workload import Target, Value
from qjoule_studies.workloads.load import Load
from qjoule_studies.workloads.operators import Operators
from qjoule_studies.workloads.plan_check import OPERATORS
from qjoule_studies.workloads.sql_session import connect
from qjoule_studies.workloads.tpch import Tpch, generated
from qjoule_studies.workloads.tpch_queries import QUERIES, Parameters, random_parameters, statement

pytestmark = [pytest.mark.beside, pytest.mark.server]


def target_of(server: DatabaseServer) -> Target:
    return Target(server.name, server.pid, port=server.port, socket=str(server.socket))


SHORT: dict[str, Value] = {
    **Load.defaults,
    "rows": 1_000,
    "seconds": 1.0,
    "peak_seconds": 0.3,
    "connections": 4,
    "processes": 2,
}
SERVERS = ["postgres", "mariadb", "redis"]


@pytest.fixture(params=SERVERS)
def target(request: pytest.FixtureRequest) -> Target:
    return target_of(request.getfixturevalue(request.param))


def test_a_level_of_the_measured_peak(target: Target) -> None:
    options = {**SHORT, "operation": "mix", "level": 20}
    Load().prepare(target, options)
    first = Load().run(target, options)
    Load().prepare(target, options)
    second = Load().run(target, {**options, "seed": 2})
    for outcome in (first, second):
        assert outcome.errors == 0
        assert set(outcome.commands) == {"read", "update", "range", "all"}
        assert outcome.commands["all"].operations == outcome.operations
        assert outcome.wall_s >= 1.0
    peak_notes = [
        [note for note in outcome.notes if "peak was measured at" in note]
        for outcome in (first, second)
    ]
    assert peak_notes[0] == peak_notes[1] != []  # measured once
    peak = float(peak_notes[0][0].split(": ")[1].split("/s")[0].replace(",", ""))
    assert first.operations == pytest.approx(0.2 * peak, rel=0.2)


SMALL: dict[str, Value] = {
    **Operators.defaults,
    "rows": 20_000,
    "build_rows": 2_000,
    "groups": 50,
    "operations": 2,
}


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("operator", OPERATORS)
def test_each_operator_has_its_plan(postgres: DatabaseServer, operator: str, workers: int) -> None:
    options = {**SMALL, "operator": operator, "parallel_workers": workers}
    target = target_of(postgres)
    Operators().prepare(target, options)
    outcome = Operators().run(target, options)
    assert (outcome.operations, outcome.errors) == (2, 0)
    assert outcome.commands[operator].operations == 2
    assert any(f"{workers} of {workers} workers launched" in note for note in outcome.notes)


SCALE = 0.004
SCHEMA = "qjoule_tpch_4em03"
OPTIONS: dict[str, Value] = {**Tpch.defaults, "scale_factor": SCALE, "operations": 4}


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
    target = target_of(request.getfixturevalue(flavour))
    Tpch().prepare(target, OPTIONS)
    with closing(connect(target)) as connection:
        answers = {query: answer(connection, query, parameters) for query in QUERIES}
    assert all(answers.values())
    with generated("orders", SCALE) as rows:
        orders = pd.read_csv(rows)
    with generated("lineitem", SCALE) as rows:
        lines = pd.read_csv(rows, parse_dates=["l_shipdate", "l_commitdate", "l_receiptdate"])
    read = lines[
        lines["l_shipmode"].isin(parameters.q12_modes)
        & (lines["l_commitdate"] < lines["l_receiptdate"])
        & (lines["l_shipdate"] < lines["l_commitdate"])
        & (lines["l_receiptdate"].dt.year == parameters.q12_date.year)
    ].merge(orders, left_on="l_orderkey", right_on="o_orderkey")
    urgent = read["o_orderpriority"].isin(["1-URGENT", "2-HIGH"])
    assert answers["Q12"] == [
        [mode, int(urgent[of_mode].sum()), int((~urgent[of_mode]).sum())]
        for mode in sorted(parameters.q12_modes)
        if (of_mode := read["l_shipmode"] == mode).any()
    ]


def test_all_queries_run_in_parallel(postgres: DatabaseServer) -> None:
    options = {**OPTIONS, "query": "all", "parallel_workers": 2, "parameters": "random"}
    target = target_of(postgres)
    Tpch().prepare(target, options)
    outcome = Tpch().run(target, options)
    assert (outcome.operations, outcome.errors) == (4, 0)
    assert set(outcome.commands) == {*QUERIES, "all"}
    assert "2 of 2 workers launched" in " ".join(outcome.notes)
    assert "no TPC-H result" in outcome.notes[0]
