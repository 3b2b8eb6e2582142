# SPDX-License-Identifier: Apache-2.0
"""Describes processes: their owners, how far these are trusted, and what they listen on, in any
network namespace.

A user id alone says little: root of a container has id 0, a web server's account has one below
1000, and an ordinary user may have thousands of subordinate ids. The control group, which only root
chooses, says which service, container or login a process belongs to.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import TypeVar

from qjoule.servers.access import Access, ProcFile

#: Most candidates of one owner that are examined; of the host's root, all are.
EXAMINED_MAX = 32
CONTAINER_ID = re.compile(r"[/:-]([0-9a-f]{64})(?:\.scope)?(?=/|$)", re.MULTILINE)
CONTAINER_NAME = re.compile(
    r"/(?:lxc\.payload\.|lxc/|machine-)([\w.@\\-]{1,64}?)(?:\.scope)?(?=/|$)", re.MULTILINE
)
LINES_MAX = 64
#: Where systemd puts services and logins. `/..` is above the reader's own control group.
_SERVICE = re.compile(r"/system\.slice(?:/[^/]+\.slice)*/([^/]+\.service)(?=/|$)")
_LOGIN = re.compile(r"/user\.slice/user-(\d{1,10})\.slice(?=/|$)")
_HOST = re.compile(r"/?$|/(?:init\.scope|system\.slice|user\.slice)(?=/|$)")
_TCP_LISTEN, _CLOSE = "0A", "07"  # include/net/tcp_states.h; unconnected UDP sockets are closed
_ACCEPTS = 0x10000  # __SO_ACCEPTCON, include/uapi/linux/net.h
PORT_RANGE_DEFAULT = (32768, 60999)  #: default of Linux: ip(7), ip_local_port_range
_LINES_MAX = 200_000  #: most lines of one table


class Trust(IntEnum):
    """How far an owner is trusted, the most trusted first."""

    ROOT = 0  #: root of the host
    SERVICE = 1  #: a unit of the host's service manager
    STRANGER = 2


@dataclass(frozen=True)
class Owner:
    """The owner of a process. Equal owners share one place in every queue.

    `place` is the service, or the container; all users in it are one owner. For a login, and on a
    machine without systemd, it is empty and the owner is `uid`.
    """

    uid: int = 0
    place: str = ""
    trust: Trust = Trust.ROOT

    @property
    def trusted(self) -> bool:
        return self.trust is not Trust.STRANGER

    @property
    def examined_max(self) -> int | None:
        """Most candidates of this owner that are examined; None: all."""
        return None if self.trust is Trust.ROOT else EXAMINED_MAX

    def __str__(self) -> str:
        return self.place or f"user {self.uid}"


ROOT = Owner()


def owner_of(uid: int, control_groups: str) -> Owner:
    """Returns the owner of a process, by its user and its /proc/pid/cgroup."""
    container = container_of(control_groups)
    path = _systemd_path(control_groups)
    service, login = _SERVICE.match(path), _LOGIN.match(path)
    if login and uid:  # checked first: users name the groups below their login
        return Owner(int(login[1]), "", Trust.STRANGER)
    if container:
        place = f"container {container}"
        return Owner(0, f"{service[1]}, {place}" if service else place, Trust.STRANGER)
    if not uid and _HOST.match(path):
        return ROOT
    if service:
        return Owner(0, service[1], Trust.SERVICE)
    return Owner(uid, "", Trust.STRANGER)


def _systemd_path(control_groups: str) -> str:
    """Returns the path in systemd's hierarchy, else in the unified one; empty: there is none."""
    paths = {}
    for line in control_groups.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        paths["unified" if number == "0" else controllers] = path
    path = paths.get("name=systemd") or paths.get("unified") or ""
    return re.sub(r"^(?:/\.\.)+", "", path)


def container_of(control_groups: str) -> str:
    """Returns the outermost container of a process; empty: none.

    Inner ones do not count: a container's root may create control groups with any names.
    """
    containers = [
        match
        for line in control_groups.splitlines()[:LINES_MAX]
        for pattern in (CONTAINER_ID, CONTAINER_NAME)
        if (match := pattern.search(line))
    ]
    return min(containers, key=lambda match: match.start())[1] if containers else ""


FIRST_USER = 1000  #: login.defs, UID_MIN: lower ids are root and services

Item = TypeVar("Item")


