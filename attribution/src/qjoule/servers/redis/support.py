# SPDX-License-Identifier: Apache-2.0
"""Redis, for shared code."""

from __future__ import annotations

from qjoule.servers.redis.identify import identify
from qjoule.servers.redis.resolve import resolve
from qjoule.servers.redis.rungs import blind_spots, choose_rung
from qjoule.servers.redis.settings import is_redis_server, settings
from qjoule.servers.support import ServerSupport

SUPPORT = ServerSupport(
    name="redis",
    flavours={"redis": "Redis"},
    executables="redis-server|redis-check-(rdb|aof)",
    identify=identify,
    serves=is_redis_server,
    settings=settings,
    resolve=resolve,
    choose_rung=choose_rung,
    blind_spots=blind_spots,
)
