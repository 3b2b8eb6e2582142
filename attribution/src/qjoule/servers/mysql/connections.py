# SPDX-License-Identifier: Apache-2.0
"""Asks a MySQL or MariaDB which programs its clients are: performance_schema.session_connect_attrs.

A session is known by its thread's number in the operating system and its client's port. So this
serves servers with a thread per connection and the host's process ids (`asked.check_process`). The
user needs SELECT on performance_schema, and PROCESS to see the ports of others' sessions. MariaDB
has the attributes only with `performance_schema = on`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from qjoule.servers.mysql.asked import check_process, log_in
from qjoule.servers.names_before import CONNECTIONS_MAX, Told, by_thread
from qjoule.servers.texts_by_id import Account

if TYPE_CHECKING:
    from pymysql.cursors import Cursor

_SELECT = (
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

    def names(self) -> Iterator[Told]:
        with self._connection.cursor() as cursor:
            check_process(cursor, self._process)
            cursor.execute(_SELECT)
            found = cursor.fetchall()
            if any(host is None for _, host, _ in found):  # or its session has just ended
                self._note_privilege(cursor)
            for thread, host, name in found:
                if host is not None:
                    key = by_thread(thread, port_of(host))
                    yield Told(key, "", (name or b"").decode("utf-8", "replace"))

    def _note_privilege(self, cursor: Cursor) -> None:
        cursor.execute(_MAY_SEE_ALL)
        ((count,),) = cursor.fetchall()
        if not count:
            self.unseen = "other users' sessions have no program_name: grant PROCESS to see them"

    def close(self) -> None:
        self._connection.close()


def port_of(host: str) -> int:
    """Of `name:port` or `address:port`; 0: a unix socket, which has none."""
    port = host.rpartition(":")[2]
    return int(port) if ":" in host and port.isdecimal() else 0


def connect(account: Account, port: int) -> Connections:
    """Logs in. Raises the driver's exceptions."""
    return Connections(account, port)
