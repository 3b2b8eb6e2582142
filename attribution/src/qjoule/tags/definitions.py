# SPDX-License-Identifier: Apache-2.0
"""Definitions of connections and tags, to which a ring's records refer by number; and the tags that
clients write into what they send to a server.

Parsing of the latter is strict: text that is not entirely valid tags, or has too many or too long
tags, has none.

- Comments of statements and commands, as sqlcommenter writes them: `key='value',key2='value2'`,
  percent-encoded, a quote with a backslash before it (https://google.github.io/sqlcommenter/spec/).
- Names of connections: `key=value,key2=value2`, percent-encoded (drivers/README.md).

Other places for tags differ by server and are read in the server's folder.

A `traceparent` (W3C Trace Context) becomes the tags `trace` and `span`, as for calls that shims
report. A `tracestate` is for tracing systems and is left out.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

MAX_BYTES = 8192
MAX_TAGS = 32
MAX_KEY = 64
MAX_VALUE = 256
#: Stored definitions of one kind per process, and bytes of all of them as received. A process that
#: exceeds this is released; it then connects anew and defines what it still uses.
MAX_DEFINITIONS = 65536
MAX_KEPT_BYTES = 16 << 20
MAX_FRESH = 8192

Tags = tuple[tuple[str, str], ...]  #: sorted by key
NO_TAGS: tuple[Tags, int] = (), 0
PREFIX = "qjoule."  #: prefix of attributes that are tags
_KEY = r"[A-Za-z0-9_.~%-]+"
_PAIR = rf"({_KEY})='((?:[^'\\\x00-\x1f]|\\')*)'"
_PAIRS = re.compile(rf"{_PAIR}(?:,{_PAIR})*")
_EACH = re.compile(_PAIR)
_NAME = re.compile(rf"{_KEY}=[A-Za-z0-9_.~%-]*(?:,{_KEY}=[A-Za-z0-9_.~%-]*)*")
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}")


@dataclass(frozen=True)
class Connection:
    """Identifies a connection at the server's end. Unknown parts are None."""

    system: str  #: `db.system.name` of OpenTelemetry's conventions
    client: str | None = None  #: "address port" of TCP, "unix inode" of a Unix socket
    server: str | None = None  #: "address port", or a path


class Definitions:
    """Definitions of one process. Accepts messages of any content; invalid ones are counted."""

    def __init__(self) -> None:
        self._connections: dict[int, tuple[Connection, int]] = {}
        #: Connections defined since the reader last emptied it.
        self.fresh: deque[Connection] = deque(maxlen=MAX_FRESH)
        self._tags: dict[int, tuple[Tags, int]] = {}
        self.bytes = 0  #: of the stored definitions, as received
        self.refused = 0
        self.is_full = False  #: true if nothing more should be added

    def add(self, message: bytes) -> tuple[int, Connection] | None:
        """Parses one message. Returns the number and connection if it defines a connection."""
        try:
            if len(message) > MAX_BYTES:
                raise ValueError
            definition = json.loads(message.decode("utf-8"))
            if "tags" in definition:
                value = _tags(definition["of"]), len(message)
                self._remember(self._tags, _number(definition["tags"]), value)
            elif "connection" in definition:
                connection = _connection(definition["of"])
                number = _number(definition["connection"])
                # a redefinition: its owner and server would be another connection's
                if number in self._connections:
                    raise ValueError
                self._remember(self._connections, number, (connection, len(message)))
                self.fresh.append(connection)
                return number, connection
            else:
                raise ValueError
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            self.refused += 1
        return None

    def connection(self, number: int) -> Connection | None:
        """Returns a connection, or None if it was not defined."""
        connection = self._connections.get(number)
        return connection[0] if connection is not None else None

    def tags(self, number: int) -> Tags | None:
        """Returns tags, or None if they were not defined; number 0 means no tags."""
        tags = self._tags.get(number) if number else NO_TAGS
        return tags[0] if tags is not None else None

    def _remember(
        self, definitions: dict[int, Any], number: int, value: tuple[object, int]
    ) -> None:
        self.bytes += value[1] - definitions.get(number, NO_TAGS)[1]
        definitions[number] = value
        self.is_full |= len(definitions) >= MAX_DEFINITIONS or self.bytes >= MAX_KEPT_BYTES


