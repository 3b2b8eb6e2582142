# SPDX-License-Identifier: Apache-2.0
"""Redis, by redis-py."""

from __future__ import annotations

from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from qjoule_studies.workload import Target


def connect_redis(target: Target, **options: Any) -> Any:
    """A client of one connection, which has answered. Raises redis.RedisError, OSError."""
    client = redis.Redis(
        host=target.host,
        port=target.port,
        db=int(target.database) if target.database.isdigit() else 0,
        username=target.user or None,
        password=target.password or None,
        protocol=2,
        single_connection_client=True,
        retry=Retry(NoBackoff(), 0),  # failures must be counted, not hidden
        **options,
    )
    client.ping()
    return client
