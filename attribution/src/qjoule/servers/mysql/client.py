# SPDX-License-Identifier: Apache-2.0
"""Asks a MySQL or MariaDB for texts of prepared statements and programs of sessions.

performance_schema.prepared_statements_instances has the texts, session_connect_attrs the programs;
in MariaDB only with `performance_schema = on`. A session is identified by its thread's number in
the operating system and its client's port; a statement's number counts within its session. So only
servers with a thread per connection and the host's process ids can be asked (`check_process`). The
user needs SELECT on performance_schema, and PROCESS to see the ports of others' sessions.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import pymysql

from qjoule.contract import TEXT_BYTES
from qjoule.errors import QjouleError
from qjoule.servers.client import (
    ANSWER_S,
    CONNECTIONS_MAX,
    Account,
    NamedConnection,
    Text,
    by_thread,
)
from qjoule.servers.mysql.wire import KEY

if TYPE_CHECKING:
    from pymysql.cursors import Cursor

_HAS_SCHEMA = "SELECT @@performance_schema"
#: The main thread's number is that of the process (clone(2), CLONE_THREAD).
_MAIN = "SELECT thread_os_id FROM performance_schema.threads WHERE name = 'thread/sql/main'"
#: Authentication methods that show the server the password, or (the old one) nearly do.
_SHOWING = ("mysql_clear_password", "dialog", "mysql_old_password")
_REFUSED = "the server wants the password itself, which it does not get"


class _RefusedMethod:
    """A handler of PyMySQL that refuses an authentication method."""

    def __init__(self, _connection: object) -> None: ...

    def authenticate(self, _packet: object) -> NoReturn:
        raise QjouleError(f"{_REFUSED} in clear")


class _Connection(pymysql.Connection):
    """Never encrypts the password with a key that came without TLS. PyMySQL reads the property
    before it asks for a key, and before it uses one (`_auth.py`)."""

    ctx: ssl.SSLContext

    @property
    def server_public_key(self) -> Any:
        raise QjouleError(f"{_REFUSED} without TLS")

    @server_public_key.setter
    def server_public_key(self, _key: Any) -> None: ...


def log_in(account: Account, port: int) -> pymysql.Connection[Cursor]:
    """Connects with time limits. Raises the driver's exceptions, and `QjouleError` if the server
    asks for the password in a way that reveals it."""
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
        auth_plugin_map=dict.fromkeys(_SHOWING, _RefusedMethod),
        defer_connect=True,
    )
    if not connection.ssl:  # since PyMySQL 1.2 it encrypts where possible
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        connection.ssl, connection.ctx = True, context
    connection.connect()
    return connection


def check_process(cursor: Cursor, process: int) -> None:
    """Checks that the server's thread numbers are those of the traced process.

    In a container they are the container's, and behind a forwarded port those of another server,
    which may by chance be numbers of traced threads.

    Raises:
        QjouleError: they differ, or the server does not show them.
    """
    cursor.execute(_HAS_SCHEMA)
    ((on,),) = cursor.fetchall()
    if not on:
        raise QjouleError("performance_schema is off")
    cursor.execute(_MAIN)
    processes = [number for (number,) in cursor.fetchall()]
    if processes != [process]:
        raise QjouleError(
            f"its process ids are a container's or another server's (it is {processes[0]} there, "
            f"{process} here)"
            if processes and processes[0]
            else "it does not tell its process id"
        )


_SELECT_NAMES = (
    "SELECT t.thread_os_id, l.host, cast(a.attr_value as binary) "
    "FROM performance_schema.session_connect_attrs a "
    "JOIN performance_schema.threads t ON t.processlist_id = a.processlist_id "
    "LEFT JOIN information_schema.processlist l ON l.id = a.processlist_id "
    "WHERE a.attr_name = 'program_name' AND t.thread_os_id IS NOT NULL "
    f"LIMIT {CONNECTIONS_MAX}"
)
_MAY_SEE_ALL = (
    "SELECT count(*) FROM information_schema.user_privileges WHERE privilege_type = 'PROCESS'"
)


class Connections:
    """A `NamesSource`."""

    def __init__(self, account: Account, port: int) -> None:
        self._process = account.process
        self._connection = log_in(account, port)
        self.unseen = ""

    def names(self) -> Iterator[NamedConnection]:
        with self._connection.cursor() as cursor:
            check_process(cursor, self._process)
            cursor.execute(_SELECT_NAMES)
            rows = cursor.fetchall()
            if any(host is None for _, host, _ in rows):  # also if its session has just ended
                self._note_privilege(cursor)
            for thread, host, name in rows:
                if host is not None:
                    key = by_thread(thread, port_of(host))
                    yield NamedConnection(key, "", (name or b"").decode("utf-8", "replace"))

    def _note_privilege(self, cursor: Cursor) -> None:
        cursor.execute(_MAY_SEE_ALL)
        ((count,),) = cursor.fetchall()
        if not count:
            self.unseen = "other users' sessions have no program_name: grant PROCESS to see them"

    def close(self) -> None:
        self._connection.close()


def port_of(host: str) -> int:
    """Returns the port of `name:port` or `address:port`; 0: a unix socket, which has none."""
    port = host.rpartition(":")[2]
    return int(port) if ":" in host and port.isdecimal() else 0


#: The server keeps this many bytes of a text: COL_INFO_SIZE, storage/perfschema.
_KEPT_BYTES = 1024
_SELECT_TEXTS = (
    "SELECT t.thread_os_id, p.statement_id, cast(p.sql_text as binary) "
    "FROM performance_schema.prepared_statements_instances p "
    "JOIN performance_schema.threads t ON t.thread_id = p.owner_thread_id "
    "WHERE (t.thread_os_id, p.statement_id) IN ({})"
)


class PreparedStatements:
    """A `TextSource`."""

    def __init__(self, account: Account, port: int) -> None:
        self._process = account.process
        self._connection = log_in(account, port)

    def texts(self, keys: Sequence[bytes]) -> Mapping[bytes, Text]:
        """`keys`: thread and number, packed as `KEY`."""
        wanted = ", ".join("({}, {})".format(*KEY.unpack(key)) for key in keys)
        texts: dict[bytes, Text] = {}
        with self._connection.cursor() as cursor:
            check_process(cursor, self._process)
            cursor.execute(_SELECT_TEXTS.format(wanted))
            for thread, number, text in cursor.fetchall():
                cut = len(text) >= _KEPT_BYTES
                length = max(len(text), TEXT_BYTES + 1) if cut else len(text)
                texts[KEY.pack(thread, number)] = Text(text, length)
        return texts

    def close(self) -> None:
        self._connection.close()
