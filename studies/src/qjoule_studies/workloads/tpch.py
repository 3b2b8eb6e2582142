# SPDX-License-Identifier: Apache-2.0
"""`tpch`: TPC-H's Q1, Q4, Q5 and Q12.

Data, queries and parameters are those of the TPC Benchmark H specification, but nothing is run by
the benchmark's rules: **results are not TPC-H results** and must not be compared with any.

Sources of the study: D. Tsirogiannis, S. Harizopoulos, M. A. Shah, SIGMOD 2010, sections 4.1.4 and
4.3 (Q5 with several join orders, Q12 at several concurrencies), and T. Härder's WattDB (Q1, Q4).

Only the six tables that Q1, Q4, Q5 and Q12 read are made. `tpchgen-cli` generates the rows, as
dbgen does. They go to PostgreSQL by COPY, to MySQL and MariaDB by INSERT.
"""

from __future__ import annotations

import csv
import shutil
import subprocess
import sysconfig
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO, Any

from qjoule.api import QjouleError, UsageError
from qjoule_studies.workload import Outcome, Target, Value
from qjoule_studies.workloads import option_values
from qjoule_studies.workloads.closed_loop import closed_loop
from qjoule_studies.workloads.plan_check import PARALLEL, Plan, describe, join_order
from qjoule_studies.workloads.sql_session import (
    MYSQL,
    analyze,
    as_qjoule_error,
    connect,
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
from qjoule_studies.workloads.tpch_queries import (
    QUERIES,
    Parameters,
    parse_join_order,
    random_parameters,
    statement,
)

_PROGRAM = "tpchgen-cli"
_COLUMNS: Mapping[str, str] = {
    "region": "r_regionkey int PRIMARY KEY, r_name char(25), r_comment varchar(152)",
    "nation": "n_nationkey int PRIMARY KEY, n_name char(25), n_regionkey int NOT NULL, "
    "n_comment varchar(152)",
    "supplier": "s_suppkey int PRIMARY KEY, s_name char(25), s_address varchar(40), "
    "s_nationkey int NOT NULL, s_phone char(15), s_acctbal decimal(15,2), s_comment varchar(101)",
    "customer": "c_custkey int PRIMARY KEY, c_name varchar(25), c_address varchar(40), "
    "c_nationkey int NOT NULL, c_phone char(15), c_acctbal decimal(15,2), "
    "c_mktsegment char(10), c_comment varchar(117)",
    "orders": "o_orderkey bigint PRIMARY KEY, o_custkey int NOT NULL, o_orderstatus char(1), "
    "o_totalprice decimal(15,2), o_orderdate date NOT NULL, o_orderpriority char(15), "
    "o_clerk char(15), o_shippriority int, o_comment varchar(79)",
    "lineitem": "l_orderkey bigint, l_partkey int NOT NULL, l_suppkey int NOT NULL, "
    "l_linenumber int, l_quantity decimal(15,2), l_extendedprice decimal(15,2), "
    "l_discount decimal(15,2), l_tax decimal(15,2), l_returnflag char(1), l_linestatus char(1), "
    "l_shipdate date NOT NULL, l_commitdate date NOT NULL, l_receiptdate date NOT NULL, "
    "l_shipinstruct char(25), l_shipmode char(10), l_comment varchar(44), "
    "PRIMARY KEY (l_orderkey, l_linenumber)",
}
_MARK = "qjoule_complete"  # a table that is made when all others are filled
_AT_ONCE = 10_000  #: rows of a transaction in MySQL
_PIECE = 1 << 20  #: bytes


def make_tables(connection: Any, target: Target, schema: str, scale_factor: float) -> None:
    """Fills the tables in a schema (MySQL: a database); does nothing if they are complete.

    Raises:
        QjouleError: `tpchgen-cli` is missing, or fails.
    """
    cursor = connection.cursor()
    if _complete(cursor, schema):
        return
    by_insert = target.flavour in MYSQL
    if by_insert:
        cursor.execute(f"DROP DATABASE IF EXISTS {schema}")
        cursor.execute(f"CREATE DATABASE {schema}")
    else:
        cursor.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
        cursor.execute(f"CREATE SCHEMA {schema}")
    for table, columns in _COLUMNS.items():
        cursor.execute(f"CREATE TABLE {schema}.{table} ({columns})")
        with generated(table, scale_factor) as rows:
            (_insert if by_insert else _copy)(connection, f"{schema}.{table}", rows)
        if by_insert:
            cursor.execute(f"ANALYZE TABLE {schema}.{table}")
            cursor.fetchall()
        else:
            cursor.execute(f"ALTER TABLE {schema}.{table} SET (parallel_workers = 1024)")
            cursor.execute(f"VACUUM (ANALYZE) {schema}.{table}")
    cursor.execute(f"CREATE TABLE {schema}.{_MARK} (done int)")


@contextmanager
def generated(table: str, scale_factor: float) -> Iterator[IO[str]]:
    """The rows of a table as CSV with a header. Raises QjouleError as `make_tables` does."""
    beside = Path(sysconfig.get_path("scripts")) / _PROGRAM
    program = str(beside) if beside.exists() else shutil.which(_PROGRAM)
    if program is None:
        raise QjouleError(f"{_PROGRAM} is not installed: pip install 'qjoule-studies[bench]'")
    argv = [program, "csv", "--tables", table, "--scale-factor", f"{scale_factor:f}"]
    argv += ["--stdout", "--quiet"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout
        except BaseException:
            process.kill()
            raise
        if code := process.wait():
            raise QjouleError(f"{_PROGRAM} failed with exit code {code}")


def size(connection: Any, schema: str) -> str:
    """For a run's notes: how large PostgreSQL's line items are."""
    size_bytes = connection.execute("SELECT pg_table_size(%s)", [f"{schema}.lineitem"]).fetchone()[
        0
    ]
    return f"lineitem has {size_bytes / 1e6:,.1f} MB"


def _complete(cursor: Any, schema: str) -> bool:
    cursor.execute(
        "SELECT count(*) FROM information_schema.tables "
        "WHERE table_schema = %s AND table_name = %s",
        [schema, _MARK],
    )
    return bool(cursor.fetchone()[0])


def _copy(connection: Any, table: str, rows: IO[str]) -> None:
    with connection.cursor().copy(f"COPY {table} FROM STDIN (FORMAT csv, HEADER)") as copy:
        while piece := rows.read(_PIECE):
            copy.write(piece)


def _insert(connection: Any, table: str, rows: IO[str]) -> None:
    """Several rows a statement, as pymysql's `executemany` makes them."""
    reader = csv.reader(rows)
    values = ", ".join(["%s"] * len(next(reader)))
    while part := list(islice(reader, _AT_ONCE)):
        connection.begin()
        connection.cursor().executemany(f"INSERT INTO {table} VALUES ({values})", part)
        connection.commit()


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
        with closing(connect(target)) as connection, as_qjoule_error(target):
            make_tables(connection, target, parsed.schema, parsed.scale_factor)
        if target.flavour in MYSQL:
            return
        with session(target, parsed.settings) as connection, as_qjoule_error(target):
            notes = [size(connection, parsed.schema)]
            for query in parsed.queries:
                text = parsed.statement(query, 0)
                if query == "Q5":
                    check_join_order(explain(connection, text), parsed.join_order)
                notes.append(f"{query}: {findings(analyze(connection, text))}")
            store_finding(connection, key_of(self.name, parsed.options), notes)

    def run(self, target: Target, options: Mapping[str, Value]) -> Outcome:
        parsed = _Parsed(target, options)
        notes = ["not run by the benchmark's rules: this is no TPC-H result"]
        with ExitStack() as stack:
            opened = [
                stack.enter_context(
                    closing(connect(target) if parsed.mysql else session(target, parsed.settings))
                )
                for _ in range(parsed.connections)
            ]
            if not parsed.mysql:
                with as_qjoule_error(target):
                    notes += stored_finding(opened[0], key_of(self.name, parsed.options)) or []
                    notes.append(scarce_workers(opened[0], parsed.workers, parsed.connections))
            runs = [partial(_execute, parsed, connection) for connection in opened]
            loop = closed_loop(runs, parsed.seconds, parsed.operations)
        return outcome_of(loop, self.name, notes)


class _Parsed:
    """The options, checked, and what follows from them."""

    def __init__(self, target: Target, values: Mapping[str, Value]) -> None:
        options = option_values.only_known(Tpch.name, values, Tpch.defaults)
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
        """The statement of execution `number`, from 0."""
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
