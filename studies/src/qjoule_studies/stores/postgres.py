# SPDX-License-Identifier: Apache-2.0
"""The Twitter pairs and go-ycsb on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import psycopg

from qjoule_studies.goycsb import sql_driver
from qjoule_studies.servers.postgres import connect_target
from qjoule_studies.twitter import DATABASE
from qjoule_studies.twitter.data import Row, Sizes
from qjoule_studies.twitter.sql import BATCH, INDEXED, TABLE_NAMES, TABLES, SqlServer, tables_of


class PostgresServer(SqlServer):
    """PostgreSQL."""

    errors = (psycopg.Error,)
    _schema = "current_schema()"

    def _load(self, seed: int) -> None:
        _load_tables(self._connection, self._sizes, seed)

    def _insert(self, table: str, rows: Iterator[Row]) -> None:
        _insert(self._connection, table, rows)

    def _connect(self) -> Any:
        return connect_target(self._target, DATABASE)


def _load_tables(connection: psycopg.Connection[Any], sizes: Sizes, seed: int) -> None:
    """The same for a PostgreSQL; the connection is in autocommit."""
    tables = TABLES.replace("DOUBLE", "DOUBLE PRECISION").replace("DATETIME", "TIMESTAMP")
    tables = tables.replace("LIKE tweets", "(LIKE tweets INCLUDING ALL)")
    for statement in tables.split(";")[:-1]:
        connection.execute(statement)
    for table, rows in tables_of(sizes, seed).items():
        with connection.cursor() as cursor, cursor.copy(f"COPY {table} FROM STDIN") as copy:
            for row in rows:
                copy.write_row(row)
    connection.execute(INDEXED)
    for column in ("location", "user_id"):
        connection.execute(f"CREATE INDEX ON indexed_tweets ({column})")
    for table in TABLE_NAMES:
        connection.execute(f"VACUUM ANALYZE {table}")


def _insert(connection: psycopg.Connection[Any], table: str, rows: Iterator[Row]) -> None:
    """Inserts these rows, except those that exist already."""
    with connection.cursor() as cursor:
        while batch := list(islice(rows, BATCH)):
            marks = ", ".join(["%s"] * len(batch[0]))
            cursor.executemany(
                f"INSERT INTO {table} VALUES ({marks}) ON CONFLICT DO NOTHING", batch
            )


TWITTER = PostgresServer
YCSB = sql_driver("pg", connect_target, psycopg.Error, "VACUUM ANALYZE")
