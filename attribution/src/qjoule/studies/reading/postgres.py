# SPDX-License-Identifier: Apache-2.0
"""Read-only sessions of PostgreSQL."""

from __future__ import annotations

from contextlib import suppress

from qjoule.errors import QjouleError
from qjoule.studies.reading.session import only
from qjoule.studies.workload import Target

DIALECT = "postgres"
_NAMES = """
nextval setval lastval pg_sleep pg_sleep_for pg_sleep_until set_config lo_import lo_export lo_create
lo_unlink lo_put lo_from_bytea dblink dblink_exec query_to_xml cursor_to_xml database_to_xml
table_to_xml schema_to_xml pg_notify pg_read_file pg_read_binary_file pg_ls_dir
"""
FUNCTIONS = frozenset(_NAMES.split())
PREFIXES: tuple[str, ...] = (
    *("pg_advisory", "pg_try_advisory", "pg_terminate", "pg_cancel", "pg_reload", "pg_rotate"),
    *("pg_switch", "pg_create", "pg_drop", "pg_logical", "pg_replication"),
)


class ReadOnly:
    def __init__(self, target: Target, statement_s: float) -> None:
        import psycopg  # noqa: PLC0415 (not every server needs it)

        from qjoule.studies.connect.postgres import connect_postgres  # noqa: PLC0415

        self._failed = (psycopg.Error,)
        try:
            self._connection = connect_postgres(target, target.database)
            self._connection.execute(f"SET statement_timeout = {round(statement_s * 1000)}")
            self._connection.execute("SET default_transaction_read_only = on")
        except psycopg.Error as error:
            raise QjouleError(f"the server refuses a read-only session: {error}") from error

    def ask(self, sql: str) -> bool:
        """In autocommit every statement is a transaction of its own, which is read-only."""
        try:
            cursor = self._connection.execute(sql.encode())
            cursor.fetchall()
        except self._failed:
            return False
        return True

    def asked(self) -> int:
        row = self._connection.execute(
            "SELECT sum(xact_commit + xact_rollback)::bigint FROM pg_stat_database"
        ).fetchone()
        return int(only(row))

    def close(self) -> None:
        with suppress(*self._failed):
            self._connection.close()
