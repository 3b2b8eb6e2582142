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
#: Definitions of one kind that are remembered of a process; the oldest are forgotten.
MAX_DEFINITIONS = 65536
MAX_FRESH = 8192

Tags = tuple[tuple[str, str], ...]  #: sorted by key


@dataclass(frozen=True)
class Connection:
    """How a connection is recognised at the server's end; what is not known is None."""

    system: str  #: `db.system.name` of OpenTelemetry's conventions
    client: str | None = None  #: "address port" of TCP, "unix inode" of a Unix socket
    server: str | None = None  #: "address port", or a path


class Definitions:
    """Of one process. Takes messages of any content; what makes no sense is counted."""

    def __init__(self) -> None:
        self._connections: dict[int, Connection] = {}
        #: Connections that were defined since somebody last looked, who empties it.
        self.fresh: deque[Connection] = deque(maxlen=MAX_FRESH)
        self._tags: dict[int, Tags] = {}
        self.refused = 0

    def add(self, message: bytes) -> None:
        """Takes in one message."""
        try:
            if len(message) > MAX_BYTES:
                raise ValueError
            said = json.loads(message.decode("utf-8"))
            if "tags" in said:
                _remember(self._tags, _number(said["tags"]), _tags(said["of"]))
            elif "connection" in said:
                one = _connection(said["of"])
                _remember(self._connections, _number(said["connection"]), one)
                self.fresh.append(one)
            else:
                raise ValueError
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            self.refused += 1

    def connection(self, number: int) -> Connection | None:
        return self._connections.get(number)

    def tags(self, number: int) -> Tags:
        return self._tags.get(number, ())


def _remember(known: dict[int, Any], number: int, value: object) -> None:
    known[number] = value
    if len(known) > MAX_DEFINITIONS:
        known.pop(next(iter(known)))


def _number(value: object) -> int:
    if type(value) is not int or not 0 < value < 1 << 32:
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
