# SPDX-License-Identifier: Apache-2.0
"""MySQL and MariaDB, for shared code."""

from __future__ import annotations

from qjoule.servers.choice import rung_by_connection
from qjoule.servers.mysql.identify import identify
from qjoule.servers.mysql.resolve import FACTS, boundary_cost_ns, resolve
from qjoule.servers.mysql.settings import settings
from qjoule.servers.support import ServerSupport
from qjoule.servers.types import Server

_X_PROTOCOL_PORT = 33060  # MySQL manual, "X Plugin Options and System Variables"


def _blind_spots(server: Server) -> tuple[str, ...]:
    if server.flavour == "mysql" and _X_PROTOCOL_PORT in server.ports:
        return (f"sessions of the X Protocol (port {_X_PROTOCOL_PORT}) count as server background",)
    return ()


SUPPORT = ServerSupport(
    name="mysql",
    flavours={"mariadb": "MariaDB", "mysql": "MySQL"},
    executables="mariadbd|mysqld",
    installed=(
        "usr/sbin/mariadbd",
        "usr/sbin/mysqld",
        "usr/libexec/mariadbd",
        "usr/libexec/mysqld",
    ),
    identify=identify,
    settings=settings,
    resolve=resolve,
    resolved=FACTS,
    choose_rung=rung_by_connection,
    boundary_cost_ns=boundary_cost_ns,
    blind_spots=_blind_spots,
)
