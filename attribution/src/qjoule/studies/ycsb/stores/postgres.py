# SPDX-License-Identifier: Apache-2.0
"""YCSB's table on PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg

from qjoule.studies.connect.postgres import connect_postgres
from qjoule.studies.ycsb.records import Record
from qjoule.studies.ycsb.store import DATABASE, TABLE
from qjoule.studies.ycsb.stores.sql import SqlStore


class PostgresStore(SqlStore):
    """PostgreSQL."""

    errors = (psycopg.Error,)
    analyze = f"VACUUM ANALYZE {TABLE}"

    def load(self, records: Sequence[Record]) -> None:
        with self._own.cursor() as cursor, cursor.copy(f"COPY {TABLE} FROM STDIN") as copy:
            for key, values in records:
                copy.write_row((key, *values))

    def _open(self) -> Any:
        return connect_postgres(self._target, DATABASE)


STORE = PostgresStore
