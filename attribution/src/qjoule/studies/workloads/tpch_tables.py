# SPDX-License-Identifier: Apache-2.0
"""Makes and fills TPC-H's tables in PostgreSQL (by COPY), MySQL and MariaDB (by INSERT)."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from qjoule.errors import UsageError
from qjoule.studies.workload import Target
from qjoule.studies.workloads.sql_session import MYSQL, driver, one_line
from qjoule.studies.workloads.tpch_data import HUNDREDTHS, TABLES, TpchData

_COLUMNS: Mapping[str, str] = {
    "region": "r_regionkey int PRIMARY KEY, r_name char(25), r_comment varchar(152)",
    "nation": "n_nationkey int PRIMARY KEY, n_name char(25), n_regionkey int NOT NULL, "
    "n_comment varchar(152)",
    "supplier": "s_suppkey int PRIMARY KEY, s_name char(25), s_address varchar(40), "
    "s_nationkey int NOT NULL, s_phone char(15), s_acctbal decimal(15,2), s_comment varchar(101)",
    "customer": "c_custkey int PRIMARY KEY, c_name varchar(25), c_address varchar(40), "
    "c_nationkey int NOT NULL, c_phone char(15), c_acctbal decimal(15,2), "
    "c_comment varchar(117), c_mktsegment char(10)",
    "orders": "o_orderkey bigint PRIMARY KEY, o_custkey int NOT NULL, o_orderstatus char(1), "
    "o_totalprice decimal(15,2), o_orderdate date NOT NULL, o_orderpriority char(15), "
    "o_clerk char(15), o_shippriority int, o_comment varchar(79)",
    "lineitem": "l_orderkey bigint, l_partkey int NOT NULL, l_suppkey int NOT NULL, "
    "l_linenumber int, l_quantity decimal(15,2), l_extendedprice decimal(15,2), "
    "l_discount decimal(15,2), l_tax decimal(15,2), l_returnflag char(1), l_linestatus char(1), "
    "l_shipdate date NOT NULL, l_commitdate date NOT NULL, l_receiptdate date NOT NULL, "
    "l_shipinstruct char(25), l_shipmode char(10), l_comment {comment}, "
    "PRIMARY KEY (l_orderkey, l_linenumber)",
}
_MARK = "qjoule_complete"  # a table that is made when all others are filled
_TEXTS = ("orders.o_comment", "lineitem.l_comment")


def make_tables(
    connection: Any, target: Target, schema: str, data: TpchData, *, compression: str, long: bool
) -> None:
    """Fills the six tables in a schema (MySQL: a database); does nothing if they are complete.

    Args:
        compression: `none`, `pglz` or `lz4` of the long texts; MySQL and MariaDB: `none`.
        long: line items' comments are longer than the specification's 44 characters.
    """
    cursor = connection.cursor()
    if _complete(cursor, schema):
        return
    if target.flavour in MYSQL:
        cursor.execute(f"DROP DATABASE IF EXISTS {schema}")
        cursor.execute(f"CREATE DATABASE {schema}")
    else:
        cursor.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
        cursor.execute(f"CREATE SCHEMA {schema}")
    for table in TABLES:
        columns = _COLUMNS[table].format(comment="text" if long else "varchar(44)")
        cursor.execute(f"CREATE TABLE {schema}.{table} ({columns})")
    if target.flavour not in MYSQL:
        _compress(cursor, target, schema, compression)
    for table, frame in _parts(data):
        if target.flavour in MYSQL:
            _insert(connection, f"{schema}.{table}", frame)
        else:
            _copy(cursor, f"{schema}.{table}", frame)
    for table in TABLES:
        if target.flavour in MYSQL:
            cursor.execute(f"ANALYZE TABLE {schema}.{table}")
            cursor.fetchall()
        else:
            cursor.execute(f"ALTER TABLE {schema}.{table} SET (parallel_workers = 1024)")
            cursor.execute(f"VACUUM (ANALYZE) {schema}.{table}")
    cursor.execute(f"CREATE TABLE {schema}.{_MARK} (done int)")


def sizes(connection: Any, schema: str, compression: str) -> str:
    """For a run's notes: how large PostgreSQL's line items are, and how many texts compressed.

    PostgreSQL compresses only in rows of more than about 2 kB (manual, section 73.2, TOAST).
    """
    table = f"{schema}.lineitem"
    size = connection.execute("SELECT pg_table_size(%s)", [table]).fetchone()[0]
    said = f"lineitem has {size / 1e6:,.1f} MB"
    if compression == "none":
        return said
    share = connection.execute(
        f"SELECT avg((pg_column_compression(l_comment) IS NOT NULL)::int) FROM {table}"
    ).fetchone()[0]
    return f"{said}, {float(share):.0%} of its comments are compressed ({compression})" + (
        "" if share else ": PostgreSQL compresses rows of more than 2 kB, see comment_bytes"
    )


def _complete(cursor: Any, schema: str) -> bool:
    cursor.execute(
        "SELECT count(*) FROM information_schema.tables "
        "WHERE table_schema = %s AND table_name = %s",
        [schema, _MARK],
    )
    return bool(cursor.fetchone()[0])


def _compress(cursor: Any, target: Target, schema: str, compression: str) -> None:
    for text in _TEXTS:
        table, column = text.split(".")
        alter = f"ALTER TABLE {schema}.{table} ALTER COLUMN {column} SET"
        # PLAIN and MAIN both keep the text in its row, so that compression is all that differs.
        cursor.execute(f"{alter} STORAGE {'PLAIN' if compression == 'none' else 'MAIN'}")
        if compression != "none":
            try:
                cursor.execute(f"{alter} COMPRESSION {compression}")
            except driver(target.flavour).Error as error:
                raise UsageError(f"compression {compression}: {one_line(error)}") from error


def _parts(data: TpchData) -> Iterator[tuple[str, pd.DataFrame]]:
    yield from data.small_tables()
    for orders, lines in data.orders_and_lines():
        yield "orders", orders
        yield "lineitem", lines


def _copy(cursor: Any, table: str, frame: pd.DataFrame) -> None:
    lines = io.StringIO()
    _as_written(frame).to_csv(lines, sep="\t", header=False, index=False, float_format="%.2f")
    with cursor.copy(f"COPY {table} ({', '.join(frame.columns)}) FROM STDIN") as copy:
        copy.write(lines.getvalue())


def _insert(connection: Any, table: str, frame: pd.DataFrame) -> None:
    """In one transaction, several rows a statement, as pymysql's `executemany` makes them."""
    written = _as_written(frame)
    rows = list(zip(*(written[column].tolist() for column in written), strict=True))
    values = ", ".join(["%s"] * len(frame.columns))
    connection.begin()
    connection.cursor().executemany(
        f"INSERT INTO {table} ({', '.join(frame.columns)}) VALUES ({values})", rows
    )
    connection.commit()


def _as_written(frame: pd.DataFrame) -> pd.DataFrame:
    """Hundredths as decimals, dates as ISO 8601 writes them."""
    columns = {}
    for name in frame.columns:
        values = frame[name]
        if name in HUNDREDTHS:
            columns[name] = values / 100
        elif values.dtype.kind == "M":
            days = values.to_numpy().astype("datetime64[D]")
            columns[name] = pd.Series(np.datetime_as_string(days), dtype=object)
        else:
            columns[name] = values
    return pd.DataFrame(columns)
