# SPDX-License-Identifier: Apache-2.0
"""memcached, for shared code."""

from __future__ import annotations

from qjoule.servers.memcached.identify import identify
from qjoule.servers.memcached.resolve import resolve
from qjoule.servers.memcached.rungs import choose_rung
from qjoule.servers.memcached.settings import settings
from qjoule.servers.support import ServerSupport

SUPPORT = ServerSupport(
    name="memcached",
    flavours={"memcached": "memcached"},
    executables="memcached",
    identify=identify,
    settings=settings,
    resolve=resolve,
    choose_rung=choose_rung,
)
