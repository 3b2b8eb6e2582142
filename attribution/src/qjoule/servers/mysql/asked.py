# SPDX-License-Identifier: Apache-2.0
"""How a MySQL or MariaDB is asked: a connection, and whether this server is the one traced."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any, NoReturn

import pymysql

from qjoule.errors import QjouleError
from qjoule.servers.names_before import ANSWER_S
from qjoule.servers.texts_by_id import Account

if TYPE_CHECKING:
    from pymysql.cursors import Cursor

_HAS_SCHEMA = "SELECT @@performance_schema"
#: The main thread's number is that of the process (clone(2), CLONE_THREAD).
_MAIN = "SELECT thread_os_id FROM performance_schema.threads WHERE name = 'thread/sql/main'"
#: Ways to log in by which the server learns the password, or (the old one) nearly does.
_SHOWING = ("mysql_clear_password", "dialog", "mysql_old_password")
_REFUSED = "the server wants the password itself, which it does not get"


class _Refusing:
    """A handler of PyMySQL for a way to log in."""

    def __init__(self, _connection: object) -> None: ...

    def authenticate(self, _packet: object) -> NoReturn:
        raise QjouleError(f"{_REFUSED} in clear")


class _Connection(pymysql.Connection):
    """Never encrypts the password with a key that came without TLS. PyMySQL reads the key before
    it asks for one, and before it uses one (`_auth.py`)."""

    ctx: ssl.SSLContext

    @property
    def server_public_key(self) -> Any:
        raise QjouleError(f"{_REFUSED} without TLS")

    @server_public_key.setter
    def server_public_key(self, _key: Any) -> None: ...


def log_in(account: Account, port: int) -> pymysql.Connection[Cursor]:
    """A connection whose answers come in time. Raises the driver's exceptions, and `QjouleError` if
    the server wants the password in a way that shows it."""
    connection = _Connection(
        host=account.host,
        port=port,
        user=account.user,
        password=account.password,
        connect_timeout=ANSWER_S,
        read_timeout=ANSWER_S,
        write_timeout=ANSWER_S,
        autocommit=True,
        charset="utf8mb4",
        auth_plugin_map=dict.fromkeys(_SHOWING, _Refusing),
        defer_connect=True,
    )
    if not connection.ssl:  # from PyMySQL 1.2 on it is the default to encrypt where possible
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        connection.ssl, connection.ctx = True, context
    connection.connect()
    return connection


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
