# SPDX-License-Identifier: Apache-2.0
"""What a MySQL or MariaDB may be asked for: statements whose text tracing has not found, and the
programs of sessions that were open before.
"""

from __future__ import annotations

import struct

import numpy as np

from qjoule.contract import UNSEEN
from qjoule.servers.names_before import NamesBefore
from qjoule.servers.registry import dialect
from qjoule.servers.texts_by_id import TextsById

KEY = struct.Struct("=IQ")  #: the session's thread, and the statement's number in the session
_NUMBERS = 1 << 32


def key_of(text: bytes, thread: int) -> bytes | None:
    """What names the statement of a `struct qj_unseen`; None: it has no number."""
    if len(text) != UNSEEN.itemsize:
        return None
    statement = int(np.frombuffer(text, UNSEEN)[0]["statement"])
    return KEY.pack(thread, statement) if statement < _NUMBERS else None


TEXTS = TextsById(
    ids=dialect("unseen"),
    statements=dialect("mysql"),
    key=key_of,
    module="qjoule.servers.mysql.texts",
    driver="pymysql",
    view="performance_schema.prepared_statements_instances",
    by_thread=True,
)

NAMES = NamesBefore(
    module="qjoule.servers.mysql.connections",
    driver="pymysql",
    view="performance_schema.session_connect_attrs",
    by_thread=True,
)
