"""What processes listen on, in whatever network namespace they live."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from qjoule.servers.procfs import Process, read_text

_FILES_MAX = 100_000
_TCP_LISTEN, _CLOSE = "0A", "07"  # include/net/tcp_states.h; an unconnected UDP socket is "closed"
_ACCEPTS = 0x10000  # __SO_ACCEPTCON, include/uapi/linux/net.h
_PORT_RANGE = "sys/net/ipv4/ip_local_port_range"
_PORT_RANGE_DEFAULT = (32768, 60999)


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
    """Reads each network namespace's tables once, however many processes live in it."""

    proc: Path = Path("/proc")
    _namespaces: dict[str, _Namespace] = field(default_factory=dict)

    def of(self, process: Process) -> Listening:
        """What the process listens on; nothing where that cannot be read.

        A UDP socket listens if it has no peer and its port was not given out by the kernel.
        """
        inodes = frozenset(_socket_inodes(process.directory / "fd"))
        if not inodes:
            return Listening()
        tables = self._namespace(process.directory)
        mine = inodes & (tables.tcp.keys() | tables.udp.keys() | tables.unix.keys())
        return Listening(
            tuple(sorted({tables.tcp[i] for i in mine if i in tables.tcp})),
            tuple(sorted({tables.udp[i] for i in mine if i in tables.udp})),
            tuple(sorted({tables.unix[i] for i in mine if i in tables.unix})),
            mine,
        )

    def _namespace(self, directory: Path) -> _Namespace:
        try:
            name = str((directory / "ns/net").readlink())
        except OSError:
            name = str(directory)
        if name not in self._namespaces:
            net = directory / "net"
            low, high = _port_range(self.proc)
            udp = {**_ports(net / "udp", _CLOSE), **_ports(net / "udp6", _CLOSE)}
            self._namespaces[name] = _Namespace(
                {**_ports(net / "tcp", _TCP_LISTEN), **_ports(net / "tcp6", _TCP_LISTEN)},
                {inode: port for inode, port in udp.items() if not low <= port <= high},
                dict(_unix_listeners(net / "unix")),
            )
        return self._namespaces[name]


def _port_range(proc: Path) -> tuple[int, int]:
    with suppress(ValueError):
        low, high = map(int, read_text(proc / _PORT_RANGE).split())
        return low, high
    return _PORT_RANGE_DEFAULT


def _socket_inodes(directory: Path) -> Iterator[int]:
    with suppress(OSError), os.scandir(directory) as entries:
        for count, entry in enumerate(entries):
            if count == _FILES_MAX:
                return
            with suppress(OSError, ValueError):
                target = os.readlink(entry.path)  # noqa: PTH115 - thousands of them
                if target.startswith("socket:["):
                    yield int(target[8:-1])


def _ports(table: Path, state: str) -> dict[int, int]:
    """Local port by inode of the sockets in this state (proc_net(5), /proc/net/tcp)."""
    found = {}
    for line in read_text(table).splitlines()[1:]:
        with suppress(ValueError, IndexError):
            fields = line.split()
            if fields[3] == state:
                found[int(fields[9])] = int(fields[1].rpartition(":")[2], 16)
    return found


def _unix_listeners(table: Path) -> Iterator[tuple[int, str]]:
    for line in read_text(table).splitlines()[1:]:
        with suppress(ValueError, IndexError):
            fields = line.split(maxsplit=7)
            if int(fields[3], 16) & _ACCEPTS:
                yield int(fields[6]), fields[7]
