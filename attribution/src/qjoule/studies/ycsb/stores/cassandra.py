# SPDX-License-Identifier: Apache-2.0
"""Cassandra: a row for each record; scans go by token, as YCSB's do.

The threads share a session, as the driver wants it: it has a connection for each host.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cassandra import DriverException, RequestExecutionException
from cassandra.cluster import NoHostAvailable
from cassandra.concurrent import execute_concurrent_with_args

from qjoule.studies.connect.cassandra import connect_cassandra
from qjoule.studies.workload import Target
from qjoule.studies.ycsb.records import Record
from qjoule.studies.ycsb.store import DATABASE, MARK, TABLE


class CassandraConnection:
    """Prepared statements of the common session."""

    def __init__(self, session: Any, fields: int) -> None:
        self._execute = session.execute
        self._read = session.prepare(f"SELECT * FROM {TABLE} WHERE ycsb_key = ?")
        self._updates = [
            session.prepare(f"UPDATE {TABLE} SET field{field} = ? WHERE ycsb_key = ?")
            for field in range(fields)
        ]
        self._insert = session.prepare(insert_statement(fields))
        self._scan = session.prepare(
            f"SELECT * FROM {TABLE} WHERE token(ycsb_key) >= token(?) LIMIT ?"
        )

    def read(self, key: str) -> bool:
        return self._execute(self._read, (key,)).one() is not None

    def update(self, key: str, field: int, value: str) -> bool:
        self._execute(self._updates[field], (value, key))
        return True

    def insert(self, key: str, values: Sequence[str]) -> bool:
        self._execute(self._insert, (key, *values))
        return True

    def scan(self, key: str, count: int) -> bool:
        return len(self._execute(self._scan, (key, count)).all()) > 0

    def close(self) -> None: ...


def insert_statement(fields: int) -> str:
    """With a placeholder for the key and each field."""
    columns = "".join(f", field{field}" for field in range(fields))
    return f"INSERT INTO {TABLE} (ycsb_key{columns}) VALUES (?{', ?' * fields})"


class CassandraStore:
    """Cassandra."""

    errors = (DriverException, RequestExecutionException, NoHostAvailable)

    def __init__(self, target: Target) -> None:
        self._keyspace = target.database or DATABASE
        self._cluster, self._session = connect_cassandra(target, DATABASE)

    def connect(self, fields: int) -> CassandraConnection:
        return CassandraConnection(self._session, fields)

    def mark(self) -> str:
        known = self._session.execute(
            "SELECT table_name FROM system_schema.tables WHERE keyspace_name = %s",
            (self._keyspace,),
        )
        if not {TABLE, MARK} <= {row.table_name for row in known}:
            return ""
        found = self._session.execute(f"SELECT mark FROM {MARK} WHERE id = 0").one()
        return str(found.mark) if found else ""

    def reset(self, fields: int, field_bytes: int) -> None:  # noqa: ARG002
        for table in (MARK, TABLE):
            self._session.execute(f"DROP TABLE IF EXISTS {table}")
        columns = "".join(f", field{field} varchar" for field in range(fields))
        self._session.execute(f"CREATE TABLE {TABLE} (ycsb_key varchar PRIMARY KEY{columns})")

    def load(self, records: Sequence[Record]) -> None:
        insert = self._session.prepare(insert_statement(len(records[0][1])))
        rows = [(key, *values) for key, values in records]
        execute_concurrent_with_args(self._session, insert, rows, concurrency=50)

    def set_mark(self, mark: str) -> None:
        self._session.execute(f"CREATE TABLE {MARK} (id int PRIMARY KEY, mark text)")
        self._session.execute(f"INSERT INTO {MARK} (id, mark) VALUES (0, %s)", (mark,))

    def count(self) -> int:
        return int(self._session.execute(f"SELECT COUNT(*) FROM {TABLE}").one()[0])

    def remove(self, keys: Sequence[str]) -> None:
        delete = self._session.prepare(f"DELETE FROM {TABLE} WHERE ycsb_key = ?")
        execute_concurrent_with_args(self._session, delete, [(key,) for key in keys])

    def close(self) -> None:
        self._cluster.shutdown()


STORE = CassandraStore
