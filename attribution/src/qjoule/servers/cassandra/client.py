# SPDX-License-Identifier: Apache-2.0
"""Asks a Cassandra for the texts of its prepared statements: system.prepared_statements.

A prepared statement's id is the MD5 of its keyspace, if it was prepared in one, and its text
(QueryProcessor.computeId()). So each answer can be checked; answers that do not match are dropped.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import Cluster, ExecutionProfile
from cassandra.policies import WhiteListRoundRobinPolicy

from qjoule.servers.client import Account, Text

_ANSWER_S = 3.0
_PROTOCOL = 4  #: since 2.2; fixed, so that nothing is negotiated
_SELECT = (
    "SELECT prepared_id, logged_keyspace, query_string FROM system.prepared_statements "
    "WHERE prepared_id IN ({})"
)


class PreparedStatements:
    """A `TextSource`."""

    def __init__(self, account: Account, port: int) -> None:
        self._cluster = Cluster(
            [account.host],
            port=port,
            auth_provider=PlainTextAuthProvider(account.user, account.password)
            if account.user
            else None,
            execution_profiles={
                "default": ExecutionProfile(
                    load_balancing_policy=WhiteListRoundRobinPolicy([account.host]),
                    request_timeout=_ANSWER_S,
                )
            },
            connect_timeout=_ANSWER_S,
            control_connection_timeout=_ANSWER_S,
            protocol_version=_PROTOCOL,
            executor_threads=1,
            compression=False,
            schema_metadata_enabled=False,
            token_metadata_enabled=False,
        )
        try:
            self._session = self._cluster.connect()
        except BaseException:
            self._cluster.shutdown()
            raise

    def texts(self, keys: Sequence[bytes]) -> Mapping[bytes, Text]:
        """`keys`: 16-byte ids of the statements."""
        literals = ", ".join(f"0x{key.hex()}" for key in keys)
        rows: Any = self._session.execute(_SELECT.format(literals))
        texts = {}
        for row in rows:
            key = bytes(row.prepared_id)
            if proven(key, row.logged_keyspace, row.query_string):
                text = row.query_string.encode()
                texts[key] = Text(text, len(text))
        return texts

    def close(self) -> None:
        self._cluster.shutdown()


def proven(key: bytes, keyspace: str | None, text: str) -> bool:
    """Returns true if the statement with this id has this text."""
    spellings = (text, f"{keyspace or ''}{text}")
    return any(hashlib.md5(spelling.encode()).digest() == key for spelling in spellings)
