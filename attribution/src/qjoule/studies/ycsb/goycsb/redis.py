# SPDX-License-Identifier: Apache-2.0
"""go-ycsb's driver of Redis."""

from __future__ import annotations

from collections.abc import Mapping

from qjoule.studies.workload import Target
from qjoule.studies.ycsb.goycsb.driver import Driver


def _properties(target: Target, threads: int) -> Mapping[str, object]:
    return {
        "redis.addr": f"{target.host}:{target.port}",
        "redis.pool_size": threads,
        "redis.datatype": "hash",
        "redis.username": target.user,
        "redis.password": target.password,
    }


DRIVER = Driver(
    "redis",
    _properties,
    scans=False,
    databases=frozenset({"0"}),
    other_database="go-ycsb is used with Redis's database 0 alone",
)
