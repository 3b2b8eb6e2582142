# SPDX-License-Identifier: Apache-2.0
"""YCSB's table in SQL: a column for each field, as go-ycsb makes it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from qjoule.studies.workload import Target
from qjoule.studies.ycsb.store import MARK, TABLE


class SqlConnection:
    """On a driver whose placeholder is %s."""

    def __init__(self, connection: Any, fields: int) -> None:
        self._connection = connection
        self._cursor = connection.cursor()
        self._insert = f"INSERT INTO {TABLE} VALUES (%s{', %s' * fields})"
        self._updates = [
            f"UPDATE {TABLE} SET FIELD{field} = %s WHERE YCSB_KEY = %s" for field in range(fields)
        ]

    def read(self, key: str) -> bool:
        self._cursor.execute(f"SELECT * FROM {TABLE} WHERE YCSB_KEY = %s", (key,))
        return len(self._cursor.fetchall()) == 1

    def update(self, key: str, field: int, value: str) -> bool:
        self._cursor.execute(self._updates[field], (value, key))
        return bool(self._cursor.rowcount == 1)

    def insert(self, key: str, values: Sequence[str]) -> bool:
        self._cursor.execute(self._insert, (key, *values))
        return True

    def scan(self, key: str, count: int) -> bool:
        self._cursor.execute(
            f"SELECT * FROM {TABLE} WHERE YCSB_KEY >= %s ORDER BY YCSB_KEY LIMIT %s", (key, count)
        )
        return len(self._cursor.fetchall()) > 0

    def close(self) -> None:
        self._connection.close()


class SqlStore:
    """What all have in common; `_open` gives a connection in autocommit."""

    errors: tuple[type[Exception], ...] = ()
    analyze = ""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._own = self._open()

    def connect(self, fields: int) -> SqlConnection:
        return SqlConnection(self._open(), fields)

    def mark(self) -> str:
        try:
            rows = self._rows(f"SELECT mark FROM {MARK}")
            self._rows(f"SELECT YCSB_KEY FROM {TABLE} LIMIT 1")
        except self.errors:
            return ""
        return str(rows[0][0]) if len(rows) == 1 else ""

    def reset(self, fields: int, field_bytes: int) -> None:
        self._do(f"DROP TABLE IF EXISTS {MARK}", f"DROP TABLE IF EXISTS {TABLE}")
        columns = "".join(f", FIELD{field} VARCHAR({field_bytes})" for field in range(fields))
        if field_bytes * fields > self.longest_row:
            columns = "".join(f", FIELD{field} TEXT" for field in range(fields))
        self._do(f"CREATE TABLE {TABLE} (YCSB_KEY VARCHAR(64) PRIMARY KEY{columns})")

    longest_row = 10_000  #: a row has 65,535 bytes at most, of up to four for each character

    def set_mark(self, mark: str) -> None:
        self._do(self.analyze, f"CREATE TABLE {MARK} (mark VARCHAR(200))")
        with self._own.cursor() as cursor:
            cursor.execute(f"INSERT INTO {MARK} VALUES (%s)", (mark,))

    def count(self) -> int:
        return int(self._rows(f"SELECT COUNT(*) FROM {TABLE}")[0][0])

    def remove(self, keys: Sequence[str]) -> None:
        with self._own.cursor() as cursor:
            marks = ", ".join(["%s"] * len(keys))
            cursor.execute(f"DELETE FROM {TABLE} WHERE YCSB_KEY IN ({marks})", tuple(keys))

    def close(self) -> None:
        self._own.close()

    def _open(self) -> Any:
        raise NotImplementedError

    def _do(self, *statements: str) -> None:
        with self._own.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def _rows(self, statement: str) -> Sequence[Any]:
        with self._own.cursor() as cursor:
            cursor.execute(statement)
            rows: Sequence[Any] = cursor.fetchall()
            return rows
