# SPDX-License-Identifier: Apache-2.0
"""What the numbers in a ring stand for: connections and tags, as the process defined them."""

from __future__ import annotations

import ipaddress
import json
from collections import deque
from dataclasses import dataclass
from typing import Any

MAX_BYTES = 8192
MAX_TAGS = 32
MAX_KEY = 64
MAX_VALUE = 256
#: Definitions of one kind that are remembered of a process, and bytes of all, as they came. One
#: that has more is let go of, meets us again, and defines anew what it still uses.
MAX_DEFINITIONS = 65536
MAX_KEPT_BYTES = 16 << 20
MAX_FRESH = 8192

Tags = tuple[tuple[str, str], ...]  #: sorted by key
NO_TAGS: tuple[Tags, int] = (), 0


@dataclass(frozen=True)
class Connection:
    """How a connection is recognised at the server's end; what is not known is None."""

    system: str  #: `db.system.name` of OpenTelemetry's conventions
    client: str | None = None  #: "address port" of TCP, "unix inode" of a Unix socket
    server: str | None = None  #: "address port", or a path


class Definitions:
    """Of one process. Takes messages of any content; what makes no sense is counted."""

    def __init__(self) -> None:
        self._connections: dict[int, tuple[Connection, int]] = {}
        #: Connections that were defined since somebody last looked, who empties it.
        self.fresh: deque[Connection] = deque(maxlen=MAX_FRESH)
        self._tags: dict[int, tuple[Tags, int]] = {}
        self.bytes = 0  #: of those that are remembered, as they came
        self.refused = 0
        self.is_full = False  #: no more should be added

    def add(self, message: bytes) -> tuple[int, Connection] | None:
        """Takes in one message; returns the connection that it defines, with its number, if any."""
        try:
            if len(message) > MAX_BYTES:
                raise ValueError
            said = json.loads(message.decode("utf-8"))
            if "tags" in said:
                value = _tags(said["of"]), len(message)
                self._remember(self._tags, _number(said["tags"]), value)
            elif "connection" in said:
                one = _connection(said["of"])
                number = _number(said["connection"])
                if number in self._connections:  # what was found out about it would be of another
                    raise ValueError
                self._remember(self._connections, number, (one, len(message)))
                self.fresh.append(one)
                return number, one
            else:
                raise ValueError
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            self.refused += 1
        return None

    def connection(self, number: int) -> Connection | None:
        """None if it was not defined."""
        known = self._connections.get(number)
        return known[0] if known is not None else None

    def tags(self, number: int) -> Tags | None:
        """None if they were not defined; 0 stands for none."""
        known = self._tags.get(number) if number else NO_TAGS
        return known[0] if known is not None else None

    def _remember(self, known: dict[int, Any], number: int, value: tuple[object, int]) -> None:
        self.bytes += value[1] - known.get(number, NO_TAGS)[1]
        known[number] = value
        self.is_full |= len(known) >= MAX_DEFINITIONS or self.bytes >= MAX_KEPT_BYTES


def characters(tags: Tags) -> int:
    """About what tags take to be remembered; each pair counts as 100 more."""
    return sum(100 + len(key) + len(value) for key, value in tags)


def _number(value: object) -> int:
    if type(value) is not int or not 0 < value < (1 << 32) - 1:
        raise ValueError
    return value


def _tags(of: dict[object, object]) -> Tags:
    found: dict[str, str] = {}
    for key, value in of.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise ValueError
        if not 0 < len(key) <= MAX_KEY or len(value) > MAX_VALUE or len(found) >= MAX_TAGS:
            raise ValueError
        key.encode("utf-8")
        found[key] = value.encode("utf-8", "replace").decode("utf-8")
    return tuple(sorted(found.items()))


def _connection(of: dict[str, object]) -> Connection:
    system = of["db.system.name"]
    if not isinstance(system, str) or len(system) > MAX_KEY:
        raise ValueError
    system.encode("utf-8")
    return Connection(system, *_ends(of))


def _ends(of: dict[str, object]) -> tuple[str | None, str | None]:
    if of.get("network.transport") == "unix":
        inode, path = of.get("client.inode"), of.get("server.address")
        client = f"unix {inode}" if type(inode) is int and 0 < inode < 1 << 64 else None
        return client, path if isinstance(path, str) and len(path) <= 108 else None
    local = _end(of.get("network.local.address"), of.get("network.local.port"))
    return local, _end(of.get("server.address"), of.get("server.port"))


def _end(address: object, port: object) -> str | None:
    """An address and a port, in one spelling: IPv4 in IPv6 as IPv4."""
    if not isinstance(address, str) or type(port) is not int or not 0 < port < 1 << 16:
        return None
    found = ipaddress.ip_address(address.partition("%")[0])
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return f"{mapped or found} {port}"
