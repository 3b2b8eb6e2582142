# SPDX-License-Identifier: Apache-2.0
"""Asks a Cassandra for the texts of its prepared statements: system.prepared_statements.

A prepared statement's id is the MD5 of its keyspace, if it was prepared in one, and its text
(QueryProcessor.computeId()). So each answer is proven, and one that is not is left out.
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
_PROTOCOL = 4  #: from 2.2 on: nothing is negotiated
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
        """By the ids of the statements, of 16 bytes each."""
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
    """Whether this is the text of the statement with this id."""
    spellings = (text, f"{keyspace or ''}{text}")
    return any(hashlib.md5(spelling.encode()).digest() == key for spelling in spellings)
