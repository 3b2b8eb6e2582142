# SPDX-License-Identifier: Apache-2.0
"""Makes and fills the six of TPC-H's tables that Q1, Q4, Q5 and Q12 read.

`tpchgen-cli` generates the rows, as dbgen does. They go to PostgreSQL by COPY, to MySQL and MariaDB
by INSERT.
"""

from __future__ import annotations

import csv
import shutil
import subprocess
import sysconfig
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, Any

from qjoule.api import QjouleError
from qjoule_studies.workload import Target
from qjoule_studies.workloads.sql_session import MYSQL

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
    found = connection.execute("SELECT pg_table_size(%s)", [f"{schema}.lineitem"]).fetchone()[0]
    return f"lineitem has {found / 1e6:,.1f} MB"


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
