# SPDX-License-Identifier: Apache-2.0
"""go-ycsb's driver of Redis."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing

import redis

from qjoule_studies.servers.redis import connect_target
from qjoule_studies.workload import Target
from qjoule_studies.ycsb.goycsb.driver import TABLE, Driver


def _properties(target: Target, threads: int) -> Mapping[str, object]:
    return {
        "redis.addr": f"{target.host}:{target.port}",
        "redis.pool_size": threads,
        "redis.datatype": "hash",
        "redis.username": target.user,
        "redis.password": target.password,
    }


def _empty(target: Target) -> None:
    """Removes our keys alone: go-ycsb's own `dropdata` empties the whole database."""
    with closing(connect_target(target)) as client:
        for key in client.scan_iter(f"{TABLE}/*", count=1_000):
            client.unlink(key)


DRIVER = Driver(
    "redis",
    _properties,
    _empty,
    (redis.RedisError,),
    scans=False,
    databases=frozenset({"0"}),
    other_database="go-ycsb is used with Redis's database 0 alone",
)
