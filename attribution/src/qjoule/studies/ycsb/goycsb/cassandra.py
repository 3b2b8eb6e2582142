# SPDX-License-Identifier: Apache-2.0
"""go-ycsb's driver of Cassandra."""

from __future__ import annotations

from collections.abc import Mapping

from qjoule.studies.workload import Target
from qjoule.studies.ycsb.goycsb.driver import Driver
from qjoule.studies.ycsb.store import DATABASE


def _properties(target: Target, threads: int) -> Mapping[str, object]:
    return {
        "cassandra.cluster": f"{target.host}:{target.port}",
        "cassandra.keyspace": target.database or DATABASE,
        "cassandra.connections": threads,
        **({"cassandra.username": target.user} if target.user else {}),
        **({"cassandra.password": target.password} if target.password else {}),
    }


DRIVER = Driver("cassandra", _properties, scans=False)
