# SPDX-License-Identifier: Apache-2.0
"""Cassandra, by cassandra-driver."""

from __future__ import annotations

from typing import Any

from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import Cluster

from qjoule_studies.workload import Target

ANSWER_S = 60.0


def connect_cassandra(target: Target, own: str) -> tuple[Any, Any]:
    """A cluster, to be shut down, and its session, in the target's keyspace or in `own`.

    Raises:
        cassandra.cluster.NoHostAvailable, cassandra.DriverException: it does not answer.
    """
    cluster = Cluster(
        [target.host],
        port=target.port,
        auth_provider=PlainTextAuthProvider(target.user, target.password) if target.user else None,
        compression=False,
        protocol_version=5,
        connect_timeout=ANSWER_S,
        control_connection_timeout=ANSWER_S,
    )
    try:
        session = cluster.connect()
        session.default_timeout = ANSWER_S
        if not target.database:
            session.execute(
                f"CREATE KEYSPACE IF NOT EXISTS {own} WITH replication = "
                "{'class': 'SimpleStrategy', 'replication_factor': 1}"
            )
        session.set_keyspace(target.database or own)
    except BaseException:
        cluster.shutdown()
        raise
    return cluster, session
