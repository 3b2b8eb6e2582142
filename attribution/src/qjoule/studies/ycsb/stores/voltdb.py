# SPDX-License-Identifier: Apache-2.0
"""VoltDB: a partitioned table, its own procedures for rows, and one for each field's update."""

from __future__ import annotations

from collections.abc import Sequence

from qjoule.studies.servers.voltdb import Client, VoltError
from qjoule.studies.workload import Target
from qjoule.studies.ycsb.records import Record
from qjoule.studies.ycsb.store import MARK, TABLE

_READ, _SCAN, _UPDATE = f"{TABLE}_read", f"{TABLE}_scan", f"{TABLE}_update"
_INSERT = f"{TABLE.upper()}.insert"
#: No database has more fields in YCSB's options.
_MOST_FIELDS = 100


class VoltdbConnection:
    """A connection of its own."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def read(self, key: str) -> bool:
        return len(self._client.call(_READ, key)) == 1

    def update(self, key: str, field: int, value: str) -> bool:
        return self._client.call(f"{_UPDATE}{field}", value, key) == [[1]]

    def insert(self, key: str, values: Sequence[str]) -> bool:
        self._client.call(_INSERT, key, *values)
        return True

    def scan(self, key: str, count: int) -> bool:
        return len(self._client.call(_SCAN, key, count)) > 0

    def close(self) -> None:
        self._client.close()


class VoltdbStore:
    """VoltDB; it has no databases."""

    errors = (VoltError, OSError)

    def __init__(self, target: Target) -> None:
        self._target = target
        self._own = Client(target.port, target.host)
        self._own.call("@Ping")

    def connect(self, fields: int) -> VoltdbConnection:  # noqa: ARG002
        return VoltdbConnection(Client(self._target.port, self._target.host))

    def mark(self) -> str:
        try:
            rows = self._own.sql(f"SELECT mark FROM {MARK}")
            self._own.sql(f"SELECT ycsb_key FROM {TABLE} LIMIT 1")
        except VoltError:
            return ""
        return str(rows[0][0]) if len(rows) == 1 else ""

    def reset(self, fields: int, field_bytes: int) -> None:
        updates = [f"{_UPDATE}{field}" for field in range(_MOST_FIELDS)]
        gone = [f"DROP PROCEDURE {name} IF EXISTS;" for name in (_READ, _SCAN, *updates)]
        gone += [f"DROP TABLE {name} IF EXISTS;" for name in (MARK, TABLE)]
        self._own.sql("\n".join(gone))
        columns = "".join(f", field{field} VARCHAR({field_bytes})" for field in range(fields))
        of_key = f"PARTITION ON TABLE {TABLE} COLUMN ycsb_key"
        made = [
            f"CREATE TABLE {TABLE} "
            f"(ycsb_key VARCHAR(64) NOT NULL{columns}, PRIMARY KEY (ycsb_key));",
            f"PARTITION TABLE {TABLE} ON COLUMN ycsb_key;",
            f"CREATE PROCEDURE {_READ} {of_key} AS SELECT * FROM {TABLE} WHERE ycsb_key = ?;",
            f"CREATE PROCEDURE {_SCAN} AS SELECT * FROM {TABLE} WHERE ycsb_key >= ? "
            "ORDER BY ycsb_key LIMIT ?;",
        ]
        made += [
            f"CREATE PROCEDURE {_UPDATE}{field} {of_key} PARAMETER 1 AS "
            f"UPDATE {TABLE} SET field{field} = ? WHERE ycsb_key = ?;"
            for field in range(fields)
        ]
        self._own.sql("\n".join(made))

    def load(self, records: Sequence[Record]) -> None:
        for key, values in records:
            self._own.call(_INSERT, key, *values)

    def set_mark(self, mark: str) -> None:
        self._own.sql(f"CREATE TABLE {MARK} (mark VARCHAR(200));")
        self._own.call(f"{MARK.upper()}.insert", mark)

    def count(self) -> int:
        return int(self._own.sql(f"SELECT COUNT(*) FROM {TABLE}")[0][0])

    def remove(self, keys: Sequence[str]) -> None:
        for key in keys:
            self._own.call(f"{TABLE.upper()}.delete", key)

    def close(self) -> None:
        self._own.close()


STORE = VoltdbStore
