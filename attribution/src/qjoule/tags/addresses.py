# SPDX-License-Identifier: Apache-2.0
"""Finds the traced server that a call goes to, from the address its connection was made to.

This answers only if it is certain: client and server are in the recorder's own network namespace,
the address is this host's, and no other traced server listens on that port.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from qjoule.tags.definitions import Connection

_NETWORK = ipaddress.IPv4Network | ipaddress.IPv6Network
#: Two lines of a leaf: `|-- 127.0.0.0`, and below it `/8 host LOCAL`.
_LEAF = re.compile(r"\|-- ([0-9.]+)|/(\d+) host LOCAL")


def is_local(address: str, proc: Path = Path("/proc")) -> bool:
    """Whether this network namespace's host has the address now."""
    try:
        wanted = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(wanted, ipaddress.IPv6Address) and wanted.ipv4_mapped:
        wanted = wanted.ipv4_mapped
    return wanted.is_unspecified or any(
        wanted in network for network in _networks(wanted.version, proc / "self" / "net")
    )


def _networks(version: int, directory: Path) -> Iterator[_NETWORK]:
    with suppress(OSError, ValueError):
        if version == 6:
            for line in (directory / "if_inet6").read_text().splitlines():
                yield ipaddress.IPv6Network(int(line.split()[0], 16))
            return
        leaf = ""
        for match in _LEAF.finditer((directory / "fib_trie").read_text()):
            if match[1]:
                leaf = match[1]
            else:
                yield ipaddress.IPv4Network(f"{leaf}/{match[2]}")


#: getsockopt(2), <asm-generic/socket.h>: the network namespace of a socket. Since Linux 5.14.
_SO_NETNS_COOKIE = 71
_COOKIE_BYTES = 8
_MAX_REMEMBERED = 4096
_SEVERAL = -1


class Listens(Protocol):
    """What `Addresses` needs of a server: see `qjoule.servers.types.Server`."""

    @property
    def id(self) -> int: ...
    @property
    def tgids(self) -> tuple[int, ...]: ...
    @property
    def ports(self) -> tuple[int, ...]: ...
    @property
    def sockets(self) -> tuple[str, ...]: ...


@dataclass(frozen=True)
class Addresses:
    """Server ids by TCP port, and by the path of a Unix socket."""

    ports: Mapping[int, int] = field(default_factory=dict)
    paths: Mapping[str, int] = field(default_factory=dict)
    _local: dict[str, bool] = field(default_factory=dict, compare=False, repr=False)

    @staticmethod
    def of(
        servers: Iterable[Listens],
        proc: Path = Path("/proc"),
        network_of: Callable[[int], str | None] | None = None,
    ) -> Addresses:
        """Addresses of the servers in this process's network namespace.

        `network_of`: maps a pid to its process's namespace; by default read with our own rights.
        """
        network_of = network_of or (lambda pid: _namespace(proc / str(pid)))
        ports: dict[int, int] = {}
        paths: dict[str, int] = {}
        here = _namespace(proc / "self")
        for server in servers:
            if not server.tgids or here is None or network_of(server.tgids[0]) != here:
                continue
            for port in server.ports:
                ports[port] = server.id if ports.get(port, server.id) == server.id else _SEVERAL
            for path in server.sockets:
                paths[path] = server.id if paths.get(path, server.id) == server.id else _SEVERAL
        return Addresses(
            {port: number for port, number in ports.items() if number != _SEVERAL},
            {path: number for path, number in paths.items() if number != _SEVERAL},
        )

    def server_of(self, connection: Connection) -> int:
        """The id of the server that a connection of this namespace goes to; 0: none of these
        servers.
        """
        if connection.server is None:
            return 0
        if connection.client is None or connection.client.startswith("unix "):
            return self.paths.get(connection.server, 0)
        address, _, port = connection.server.rpartition(" ")
        server = self.ports.get(int(port), 0)
        return server if server and self._is_local(address) else 0

    def _is_local(self, address: str) -> bool:
        """Whether the address is one of this host's."""
        known = self._local.get(address)
        if known is None:
            known = is_local(address)
            if len(self._local) >= _MAX_REMEMBERED:
                self._local.clear()
            self._local[address] = known
        return known


def is_same_network(one: socket.socket, other: socket.socket) -> bool:
    """Whether two sockets are in the same network namespace. An accepted Unix socket is in its
    client's.

    Before Linux 5.14 the kernel does not report it; then the answer is no.
    """
    try:
        cookies = [
            end.getsockopt(socket.SOL_SOCKET, _SO_NETNS_COOKIE, _COOKIE_BYTES)
            for end in (one, other)
        ]
    except OSError:
        return False
    return cookies[0] == cookies[1]


def _namespace(directory: Path) -> str | None:
    try:
        return str((directory / "ns/net").readlink())
    except OSError:
        return None
