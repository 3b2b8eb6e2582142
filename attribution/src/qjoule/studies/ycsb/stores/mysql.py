# SPDX-License-Identifier: Apache-2.0
"""YCSB's table on MariaDB and MySQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pymysql

from qjoule.studies.connect.mysql import connect_mysql
from qjoule.studies.ycsb.records import Record
from qjoule.studies.ycsb.store import DATABASE, TABLE
from qjoule.studies.ycsb.stores.sql import SqlStore


class MySqlStore(SqlStore):
    """MariaDB and MySQL."""

    errors = (pymysql.Error, pymysql.err.InterfaceError)
    analyze = f"ANALYZE TABLE {TABLE}"

    def load(self, records: Sequence[Record]) -> None:
        marks = ", ".join(["%s"] * (1 + len(records[0][1])))
        rows = [(key, *values) for key, values in records]
        with self._own.cursor() as cursor:
            cursor.executemany(f"INSERT INTO {TABLE} VALUES ({marks})", rows)

    def _open(self) -> Any:
        return connect_mysql(self._target, DATABASE)


STORE = MySqlStore
