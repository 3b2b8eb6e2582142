# SPDX-License-Identifier: Apache-2.0
"""The operations of the workload `load`: point reads, updates and short ranges, on SQL and Redis.

A client has one connection. Every server gets the same rows: an id from 1, a counter, and a payload
of 100 bytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from qjoule.api import QjouleError
from qjoule_studies.workload import Target
from qjoule_studies.workloads.open_loop import Gone
from qjoule_studies.workloads.sql_session import (
    MYSQL,
    as_qjoule_error,
    connect,
    ensure_database,
    one_line,
)

FLAVOURS = frozenset({"postgres", "redis"}) | MYSQL
RANGE_ROWS = 100
#: After this time an operation has failed: the server hangs.
TIMEOUT_S = 30
_PEAKS = "qjoule_load_peaks"
_AT_ONCE = 5_000


class Client(Protocol):
    """One connection. Operations raise what the driver raises, or `Gone`."""

    def fill(self, rows: int) -> None:
        """Creates this many rows; quick if they exist."""

    def read(self, key: int) -> None: ...

    def update(self, key: int) -> None: ...

    def range(self, key: int) -> None:
        """Reads `RANGE_ROWS` rows from this one on."""

    def remember(self, key: str, finding: object) -> None:
        """Stores a finding in the server, for the process that makes the run."""

    def recall(self, key: str) -> Any:
        """What was stored under this key, or None."""

    def close(self) -> None: ...


def open_client(target: Target, rows: int) -> Client:
    """A client of the target. Raises QjouleError if the server or its driver is not there."""
    if target.flavour == "redis":
        return _Redis(target, rows)
    return _Sql(target, rows)


def prepare_database(target: Target) -> None:
    """Creates the database that clients use, where the server has databases."""
    if target.flavour != "redis":
        ensure_database(target)


def _payload(key: int) -> str:
    return f"{key:010}" * 10


class _Sql:
    """PostgreSQL, MySQL and MariaDB. The rows are a table of their own for each number of rows."""

    def __init__(self, target: Target, rows: int) -> None:
        self._target = target
        self._table = f"qjoule_load_{rows}"
        self._mysql = target.flavour in MYSQL
        self._connection = connect(target, timeout_s=TIMEOUT_S)
        self._read = f"SELECT payload FROM {self._table} WHERE id = %s"
        self._update = f"UPDATE {self._table} SET counter = counter + 1 WHERE id = %s"
        self._range = (
            f"SELECT sum(counter), max(payload) FROM {self._table} WHERE id BETWEEN %s AND %s"
        )
        with as_qjoule_error(target):
            self._cursor = self._connection.cursor()
            if not self._mysql:
                self._execute(
                    "SELECT set_config('statement_timeout', %s, false)", [f"{TIMEOUT_S}s"]
                )

    def fill(self, rows: int) -> None:
        with as_qjoule_error(self._target):
            self._execute(
                f"CREATE TABLE IF NOT EXISTS {self._table} (id int PRIMARY KEY, "
                "counter bigint NOT NULL, payload varchar(100) NOT NULL)"
            )
            if self._execute(f"SELECT count(*) FROM {self._table}")[0][0] == rows:
                return
            self._execute(f"DELETE FROM {self._table}")
            for first in range(1, rows + 1, _AT_ONCE):
                keys = range(first, min(first + _AT_ONCE, rows + 1))
                self._cursor.executemany(
                    f"INSERT INTO {self._table} (id, counter, payload) VALUES (%s, %s, %s)",
                    [(key, 0, _payload(key)) for key in keys],
                )
            self._execute(f"ANALYZE {'TABLE ' if self._mysql else ''}{self._table}")

    def read(self, key: int) -> None:
        self._operate(self._read, (key,))

    def update(self, key: int) -> None:
        self._operate(self._update, (key,))

    def range(self, key: int) -> None:
        self._operate(self._range, (key, key + RANGE_ROWS - 1))

    def remember(self, key: str, finding: object) -> None:
        with as_qjoule_error(self._target):
            self._execute(
                f"CREATE TABLE IF NOT EXISTS {_PEAKS} "
                "(name varchar(190) PRIMARY KEY, found text NOT NULL)"
            )
            self._execute(f"DELETE FROM {_PEAKS} WHERE name = %s", (key,))
            self._execute(f"INSERT INTO {_PEAKS} VALUES (%s, %s)", (key, json.dumps(finding)))

    def recall(self, key: str) -> Any:
        tables = "SELECT count(*) FROM information_schema.tables WHERE table_name = %s"
        schema = "table_schema = " + ("database()" if self._mysql else "current_schema()")
        with as_qjoule_error(self._target):
            if not self._execute(f"{tables} AND {schema}", (_PEAKS,))[0][0]:
                return None
            rows = self._execute(f"SELECT found FROM {_PEAKS} WHERE name = %s", (key,))
        return json.loads(rows[0][0]) if rows else None

    def close(self) -> None:
        self._connection.close()

    def _operate(self, statement: str, parameters: Sequence[object]) -> None:
        try:
            self._execute(statement, parameters)
        except Exception as error:
            open_still = self._connection.open if self._mysql else not self._connection.broken
            if open_still:
                raise
            raise Gone(f"{self._target.flavour} has gone: {one_line(error)}") from error

    def _execute(self, statement: str, parameters: Sequence[object] | None = None) -> Any:
        self._cursor.execute(statement, parameters)
        return self._cursor.fetchall() if self._cursor.description else []


class _Redis:
    """Keys `qjoule:load:ROWS:ID` with the payload."""

    def __init__(self, target: Target, rows: int) -> None:
        try:
            import redis  # noqa: PLC0415
        except ImportError as error:
            raise QjouleError(
                "the driver of redis is missing: pip install 'qjoule-studies[bench]'"
            ) from error
        self._module = redis
        self._prefix = f"qjoule:load:{rows}:"
        where: dict[str, Any] = (
            {"unix_socket_path": target.socket}
            if target.socket
            else {"host": target.host, "port": target.port or 6379}
        )
        self._client = redis.Redis(
            **where,
            username=target.user or None,
            password=target.password or None,
            db=_redis_database(target),
            single_connection_client=False,
            socket_timeout=TIMEOUT_S,
            decode_responses=True,
        )
        self._send: Callable[..., Any] = self._client.execute_command
        try:
            self._client.ping()
        except redis.RedisError as error:
            raise QjouleError(f"cannot connect to redis: {one_line(error)}") from error

    def fill(self, rows: int) -> None:
        complete = f"{self._prefix}complete"
        try:
            if self._client.exists(complete):
                return
            for first in range(1, rows + 1, _AT_ONCE):
                keys = range(first, min(first + _AT_ONCE, rows + 1))
                self._client.mset({f"{self._prefix}{key}": _payload(key) for key in keys})
            self._client.set(complete, "1")
        except self._module.RedisError as error:
            raise QjouleError(f"redis: {one_line(error)}") from error

    def read(self, key: int) -> None:
        self._operate("GET", f"{self._prefix}{key}")

    def update(self, key: int) -> None:
        self._operate("SET", f"{self._prefix}{key}", _payload(key))

    def range(self, key: int) -> None:
        self._operate("MGET", *(f"{self._prefix}{key + place}" for place in range(RANGE_ROWS)))

    def remember(self, key: str, finding: object) -> None:
        self._client.hset(_PEAKS, key, json.dumps(finding))

    def recall(self, key: str) -> Any:
        text = self._client.hget(_PEAKS, key)
        return None if text is None else json.loads(text)

    def close(self) -> None:
        self._client.close()

    def _operate(self, *command: str) -> None:
        try:
            self._send(*command)
        except (self._module.ConnectionError, self._module.TimeoutError) as error:
            raise Gone(f"redis has gone: {one_line(error)}") from error


def _redis_database(target: Target) -> int:
    if not target.database.isdigit() and target.database:
        raise QjouleError(f"redis' databases are numbers, not {target.database[:40]!r}")
    return int(target.database or 0)
