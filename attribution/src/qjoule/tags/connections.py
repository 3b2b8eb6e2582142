# SPDX-License-Identifier: Apache-2.0
"""Owners of applications' connections.

The owner is needed because one user's reports on another user's connections are refused, and
because passwords go to the traced server only (`session.credentials`). The lookup uses netlink
(sock_diag(7)), which any user may do. The kernel answers only for sockets of the recorder's own
network namespace. Two namespaces may have connections between the same addresses, and any user may
make a namespace with any addresses. So a connection that is not found here has no owner, and only
root's reports on it count.
"""

from __future__ import annotations

import ipaddress
import socket
import struct
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from qjoule.tags.definitions import Connection

_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_NLM_F_REQUEST = 1
_NLMSG_ERROR = 2
_HEADER = struct.Struct("=IHHII")  # nlmsghdr
#: inet_diag_req_v2, <linux/inet_diag.h>; ports and addresses in network byte order.
_INET_REQUEST = struct.Struct("=BBBxI2s2s16s16sI8s")
#: inet_diag_msg: family, state, …, ports and addresses, interface, cookie, …, uid, inode.
_INET_MESSAGE = struct.Struct("=BBBB2s2s16s16sI8sIIIII")
#: unix_diag_req and unix_diag_msg, <linux/unix_diag.h>.
_UNIX_REQUEST = struct.Struct("=BBHIII8s")
_UNIX_MESSAGE = struct.Struct("=BBBxI8s")
_ATTRIBUTE = struct.Struct("=HH")
_UNIX_DIAG_UID = 7
_UDIAG_SHOW_UID = 0x40
_EVERY_STATE = 0xFFFFFFFF
_NO_COOKIE = b"\xff" * 8
#: States of a TCP socket that is or was connected and still has an owner: established, FIN_WAIT1
#: and 2, CLOSE_WAIT, LAST_ACK, CLOSING. A socket that is still connecting may name any server.
_CONNECTED = frozenset({1, 4, 5, 8, 9, 11})
_LISTENING = 10
_NO_PORT = b"\0\0"
_UNIX_INODES = 1 << 32
_MOST_BYTES = 8192

#: An address and a port, in network byte order.
_Side: TypeAlias = "tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, bytes]"


@dataclass(frozen=True)
class Owner:
    """The user who made a socket, and its cookie, which is unique among all sockets since boot.

    `inode`: of TCP, as in /proc/PID/fd; 0 if the server has not accepted the connection yet.
    """

    uid: int
    cookie: bytes
    inode: int = 0


class Owners(Protocol):
    """Looks up owners of connections."""

    def owner_of(self, connection: Connection) -> Owner | None:
        """Returns the owner of the client's end, or None if that is unknown or does not exist."""

    def close(self) -> None:
        """Releases its resources."""


