# SPDX-License-Identifier: Apache-2.0
"""Redis from the distribution (`redis-server`)."""

from __future__ import annotations

import redis

from qjoule_studies.servers.redis import connect_redis, installed_redis, redis_in, redis_server

__all__ = ["command_stats", "connect_redis", "installed_redis", "redis_in", "redis_server"]


def command_stats(client: redis.Redis) -> dict[str, dict[str, float]]:
    """`INFO commandstats`: calls, usec, ... by command, such as `get` or `config|set`."""
    stats: dict[str, dict[str, float]] = client.info("commandstats")
    return {name.removeprefix("cmdstat_"): row for name, row in stats.items()}
