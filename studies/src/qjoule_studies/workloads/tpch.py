# SPDX-License-Identifier: Apache-2.0
"""`tpch`: TPC-H's Q1, Q4, Q5 and Q12.

Data, queries and parameters are those of the TPC Benchmark H specification, but nothing is run by
the benchmark's rules: **results are not TPC-H results** and must not be compared with any.

Sources of the study: D. Tsirogiannis, S. Harizopoulos, M. A. Shah, SIGMOD 2010, sections 4.1.4 and
4.3 (Q5 with several join orders, Q12 at several concurrencies), and T. Härder's WattDB (Q1, Q4).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from functools import partial
from typing import Any

from qjoule.api import QjouleError, UsageError
from qjoule_studies.workload import Outcome, Target, Value
from qjoule_studies.workloads import option_values
from qjoule_studies.workloads.closed_loop import closed_loop, latencies
from qjoule_studies.workloads.operator_plans import PARALLEL
from qjoule_studies.workloads.plan_check import Plan, describe, join_order
from qjoule_studies.workloads.postgres_session import (
    analyze,
    explain,
    findings,
    keep,
    kept,
    key_of,
    scarce_workers,
    session,
)
from qjoule_studies.workloads.sql_session import (
    MYSQL,
    connect,
    ensure_database,
    one_line,
    said_by_server,
)
from qjoule_studies.workloads.tpch_queries import (
    QUERIES,
    Parameters,
    parse_join_order,
    random_parameters,
    statement,
)
from qjoule_studies.workloads.tpch_tables import make_tables, size


class Tpch:
    """Executes one of the queries, or all in turn, again and again.

    Options:
        query: Q1, Q4, Q5, Q12, or all. parameters: `validation` for the specification's validation
            values, `random` to draw them anew for each execution.
        scale_factor: of dbgen, from 0.001. seed: of random parameters.
        parallel_workers, work_mem, settings: as of `operators`; PostgreSQL only.
        join_order: Q5's tables in the order in which they are joined, or `planner`.
        seconds, operations, connections: as of `operators`.
    """

    name = "tpch"
    flavours = frozenset({"postgres"}) | MYSQL
    defaults: Mapping[str, Value] = {
        "query": "Q1",
        "parameters": "validation",
        "scale_factor": 0.01,
        "parallel_workers": 0,
        "work_mem": "",
        "join_order": "planner",
        "seconds": 10.0,
        "operations": 0,
        "connections": 1,
        "seed": 1,
        "settings": "",
    }

    def prepare(self, target: Target, options: Mapping[str, Value]) -> None:
        parsed = _Parsed(target, options)
        ensure_database(target)
        with closing(connect(target)) as connection, said_by_server(target):
            make_tables(connection, target, parsed.schema, parsed.scale_factor)
        if target.flavour in MYSQL:
            return
        with session(target, parsed.settings) as connection, said_by_server(target):
            found = [size(connection, parsed.schema)]
            for query in parsed.queries:
                text = parsed.statement(query, 0)
                if query == "Q5":
                    check_join_order(explain(connection, text), parsed.join_order)
                found.append(f"{query}: {findings(analyze(connection, text))}")
            keep(connection, key_of(self.name, parsed.options), found)

    def run(self, target: Target, options: Mapping[str, Value]) -> Outcome:
        parsed = _Parsed(target, options)
        opened: list[Any] = []
        notes = ["not run by the benchmark's rules: this is no TPC-H result"]
        try:
            for _ in range(parsed.connections):
                mysql = target.flavour in MYSQL
                opened.append(connect(target) if mysql else session(target, parsed.settings))
            if target.flavour not in MYSQL:
                with said_by_server(target):
                    notes += kept(opened[0], key_of(self.name, parsed.options)) or []
                    notes.append(scarce_workers(opened[0], parsed.workers, parsed.connections))
            runs = [partial(_execute, parsed, connection) for connection in opened]
            loop = closed_loop(runs, parsed.seconds, parsed.operations)
        finally:
            for connection in opened:
                connection.close()
        if loop.first_error is not None:
            raise QjouleError(f"{self.name}: {one_line(loop.first_error)}") from loop.first_error
        return Outcome(
            loop.operations,
            loop.errors,
            loop.wall_s,
            "qjoule",
            latencies(loop.latencies_ns),
            tuple(filter(None, notes)),
        )


class _Parsed:
    """The options, checked, and what follows from them."""

    def __init__(self, target: Target, given: Mapping[str, Value]) -> None:
        options = option_values.only_known(Tpch.name, given, Tpch.defaults)
        self.options = options
        query = option_values.choice(options, "query", (*QUERIES, "all"))
        self.queries = QUERIES if query == "all" else (query,)
        self.random = option_values.choice(options, "parameters", ("validation", "random"))
        self.scale_factor = option_values.number(options, "scale_factor", 0.001, 10_000)
        self.workers = option_values.integer(options, "parallel_workers", 0, 1024)
        self.seed = option_values.integer(options, "seed", 0, 2**31 - 1)
        self.seconds = option_values.number(options, "seconds", 0.001, 7 * 86_400)
        self.operations = option_values.integer(options, "operations", 0, 10**9)
        self.connections = option_values.integer(options, "connections", 1, 1_000)
        self.join_order = parse_join_order(option_values.text(options, "join_order"))
        work_mem = option_values.memory(options, "work_mem")
        further = option_values.settings(options, "settings")
        if self.join_order and "Q5" not in self.queries:
            raise UsageError(f"join_order is of Q5, and query is {query}")
        self.mysql = target.flavour in MYSQL
        if self.mysql and (self.workers or work_mem or further):
            raise UsageError(f"{target.flavour} has no parallel_workers, work_mem or settings here")
        self.settings = {
            "max_parallel_workers_per_gather": str(self.workers),
            **(PARALLEL if self.workers else {}),
            **({"join_collapse_limit": "1"} if self.join_order else {}),
            **({"work_mem": work_mem} if work_mem else {}),
            **further,
        }
        mantissa, exponent = f"{self.scale_factor:.6e}".split("e")
        factor = f"{mantissa.rstrip('0').rstrip('.')}e{exponent}"
        factor = factor.replace(".", "_").replace("-", "m").replace("+", "p")
        self.schema = f"qjoule_tpch_{factor}"

    def statement(self, query: str, number: int) -> str:
        """Of the execution of this number, from 0."""
        drawn = self.random == "random"
        parameters = random_parameters(self.seed, number) if drawn else Parameters()
        order = self.join_order if query == "Q5" else ()
        return statement(query, parameters.of(query), self.schema, order, self.mysql)


def check_join_order(plan: Plan, order: tuple[str, ...]) -> None:
    """Raises QjouleError if PostgreSQL joins in another order; an empty one is any."""
    wanted = [frozenset(order[: place + 1]) for place in range(1, len(order))]
    if order and join_order(plan) != wanted:
        raise QjouleError(f"PostgreSQL did not follow join_order but planned {describe(plan)}")


def _execute(parsed: _Parsed, connection: Any, number: int) -> str:
    query = parsed.queries[number % len(parsed.queries)]
    cursor = connection.cursor()
    cursor.execute(parsed.statement(query, number))
    cursor.fetchall()
    cursor.close()
    return query
