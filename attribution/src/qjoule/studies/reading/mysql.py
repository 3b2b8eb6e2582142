# SPDX-License-Identifier: Apache-2.0
"""Read-only sessions of MariaDB and MySQL."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from qjoule.errors import QjouleError
from qjoule.studies.reading.session import only
from qjoule.studies.workload import Target

DIALECT = "mysql"
_NAMES = """
nextval setval lastval sleep benchmark get_lock release_lock release_all_locks load_file sys_exec
sys_eval
"""
FUNCTIONS = frozenset(_NAMES.split())
PREFIXES: tuple[str, ...] = ()


class ReadOnly:
    def __init__(self, target: Target, statement_s: float) -> None:
        import pymysql  # noqa: PLC0415 (not every server needs it)

        from qjoule.studies.connect.mysql import connect_mysql  # noqa: PLC0415

        self._failed = (pymysql.Error,)
        try:
            self._connection = connect_mysql(target, target.database)
            with self._connection.cursor() as cursor:
                cursor.execute("SELECT VERSION()")
                mariadb = "mariadb" in str(only(cursor.fetchone())).lower()
                limit = (
                    f"max_statement_time = {statement_s:f}"
                    if mariadb
                    else f"max_execution_time = {round(statement_s * 1000)}"
                )
                cursor.execute(f"SET SESSION {limit}")
                # In autocommit every statement is a transaction of its own: no snapshot is held.
                cursor.execute("SET SESSION TRANSACTION READ ONLY")
        except pymysql.Error as error:
            raise QjouleError(f"the server refuses a read-only session: {error}") from error

    def ask(self, sql: str) -> bool:
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(sql)
                cursor.fetchall()
        except self._failed:
            return False
        return True

    def asked(self) -> int:
        with self._connection.cursor() as cursor:
            cursor.execute("SHOW GLOBAL STATUS LIKE 'Questions'")
            row: Any = cursor.fetchone()
        return int(row[1])

    def close(self) -> None:
        with suppress(*self._failed):
            self._connection.close()
