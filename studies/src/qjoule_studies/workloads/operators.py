# SPDX-License-Identifier: Apache-2.0
"""`operators`: one operator of PostgreSQL's executor at a time, at a chosen number of workers.

After D. Tsirogiannis, S. Harizopoulos, M. A. Shah, Analyzing the energy efficiency of a database
server, SIGMOD 2010, sections 3.2 and 4.1 to 4.3: CPU power against busy cores by operator. Their
kernels read 100-byte tuples, joined a build relation of 100,000 rows to a probe relation, and ran
on 1 to 8 cores. Here the server's own operators do that, on tables that it makes itself. A parallel
plan keeps `parallel_workers` + 1 processes busy, as the one that leads it takes part; with
`settings: parallel_leader_participation=off` it does not.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack, closing
from functools import partial
from typing import Any

from qjoule_studies.workload import Outcome, Target, Value
from qjoule_studies.workloads import option_values
from qjoule_studies.workloads.closed_loop import closed_loop
from qjoule_studies.workloads.plan_check import OPERATORS, PARALLEL, check
from qjoule_studies.workloads.sql_session import (
    analyze,
    as_qjoule_error,
    ensure_database,
    explain,
    findings,
    key_of,
    outcome_of,
    scarce_workers,
    session,
    store_finding,
    stored_finding,
)

_SCHEMA = "qjoule_operators"
_COMPLETE = "complete"  # comment of a table that is filled, indexed and analysed


class Operators:
    """Executes one statement, whose plan has been checked, again and again.

    Options:
        operator: a name in `OPERATORS`.
        parallel_workers: planned for each execution, 0 to 1024.
        work_mem: for each sort and hash table; empty for the server's own.
        rows: of the probe relation, about 100 bytes each. build_rows: of the build relation.
        groups: of the aggregations. selectivity: which part of the probe relation is read.
        seconds: how long executions begin; operations: how many there are instead, if not 0.
        connections: that execute at the same time. seed: of the data.
        settings: further settings of the session, `jit=on; temp_buffers=8MB`.
    """

    name = "operators"
    flavours = frozenset({"postgres"})
    defaults: Mapping[str, Value] = {
        "operator": "sequential scan",
        "parallel_workers": 0,
        "work_mem": "256MB",
        "rows": 1_000_000,
        "build_rows": 100_000,
        "groups": 1_000,
        "selectivity": 1.0,
        "seconds": 10.0,
        "operations": 0,
        "connections": 1,
        "seed": 1,
        "settings": "",
    }

    def prepare(self, target: Target, options: Mapping[str, Value]) -> None:
        """Makes the tables, checks the plan, and executes it once to see what it does."""
        parsed = _Parsed(options)
        ensure_database(target)
        with session(target, {}) as connection, as_qjoule_error(target):
            _make_tables(connection, parsed)
        with session(target, parsed.settings) as connection, as_qjoule_error(target):
            check(explain(connection, parsed.statement), parsed.operator.wanted, parsed.workers)
            plan = analyze(connection, parsed.statement)
            store_finding(connection, key_of(self.name, parsed.options), findings(plan))

    def run(self, target: Target, options: Mapping[str, Value]) -> Outcome:
        parsed = _Parsed(options)
        with ExitStack() as stack:
            opened: list[Any] = []
            for _ in range(parsed.connections):
                opened.append(stack.enter_context(closing(session(target, parsed.settings))))
                with as_qjoule_error(target):
                    plan = explain(opened[-1], parsed.statement)
                check(plan, parsed.operator.wanted, parsed.workers)
            with as_qjoule_error(target):
                plan_note = stored_finding(opened[0], key_of(self.name, parsed.options))
                scarce = scarce_workers(opened[0], parsed.workers, parsed.connections)
            execute = partial(_execute, parsed.statement, parsed.name)
            runs = [partial(execute, connection) for connection in opened]
            loop = closed_loop(runs, parsed.seconds, parsed.operations)
        return outcome_of(loop, parsed.name, (plan_note, scarce))


class _Parsed:
    """The options, checked, and what follows from them."""

    def __init__(self, values: Mapping[str, Value]) -> None:
        options = option_values.only_known(Operators.name, values, Operators.defaults)
        self.options = options
        self.name = option_values.choice(options, "operator", OPERATORS)
        self.operator = OPERATORS[self.name]
        self.workers = option_values.integer(options, "parallel_workers", 0, 1024)
        self.rows = option_values.integer(options, "rows", 1_000, 2_000_000_000)
        self.build_rows = option_values.integer(options, "build_rows", 10, self.rows)
        self.groups = option_values.integer(options, "groups", 1, self.rows)
        self.seed = option_values.integer(options, "seed", 0, 2**31 - 1)
        self.seconds = option_values.number(options, "seconds", 0.001, 7 * 86_400)
        self.operations = option_values.integer(options, "operations", 0, 10**9)
        self.connections = option_values.integer(options, "connections", 1, 1_000)
        selectivity = option_values.number(options, "selectivity", 1e-9, 1.0)
        work_mem = option_values.memory(options, "work_mem")
        self.settings = {
            "max_parallel_workers_per_gather": str(self.workers),
            **PARALLEL,
            # Compiling would be measured too, and only where the planner expects much work.
            "jit": "off",
            **self.operator.settings,
            **({"work_mem": work_mem} if work_mem else {}),
            **option_values.settings(options, "settings"),
        }
        stem = f"{self.rows}_{self.build_rows}_{self.groups}_{self.seed}"
        self.probe, self.build = f"{_SCHEMA}.probe_{stem}", f"{_SCHEMA}.build_{stem}"
        below = max(1, round(self.rows * selectivity))
        self.statement = self.operator.statement.format(
            probe=self.probe, build=self.build, below=below
        )


def _execute(statement: str, name: str, connection: Any, _number: int) -> str:
    connection.execute(statement).fetchall()
    return name


def _make_tables(connection: Any, parsed: _Parsed) -> None:
    """Probe and build relation: nothing is done if both are complete.

    Keys are in an order that depends on the seed alone, so that the same plan file makes the same
    data on every server.
    """
    comment = "SELECT obj_description(to_regclass(%s), 'pg_class')"
    if connection.execute(comment, [parsed.probe]).fetchone()[0] == _COMPLETE:
        return
    connection.execute(f"CREATE SCHEMA IF NOT EXISTS {_SCHEMA}")
    order = f"row_number() OVER (ORDER BY md5({parsed.seed} || '-' || i))::int"
    connection.execute(f"DROP TABLE IF EXISTS {parsed.probe}, {parsed.build}")
    connection.execute(
        f"CREATE TABLE {parsed.build} AS SELECT {order} AS id, i AS v, "
        f"repeat(md5(i::text), 2) AS payload FROM generate_series(1, {parsed.build_rows}) i"
    )
    connection.execute(
        f"CREATE TABLE {parsed.probe} AS SELECT id, k, 1 + k % {parsed.build_rows} AS build_id, "
        f"k % {parsed.groups} AS g, k % 10007 AS v, repeat(md5(k::text), 2) AS payload FROM "
        f"(SELECT i AS id, {order} AS k FROM generate_series(1, {parsed.rows}) i) q ORDER BY id"
    )
    connection.execute(f"ALTER TABLE {parsed.build} ADD PRIMARY KEY (id)")
    connection.execute(f"CREATE UNIQUE INDEX ON {parsed.probe} (k)")
    for table in (parsed.build, parsed.probe):
        connection.execute(f"ALTER TABLE {table} SET (parallel_workers = 1024)")
        connection.execute(f"VACUUM (ANALYZE) {table}")
    connection.execute(f"COMMENT ON TABLE {parsed.probe} IS '{_COMPLETE}'")
