# SPDX-License-Identifier: Apache-2.0
"""Connections to PostgreSQL, MySQL and MariaDB by the ordinary drivers, in autocommit.

Raises `QjouleError` in one line where a driver is missing or a server refuses.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from qjoule.api import QjouleError
from qjoule_studies.workload import Target

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
    with said_by_server(target):
        if target.flavour in MYSQL:
            with closing(connect(target, "")) as connection:
                connection.cursor().execute(f"CREATE DATABASE IF NOT EXISTS {DATABASE}")
            return
        errors = driver(target.flavour).errors
        made_meanwhile = (errors.DuplicateDatabase, errors.UniqueViolation)
        with closing(connect(target, "postgres")) as connection, suppress(*made_meanwhile):
            found = connection.execute("SELECT FROM pg_database WHERE datname = %s", [DATABASE])
            if not found.rowcount:
                connection.execute(f"CREATE DATABASE {DATABASE}")


@contextmanager
def said_by_server(target: Target) -> Iterator[None]:
    """Turns what a driver raises in this block into a `QjouleError` of one line."""
    module = driver(target.flavour)
    try:
        yield
    except module.Error as error:
        raise QjouleError(f"{target.flavour}: {one_line(error)}") from error


def one_line(error: BaseException) -> str:
    """The first line of what a driver says, bounded."""
    lines = str(error.args[-1] if error.args else error).splitlines()
    return (lines[0] if lines else type(error).__name__)[:200]


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
