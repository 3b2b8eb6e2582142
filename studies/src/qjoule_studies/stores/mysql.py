# SPDX-License-Identifier: Apache-2.0
"""The Twitter pairs and go-ycsb on MariaDB and MySQL."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import pymysql

from qjoule_studies.goycsb import sql_driver
from qjoule_studies.servers.mysql import connect_target
from qjoule_studies.twitter import DATABASE
from qjoule_studies.twitter.data import Row, Sizes
from qjoule_studies.twitter.sql import BATCH, INDEXED, TABLE_NAMES, TABLES, SqlServer, tables_of


class MySqlServer(SqlServer):
    """MariaDB and MySQL."""

    errors = (pymysql.Error,)

    def _load(self, seed: int) -> None:
        load_tables(self._connection, self._sizes, seed)

    def _insert(self, table: str, rows: Iterator[Row]) -> None:
        _insert(self._cursor, table, rows)

    def _connect(self) -> Any:
        return connect_target(self._target, DATABASE)


def load_tables(connection: pymysql.Connection[Any], sizes: Sizes, seed: int) -> None:
    """Creates the tables of a MariaDB or MySQL and fills them.

    The same sizes and seed give the same rows.
    """
    with connection.cursor() as cursor:
        for statement in TABLES.split(";"):
            cursor.execute(statement)
        for table, rows in tables_of(sizes, seed).items():
            _insert(cursor, table, rows)
        cursor.execute(INDEXED)
        cursor.execute(f"ANALYZE TABLE {', '.join(TABLE_NAMES)}")
        cursor.fetchall()


def _insert(cursor: pymysql.cursors.Cursor, table: str, rows: Iterator[Row]) -> None:
    """Inserts these rows, except those that exist already."""
    while batch := list(islice(rows, BATCH)):
        marks = ", ".join(["%s"] * len(batch[0]))
        cursor.executemany(f"INSERT IGNORE INTO {table} VALUES ({marks})", batch)


TWITTER = MySqlServer
YCSB = sql_driver("mysql", connect_target, pymysql.Error, "ANALYZE TABLE")
