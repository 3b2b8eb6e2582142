# SPDX-License-Identifier: Apache-2.0
"""Asks a MySQL or MariaDB for the texts of its prepared statements:
performance_schema.prepared_statements_instances.

A statement's number counts within its session, and a session is known by its thread's number in the
operating system. So this serves servers with a thread per connection and the host's process ids
(`asked.check_process`).
MariaDB has the view only with `performance_schema = on`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from qjoule.contract import TEXT_BYTES
from qjoule.servers.mysql.asked import check_process, log_in
from qjoule.servers.mysql.unseen import KEY
from qjoule.servers.texts_by_id import Account, Text

#: The server keeps this many bytes of a text: COL_INFO_SIZE, storage/perfschema.
_KEPT_BYTES = 1024
_SELECT = (
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
        """By thread and number, as `KEY`."""
        wanted = ", ".join("({}, {})".format(*KEY.unpack(key)) for key in keys)
        found: dict[bytes, Text] = {}
        with self._connection.cursor() as cursor:
            check_process(cursor, self._process)
            cursor.execute(_SELECT.format(wanted))
            for thread, number, text in cursor.fetchall():
                cut = len(text) >= _KEPT_BYTES
                length = max(len(text), TEXT_BYTES + 1) if cut else len(text)
                found[KEY.pack(thread, number)] = Text(text, length)
        return found

    def close(self) -> None:
        self._connection.close()


def connect(account: Account, port: int) -> PreparedStatements:
    """Logs in. Raises the driver's exceptions."""
    return PreparedStatements(account, port)
