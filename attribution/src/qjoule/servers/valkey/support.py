# SPDX-License-Identifier: Apache-2.0
"""Valkey, which speaks the protocol of Redis, for shared code."""

from __future__ import annotations

from qjoule.servers.redis.resolve import resolve
from qjoule.servers.redis.rungs import blind_spots, choose_rung
from qjoule.servers.support import ServerSupport
from qjoule.servers.valkey.identify import identify
from qjoule.servers.valkey.settings import is_valkey_server, settings

SUPPORT = ServerSupport(
    name="valkey",
    flavours={"valkey": "Valkey"},
    system="redis",
    executables="valkey-server|valkey-check-(rdb|aof)",
    identify=identify,
    serves=is_valkey_server,
    settings=settings,
    resolve=resolve,
    choose_rung=choose_rung,
    blind_spots=blind_spots,
)
