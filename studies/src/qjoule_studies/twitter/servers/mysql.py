# SPDX-License-Identifier: Apache-2.0
"""The pairs on MariaDB and MySQL."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pymysql

from qjoule_studies.servers.mysql import connect_target
from qjoule_studies.twitter.data import Row
from qjoule_studies.twitter.servers import DATABASE
from qjoule_studies.twitter.servers.sql import SqlServer
from qjoule_studies.twitter.sql_load import insert_mysql, load_mysql


class MySqlServer(SqlServer):
    """MariaDB and MySQL."""

    errors = (pymysql.Error,)

    def _load(self, seed: int) -> None:
        load_mysql(self._connection, self._sizes, seed)

    def _insert(self, table: str, rows: Iterator[Row]) -> None:
        insert_mysql(self._cursor, table, rows)

    def _connect(self) -> Any:
        return connect_target(self._target, DATABASE)


SERVER = MySqlServer