class SocketOwners:
    """Looks up owners by netlink. Not thread-safe."""

    def __init__(self) -> None:
        """If the kernel has no sock_diag, or a sandbox forbids it, all owners are unknown."""
        self._socket: socket.socket | None = None
        try:
            kind = socket.SOCK_RAW | socket.SOCK_CLOEXEC
            self._socket = socket.socket(socket.AF_NETLINK, kind, _NETLINK_SOCK_DIAG)
            self._socket.bind((0, 0))
            # The kernel answers before the request returns. A missing answer must not block the
            # recorder.
            self._socket.setblocking(False)
        except OSError:
            self.close()

    def owner_of(self, connection: Connection) -> Owner | None:
        """Returns the current owner; None also for a connection of another network namespace."""
        if self._socket is None or connection.client is None:
            return None
        try:
            if connection.client.startswith("unix "):
                return self._of_unix(int(connection.client[5:]))
            return self._of_tcp(connection)
        except (OSError, ValueError, struct.error):
            return None

    def listener(self, address: str, port: int) -> Owner | None:
        """Returns the owner of the socket that listens at this address, or None if unknown."""
        if self._socket is None:
            return None
        try:
            here = ipaddress.ip_address(address)
            there = type(here)(0), _NO_PORT
            owner = self._tcp((here, port.to_bytes(2, "big")), there)
        except (OSError, ValueError, OverflowError, struct.error):
            return None
        if owner is None or owner[1] != _LISTENING:
            return None
        return _owner(owner)

    def close(self) -> None:
        """Closes the socket. From now on all owners are unknown."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _of_tcp(self, connection: Connection) -> Owner | None:
        if connection.client is None or connection.server is None:
            return None
        here, there = _parse_endpoint(connection.client), _parse_endpoint(connection.server)
        owner = self._tcp(here, there)
        # If there is no such connection, the kernel answers with a listening socket.
        if owner is None or owner[1] not in _CONNECTED or owner[4:6] != (here[1], there[1]):
            return None
        return _owner(owner)

    def _tcp(self, here: _Side, there: _Side) -> tuple[Any, ...] | None:
        """Returns an `inet_diag_msg`. Raises OSError."""
        (address, port), (its_address, its_port) = here, there
        if address.version != its_address.version:
            return None
        family = socket.AF_INET if address.version == 4 else socket.AF_INET6
        request = _INET_REQUEST.pack(
            *(family, socket.IPPROTO_TCP, 0, _EVERY_STATE, port, its_port),
            *(address.packed.ljust(16, b"\0"), its_address.packed.ljust(16, b"\0")),
            *(0, _NO_COOKIE),
        )
        answer = self._ask(request)
        return None if answer is None else _INET_MESSAGE.unpack_from(answer)

    def _of_unix(self, inode: int) -> Owner | None:
        if not 0 < inode < _UNIX_INODES:
            return None
        request = _UNIX_REQUEST.pack(
            socket.AF_UNIX, 0, 0, _EVERY_STATE, inode, _UDIAG_SHOW_UID, _NO_COOKIE
        )
        answer = self._ask(request)
        if answer is None:
            return None
        _, _, _, its_inode, cookie = _UNIX_MESSAGE.unpack_from(answer)
        offset = _UNIX_MESSAGE.size
        while its_inode == inode and offset + _ATTRIBUTE.size <= len(answer):
            length, kind = _ATTRIBUTE.unpack_from(answer, offset)
            if kind == _UNIX_DIAG_UID:
                return Owner(struct.unpack_from("=I", answer, offset + _ATTRIBUTE.size)[0], cookie)
            offset += max((length + 3) & ~3, _ATTRIBUTE.size)
        return None  # before Linux 5.3 the answer has no owner

    def _ask(self, request: bytes) -> bytes | None:
        """Returns the kernel's answer about one socket, or None if it does not exist. Raises
        OSError."""
        assert self._socket is not None
        size = _HEADER.size + len(request)
        head = _HEADER.pack(size, _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 0, 0)
        self._socket.send(head + request)
        answer, (sender, _) = self._socket.recvfrom(_MOST_BYTES)
        length, kind, *_ = _HEADER.unpack_from(answer)
        if sender != 0 or kind == _NLMSG_ERROR:
            return None
        return answer[_HEADER.size : length]


def _owner(message: tuple[Any, ...]) -> Owner:
    return Owner(uid=message[13], cookie=message[9], inode=message[14])


def _parse_endpoint(text: str) -> _Side:
    address, _, port = text.rpartition(" ")
    return ipaddress.ip_address(address), int(port).to_bytes(2, "big")


#: getsockopt(2), <asm-generic/socket.h>: the network namespace of a socket. Since Linux 5.14.
_SO_NETNS_COOKIE = 71
_COOKIE_BYTES = 8


def is_same_network(first: socket.socket, second: socket.socket) -> bool:
    """Returns true if two sockets are in the same network namespace. An accepted Unix socket is in
    its client's.

    Returns false before Linux 5.14, which cannot tell.
    """
    try:
        cookies = [
            end.getsockopt(socket.SOL_SOCKET, _SO_NETNS_COOKIE, _COOKIE_BYTES)
            for end in (first, second)
        ]
    except OSError:
        return False
    return cookies[0] == cookies[1]
