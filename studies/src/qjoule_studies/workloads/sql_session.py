# SPDX-License-Identifier: Apache-2.0
"""Connections to PostgreSQL, MySQL and MariaDB by the ordinary drivers, in autocommit.

Raises `QjouleError` in one line where a driver is missing or a server refuses.

A session of PostgreSQL also has settings, plans, and what is kept of them between processes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from qjoule.api import QjouleError, UsageError
from qjoule_studies.workload import Outcome, Target, Value
from qjoule_studies.workloads.closed_loop import Loop, latencies
from qjoule_studies.workloads.plan_check import Plan, describe, launched, spilled_kb

DATABASE = "qjoule"  #: where workloads put their data if the target names no database
MYSQL = frozenset({"mariadb", "mysql"})
_TIMEOUT_S = 10


def driver(flavour: str) -> Any:
    """The module of a flavour's driver, after DB-API 2.0 (PEP 249)."""
    try:
        if flavour in MYSQL:
            import pymysql  # noqa: PLC0415

            return pymysql
        import psycopg  # noqa: PLC0415

        return psycopg
    except ImportError as error:
        raise QjouleError(
            f"the driver of {flavour} is missing: pip install 'qjoule-studies[bench]'"
        ) from error


def connect(target: Target, database: str | None = None, timeout_s: int | None = None) -> Any:
    """A connection to a database of the target, by default its own or `qjoule`.

    `timeout_s`: after it, a statement of MySQL or MariaDB has failed, and its connection with it.
    """
    name = target.database or DATABASE if database is None else database
    module = driver(target.flavour)
    try:
        if target.flavour in MYSQL:
            return module.connect(**_mysql_address(target, name), read_timeout=timeout_s)
        return module.connect(**_postgres_address(target, name))
    except (module.Error, OSError) as error:
        raise QjouleError(f"cannot connect to {target.flavour}: {one_line(error)}") from error


def ensure_database(target: Target) -> None:
    """Creates the database `qjoule` where the target names none."""
    if target.database:
        return
    with as_qjoule_error(target):
        if target.flavour in MYSQL:
            with closing(connect(target, "")) as connection:
                connection.cursor().execute(f"CREATE DATABASE IF NOT EXISTS {DATABASE}")
            return
        errors = driver(target.flavour).errors
        made_meanwhile = (errors.DuplicateDatabase, errors.UniqueViolation)
        with closing(connect(target, "postgres")) as connection, suppress(*made_meanwhile):
            databases = connection.execute("SELECT FROM pg_database WHERE datname = %s", [DATABASE])
            if not databases.rowcount:
                connection.execute(f"CREATE DATABASE {DATABASE}")


@contextmanager
def as_qjoule_error(target: Target) -> Iterator[None]:
    """Turns an error of the driver in this block into a `QjouleError` of one line."""
    module = driver(target.flavour)
    try:
        yield
    except module.Error as error:
        raise QjouleError(f"{target.flavour}: {one_line(error)}") from error


def one_line(error: BaseException) -> str:
    """The first line of a driver's message, at most 200 characters."""
    lines = str(error.args[-1] if error.args else error).splitlines()
    return (lines[0] if lines else type(error).__name__)[:200]


def outcome_of(loop: Loop, name: str, notes: Iterable[str | None]) -> Outcome:
    """The outcome of a closed loop. Raises `QjouleError` if one of its operations failed."""
    if loop.first_error is not None:
        raise QjouleError(f"{name}: {one_line(loop.first_error)}") from loop.first_error
    measured, noted = latencies(loop.latencies_ns), tuple(filter(None, notes))
    return Outcome(loop.operations, loop.errors, loop.wall_s, "qjoule", measured, noted)


def _postgres_address(target: Target, database: str) -> dict[str, Any]:
    address: dict[str, Any] = {"host": target.host, "port": target.port or 5432}
    if target.socket:
        socket = Path(target.socket)
        # libpq takes the directory; the port is the end of the socket's name.
        address["host"] = str(socket.parent)
        address["port"] = int(socket.suffix[1:] or 0) or target.port
    return {
        **address,
        "user": target.user or "postgres",
        "password": target.password or None,
        "dbname": database,
        "autocommit": True,
        "connect_timeout": _TIMEOUT_S,
        "application_name": "qjoule-bench",
    }


