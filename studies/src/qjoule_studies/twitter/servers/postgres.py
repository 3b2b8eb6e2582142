# SPDX-License-Identifier: Apache-2.0
"""The pairs on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg

from qjoule_studies.servers.postgres import connect_target
from qjoule_studies.twitter.data import Row
from qjoule_studies.twitter.servers import DATABASE
from qjoule_studies.twitter.servers.sql import SqlServer
from qjoule_studies.twitter.sql_load import insert_postgres, load_postgres


class PostgresServer(SqlServer):
    """PostgreSQL."""

    errors = (psycopg.Error,)
    _schema = "current_schema()"

    def _load(self, seed: int) -> None:
        load_postgres(self._connection, self._sizes, seed)

    def _insert(self, table: str, rows: Iterator[Row]) -> None:
        insert_postgres(self._connection, table, rows)

    def _connect(self) -> Any:
        return connect_target(self._target, DATABASE)


SERVER = PostgresServer
