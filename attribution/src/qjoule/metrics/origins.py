# SPDX-License-Identifier: Apache-2.0
"""Who a connection comes from, so that nobody takes the share of others.

Beyond this machine it is an address; of IPv6 the first 64 bits, because a host may choose the rest.
On loopback all addresses are anybody's, so it is the user who made the client's socket.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable

_NETWORK_BITS = 64
#: The user of the client's socket, by its own end and the other, as "address port"; None: unknown.
UserOf = Callable[[str, str], int | None]


def _unknown(_client: str, _server: str) -> int | None:
    return None


class Origins:
    """Finds the origin of connections. All unknown users of loopback are one."""

    def __init__(self, user_of: UserOf = _unknown) -> None:
        self._user_of = user_of

    def of(self, connection: socket.socket) -> str:
        """Raises `OSError`: it is not connected any more."""
        there, its_port = _end(connection.getpeername())
        if there.is_loopback:
            here, port = _end(connection.getsockname())
            user = self._user_of(f"{there} {its_port}", f"{here} {port}")
            return "loopback" if user is None else f"user {user}"
        if there.version == 6:
            return str(ipaddress.ip_network((there, _NETWORK_BITS), strict=False))
        return str(there)


def _end(address: tuple[str, int]) -> tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, int]:
    found = ipaddress.ip_address(address[0].partition("%")[0])
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return mapped or found, address[1]