def characters(tags: Tags) -> int:
    """Approximate memory of tags in characters; each pair counts 100 more."""
    return sum(100 + len(key) + len(value) for key, value in tags)


def _number(value: object) -> int:
    if type(value) is not int or not 0 < value < (1 << 32) - 1:
        raise ValueError
    return value


def _tags(of: dict[object, object]) -> Tags:
    tags: dict[str, str] = {}
    for key, value in of.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise ValueError
        if not 0 < len(key) <= MAX_KEY or len(value) > MAX_VALUE or len(tags) >= MAX_TAGS:
            raise ValueError
        key.encode("utf-8")
        tags[key] = value.encode("utf-8", "replace").decode("utf-8")
    return tuple(sorted(tags.items()))


def _connection(of: dict[str, object]) -> Connection:
    system = of["db.system.name"]
    if not isinstance(system, str) or len(system) > MAX_KEY:
        raise ValueError
    system.encode("utf-8")
    return Connection(system, *_endpoints(of))


def _endpoints(of: dict[str, object]) -> tuple[str | None, str | None]:
    if of.get("network.transport") == "unix":
        inode, path = of.get("client.inode"), of.get("server.address")
        client = f"unix {inode}" if type(inode) is int and 0 < inode < 1 << 64 else None
        return client, path if isinstance(path, str) and len(path) <= 108 else None
    local = _endpoint(of.get("network.local.address"), of.get("network.local.port"))
    return local, _endpoint(of.get("server.address"), of.get("server.port"))


def _endpoint(address: object, port: object) -> str | None:
    """Returns an address and a port in one spelling: IPv4-mapped IPv6 as IPv4."""
    if not isinstance(address, str) or type(port) is not int or not 0 < port < 1 << 16:
        return None
    ip = ipaddress.ip_address(address.partition("%")[0])
    mapped = ip.ipv4_mapped if isinstance(ip, ipaddress.IPv6Address) else None
    return f"{mapped or ip} {port}"


@lru_cache(maxsize=4096)
def tags_in(comment: bytes) -> Tags:
    """Tags by key, from the text between a comment's delimiters.

    >>> tags_in(b"endpoint='check%20out',tenant='7'")
    (('endpoint', 'check out'), ('tenant', '7'))
    """
    text = comment.decode("latin-1")
    # A comment ends at its delimiter: the rest would belong to the statement.
    if not text.isascii() or "*/" in text or not _PAIRS.fullmatch(text):
        return ()
    pairs = _EACH.findall(text)
    return believed((unquote(key), unquote(value.replace("\\'", "'"))) for key, value in pairs)


@lru_cache(maxsize=4096)
def tags_in_name(name: str) -> Tags:
    """Tags by key, from the name of a connection.

    >>> tags_in_name("job=night%20ly,release=1.4")
    (('job', 'night ly'), ('release', '1.4'))
    """
    if not name.isascii() or not _NAME.fullmatch(name):
        return ()
    pairs = (pair.partition("=") for pair in name.split(","))
    return believed((unquote(key), unquote(value)) for key, _, value in pairs)


def believed(pairs: Iterable[tuple[str, str]]) -> Tags:
    """Returns tags by key if all are within bounds; otherwise no tags."""
    tags: dict[str, str] = {}
    for key, value in pairs:
        if not 0 < len(key) <= MAX_KEY or len(value) > MAX_VALUE or len(tags) > MAX_TAGS:
            return ()
        tags[key] = value
    tags.pop("tracestate", None)
    if traced := _TRACEPARENT.fullmatch(tags.pop("traceparent", "")):
        tags["trace"], tags["span"] = traced.groups()
    return tuple(sorted(tags.items())) if len(tags) <= MAX_TAGS else ()
