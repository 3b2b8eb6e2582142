# SPDX-License-Identifier: Apache-2.0
"""go-ycsb's driver of Cassandra."""

from __future__ import annotations

from collections.abc import Mapping

from cassandra import DriverException, RequestExecutionException
from cassandra.cluster import NoHostAvailable

from qjoule_studies.servers.cassandra import connect_target
from qjoule_studies.workload import Target
from qjoule_studies.ycsb.goycsb.driver import DATABASE, TABLE, Driver


def _properties(target: Target, threads: int) -> Mapping[str, object]:
    return {
        "cassandra.cluster": f"{target.host}:{target.port}",
        "cassandra.keyspace": target.database or DATABASE,
        "cassandra.connections": threads,
        **({"cassandra.username": target.user} if target.user else {}),
        **({"cassandra.password": target.password} if target.password else {}),
    }


def _empty(target: Target) -> None:
    cluster, session = connect_target(target, DATABASE)
    try:
        session.execute(f"DROP TABLE IF EXISTS {TABLE}")
    finally:
        cluster.shutdown()


DRIVER = Driver(
    "cassandra",
    _properties,
    _empty,
    (DriverException, RequestExecutionException, NoHostAvailable),
    scans=False,
)