def asking_user() -> int:
    """Returns the user who runs this command, also through sudo; this process may have another."""
    uid = os.environ.get("SUDO_UID", "")
    return int(uid) if uid.isascii() and uid.isdigit() and len(uid) < 11 else os.getuid()


def order_fairly(
    items: Iterable[Item], owner_of: Callable[[Item], Owner], itself: int
) -> list[Item]:
    """Sorts items for places that are limited.

    Anybody may run programs that look like servers. The host's root comes first, then the host's
    system services, one of each service before the second of any. Then come all others, likewise
    one of each owner before the second of any. The calling user (`itself`) comes last, because
    fakes of that user would otherwise displace what is to be measured. Items of equal rank keep
    their order.
    """
    counts: Counter[Owner] = Counter()
    ranked: list[tuple[tuple[int, ...], int, Item]] = []
    for item in items:
        owner = owner_of(item)
        trust, before = int(owner.trust), 0
        if owner.trust is not Trust.ROOT:
            before = counts[owner]
            counts[owner] += 1
        if not owner.trusted and owner.uid == itself != 0 and not owner.place:
            trust += 1
        ranked.append(((trust, before, owner.uid >= FIRST_USER), len(ranked), item))
    return [item for _, _, item in sorted(ranked, key=lambda entry: entry[:2])]


@dataclass(frozen=True)
class Process:
    """A process whose executable can be seen."""

    pid: int
    parent: int
    directory: Path  #: /proc/PID
    exe_name: str  #: as the process sees it, without " (deleted)"
    exe_id: tuple[int, int]  #: (device, inode)
    uid: int = 0  #: its user
    control_groups: str = ""  #: its /proc/PID/cgroup

    @property
    def base_name(self) -> str:
        return self.exe_name.rpartition("/")[2]

    @property
    def owner(self) -> Owner:
        return owner_of(self.uid, self.control_groups)

    @property
    def root(self) -> Path:
        return self.directory / "root"


@dataclass(frozen=True)
class Listening:
    """Ports and paths, sorted; `inodes` of all these sockets, unique over the machine."""

    tcp: tuple[int, ...] = ()
    udp: tuple[int, ...] = ()
    unix: tuple[str, ...] = ()
    inodes: frozenset[int] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.inodes)


@dataclass(frozen=True)
class _Namespace:
    """Listening sockets of a network namespace, by inode."""

    tcp: dict[int, int]
    udp: dict[int, int]
    unix: dict[int, str]


@dataclass
class SocketTables:
    """Reads each network namespace's tables once, however many processes live in it.

    `port_range`: the ports that the kernel assigns to clients (ip(7), ip_local_port_range).
    """

    port_range: tuple[int, int] = PORT_RANGE_DEFAULT
    _namespaces: dict[str, _Namespace] = field(default_factory=dict)

    def of(self, access: Access) -> Listening:
        """Returns what the process listens on; empty if that cannot be read.

        A UDP socket listens if it has no peer and the kernel did not choose its port.
        """
        inodes = access.sockets()
        if not inodes:
            return Listening()
        tables = self._namespace(access)
        listening = inodes & (tables.tcp.keys() | tables.udp.keys() | tables.unix.keys())
        return Listening(
            tuple(sorted({tables.tcp[i] for i in listening if i in tables.tcp})),
            tuple(sorted({tables.udp[i] for i in listening if i in tables.udp})),
            tuple(sorted({tables.unix[i] for i in listening if i in tables.unix})),
            frozenset(listening),
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
    """Returns the local port by inode of the sockets in this state (proc_net(5), /proc/net/tcp)."""
    ports = {}
    for line in _lines(table):
        with suppress(ValueError, IndexError):
            fields = line.split(maxsplit=10)
            port = int(fields[1].rpartition(":")[2], 16)
            if fields[3] == state and 0 <= port < 1 << 16:
                ports[int(fields[9])] = port
    return ports


def unix_listeners(table: bytes) -> Iterator[tuple[int, str]]:
    """Yields (inode, path) of the unix sockets that accept (proc_net(5), /proc/net/unix)."""
    for line in _lines(table):
        with suppress(ValueError, IndexError):
            fields = line.split(maxsplit=7)
            if int(fields[3], 16) & _ACCEPTS:
                yield int(fields[6]), fields[7]


def _lines(table: bytes) -> list[str]:
    """Returns the lines without the heading."""
    return table.decode(errors="surrogateescape").split("\n", _LINES_MAX)[1:_LINES_MAX]
