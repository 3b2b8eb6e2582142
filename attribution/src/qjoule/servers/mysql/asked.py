# SPDX-License-Identifier: Apache-2.0
"""How a MySQL or MariaDB is asked: a connection, and whether this server is the one traced."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pymysql

from qjoule.errors import QjouleError
from qjoule.servers.names_before import ANSWER_S
from qjoule.servers.texts_by_id import Account

if TYPE_CHECKING:
    from pymysql.cursors import Cursor

_HAS_SCHEMA = "SELECT @@performance_schema"
#: The main thread's number is that of the process (clone(2), CLONE_THREAD).
_MAIN = "SELECT thread_os_id FROM performance_schema.threads WHERE name = 'thread/sql/main'"


def log_in(account: Account, port: int) -> pymysql.Connection[Cursor]:
    """A connection whose answers come in time. Raises the driver's exceptions."""
    return pymysql.connect(
        host=account.host,
        port=port,
        user=account.user,
        password=account.password,
        connect_timeout=ANSWER_S,
        read_timeout=ANSWER_S,
        write_timeout=ANSWER_S,
        autocommit=True,
        charset="utf8mb4",
    )


def check_process(cursor: Cursor, process: int) -> None:
    """The server's thread numbers are those of the traced process.

    In a container they are the container's, and behind a forwarded port those of another server. A
    thread there may by chance have the number of one that is traced.

    Raises:
        QjouleError: they are not, or the server cannot say.
    """
    cursor.execute(_HAS_SCHEMA)
    ((on,),) = cursor.fetchall()
    if not on:
        raise QjouleError("performance_schema is off")
    cursor.execute(_MAIN)
    found = [number for (number,) in cursor.fetchall()]
    if found != [process]:
        raise QjouleError(
            f"its process ids are a container's or another server's (it is {found[0]} there, "
            f"{process} here)"
            if found and found[0]
            else "it does not tell its process id"
        )
