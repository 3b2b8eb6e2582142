# SPDX-License-Identifier: Apache-2.0
"""The traced server that a connection leads to, from the address that it was made to.

`Addresses` answers only if it is certain: client and server are in the recorder's own network
namespace, the address is this host's, and no other traced server listens on that port.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from qjoule.tags.definitions import Connection

_NETWORK = ipaddress.IPv4Network | ipaddress.IPv6Network
#: Two lines of a leaf of fib_trie: `|-- 127.0.0.0`, and below it `/8 host LOCAL`.
_LEAF = re.compile(r"\|-- ([0-9.]+)|/(\d+) host LOCAL")
_MAX_REMEMBERED = 4096
_SEVERAL = -1


def is_local(address: str, proc: Path = Path("/proc")) -> bool:
    """Returns true if the address belongs to the host of this network namespace."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped:
        ip = ip.ipv4_mapped
    return ip.is_unspecified or any(
        ip in network for network in _networks(ip.version, proc / "self" / "net")
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


class Listens(Protocol):
    """The attributes of a server that `Addresses` needs: see `qjoule.servers.types.Server`."""

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
        """Returns the addresses of the servers in this process's network namespace.

        `network_of`: maps a pid to its network namespace; by default reads /proc.
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
        """Returns the id of the server that a connection of this namespace leads to; 0: none."""
        if connection.server is None:
            return 0
        if connection.client is None or connection.client.startswith("unix "):
            return self.paths.get(connection.server, 0)
        address, _, port = connection.server.rpartition(" ")
        server = self.ports.get(int(port), 0)
        return server if server and self._is_local(address) else 0

    def _is_local(self, address: str) -> bool:
        """Returns true if the address is this host's. Caches the answer."""
        local = self._local.get(address)
        if local is None:
            local = is_local(address)
            if len(self._local) >= _MAX_REMEMBERED:
                self._local.clear()
            self._local[address] = local
        return local


def _namespace(directory: Path) -> str | None:
    try:
        return str((directory / "ns/net").readlink())
    except OSError:
        return None
