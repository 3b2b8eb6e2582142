# SPDX-License-Identifier: Apache-2.0
"""What processes listen on, in any network namespace."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from qjoule.servers.access import Access, ProcFile

_TCP_LISTEN, _CLOSE = "0A", "07"  # include/net/tcp_states.h; an unconnected UDP socket is "closed"
_ACCEPTS = 0x10000  # __SO_ACCEPTCON, include/uapi/linux/net.h
PORT_RANGE_DEFAULT = (32768, 60999)  #: of most kernels: ip(7), ip_local_port_range
_LINES_MAX = 200_000  #: of one table


@dataclass(frozen=True)
class Listening:
    """Ports and paths in order; `inodes` of all these sockets, unique over the machine."""

    tcp: tuple[int, ...] = ()
    udp: tuple[int, ...] = ()
    unix: tuple[str, ...] = ()
    inodes: frozenset[int] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.inodes)


@dataclass(frozen=True)
class _Namespace:
    """Listening sockets by inode."""

    tcp: dict[int, int]
    udp: dict[int, int]
    unix: dict[int, str]


@dataclass
class SocketTables:
    """Reads each network namespace's tables once, however many processes live in it.

    `port_range`: the ports that the kernel gives to clients (ip(7), ip_local_port_range).
    """

    port_range: tuple[int, int] = PORT_RANGE_DEFAULT
    _namespaces: dict[str, _Namespace] = field(default_factory=dict)

    def of(self, access: Access) -> Listening:
        """What the process listens on; empty if that cannot be read.

        A UDP socket listens if it has no peer and the kernel did not choose its port.
        """
        inodes = access.sockets()
        if not inodes:
            return Listening()
        tables = self._namespace(access)
        mine = inodes & (tables.tcp.keys() | tables.udp.keys() | tables.unix.keys())
        return Listening(
            tuple(sorted({tables.tcp[i] for i in mine if i in tables.tcp})),
            tuple(sorted({tables.udp[i] for i in mine if i in tables.udp})),
            tuple(sorted({tables.unix[i] for i in mine if i in tables.unix})),
            frozenset(mine),
        )

    def _namespace(self, access: Access) -> _Namespace:
        name = access.network()
        if name and name in self._namespaces:
            return self._namespaces[name]
        tcp, udp = (
            {**socket_ports(access.proc(four), state), **socket_ports(access.proc(six), state)}
            for four, six, state in (
                (ProcFile.TCP, ProcFile.TCP6, _TCP_LISTEN),
                (ProcFile.UDP, ProcFile.UDP6, _CLOSE),
            )
        )
        low, high = self.port_range
        namespace = _Namespace(
            tcp,
            {inode: port for inode, port in udp.items() if not low <= port <= high},
            dict(unix_listeners(access.proc(ProcFile.UNIX))),
        )
        if name:
            self._namespaces[name] = namespace
        return namespace


def socket_ports(table: bytes, state: str) -> dict[int, int]:
    """Local port by inode of the sockets in this state (proc_net(5), /proc/net/tcp)."""
    ports = {}
    for line in _lines(table):
        with suppress(ValueError, IndexError):
            fields = line.split(maxsplit=10)
            port = int(fields[1].rpartition(":")[2], 16)
            if fields[3] == state and 0 <= port < 1 << 16:
                ports[int(fields[9])] = port
    return ports


def unix_listeners(table: bytes) -> Iterator[tuple[int, str]]:
    """(inode, path) of the unix sockets that accept (proc_net(5), /proc/net/unix)."""
    for line in _lines(table):
        with suppress(ValueError, IndexError):
            fields = line.split(maxsplit=7)
            if int(fields[3], 16) & _ACCEPTS:
                yield int(fields[6]), fields[7]


def _lines(table: bytes) -> list[str]:
    """The lines without the heading."""
    return table.decode(errors="surrogateescape").split("\n", _LINES_MAX)[1:_LINES_MAX]