def _mysql_address(target: Target, database: str) -> dict[str, Any]:
    address: dict[str, Any] = (
        {"unix_socket": target.socket}
        if target.socket
        else {"host": target.host, "port": target.port or 3306}
    )
    return {
        **address,
        "user": target.user or "root",
        "password": target.password,
        "database": database or None,
        "autocommit": True,
        "connect_timeout": _TIMEOUT_S,
    }


_KEPT = "qjoule_kept.findings"


def session(target: Target, settings: Mapping[str, str]) -> Any:
    """A connection with these settings. Raises UsageError if the server has no such setting.

    Planner settings (`enable_...`) that an older server lacks are left out: it does not have the
    feature that they switch off.
    """
    connection = connect(target)
    with as_qjoule_error(target):
        names = {name for (name,) in connection.execute("SELECT name FROM pg_settings")}
    for name, value in settings.items():
        if name not in names and name.startswith("enable_"):
            continue
        try:
            connection.execute("SELECT set_config(%s, %s, false)", [name, value])
        except driver(target.flavour).Error as error:
            connection.close()
            raise UsageError(f"setting {name}: {one_line(error)}") from error
    return connection


def explain(connection: Any, statement: str) -> Plan:
    """The plan of a statement, which is not executed."""
    return _plan(connection.execute(f"EXPLAIN (FORMAT JSON) {statement}"))


def analyze(connection: Any, statement: str) -> Plan:
    """The plan of a statement with what happened when it was executed."""
    return _plan(connection.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}"))


def findings(plan: Plan) -> str:
    """For a run's notes: the plan, its workers and its temporary files, of `analyze`."""
    planned, started = launched(plan)
    summary = f"plan: {describe(plan)}; {started} of {planned} workers launched"
    if started < planned:
        summary += " (the server's max_worker_processes or max_parallel_workers allow no more)"
    spilled = spilled_kb(plan)
    return summary + (f"; {spilled:,} kB of temporary files written" if spilled else "")


def scarce_workers(connection: Any, workers: int, connections: int) -> str:
    """A note if the server cannot run all workers of all connections at once; else empty."""
    row = connection.execute(
        "SELECT least(current_setting('max_parallel_workers')::int, "
        "current_setting('max_worker_processes')::int)"
    ).fetchone()
    if workers * connections <= row[0]:
        return ""
    return (
        f"{connections} connections of {workers} workers each share the server's {row[0]}: "
        "not all run at all times"
    )


def store_finding(connection: Any, key: str, finding: object) -> None:
    """Stores a finding in the database, for the process that makes the run."""
    connection.execute("CREATE SCHEMA IF NOT EXISTS qjoule_kept")
    connection.execute(
        f"CREATE TABLE IF NOT EXISTS {_KEPT} (key text PRIMARY KEY, found text NOT NULL)"
    )
    connection.execute(
        f"INSERT INTO {_KEPT} VALUES (%s, %s) ON CONFLICT (key) DO UPDATE SET found = %s",
        [key, *[json.dumps(finding)] * 2],
    )


def stored_finding(connection: Any, key: str) -> Any:
    """What was stored under this key, or None."""
    if connection.execute("SELECT to_regclass(%s)", [_KEPT]).fetchone()[0] is None:
        return None
    row = connection.execute(f"SELECT found FROM {_KEPT} WHERE key = %s", [key]).fetchone()
    return None if row is None else json.loads(row[0])


def key_of(workload: str, options: Mapping[str, Value]) -> str:
    """A key for findings that is the same for equal options of a workload."""
    document = json.dumps([workload, sorted(options.items())])
    return f"{workload}-{hashlib.sha256(document.encode()).hexdigest()[:16]}"


def _plan(cursor: Any) -> Plan:
    plan: Plan = cursor.fetchone()[0][0]["Plan"]
    return plan
