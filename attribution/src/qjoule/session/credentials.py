# SPDX-License-Identifier: Apache-2.0
"""`--credentials FILE`: accounts for asking servers for texts that tracing cannot see.

    [cassandra]            # a product, or one server as `qjoule doctor` calls it
    user = "reader"
    password = "…"
    host = "10.0.0.7"      # of this machine, if it does not listen on 127.0.0.1
    users = ["cassandra"]  # also servers of these users, in a product's section

An empty section permits asking a server that has no accounts. Because any user can start a server,
a product's section holds only for servers of root and of the users that it lists. Only the
credential helper reads the content: this process gets a descriptor from the root part, and never
sees the passwords.

Before a password is sent on a connection, the peer is proven to be the traced server: any local
user may listen on the port of a server that has ended, or that listens on another address. The
credential helper connects only to servers that are proven twice, by what the kernel reports of
sockets (sock_diag(7)):

1. When the credential helper starts, the socket that listens at the address is one of the traced
   process's. The command has read these from /proc/PID/fd, through the root part. The helper
   remembers the socket's cookie, which no other socket ever has.
2. Of each connection, the accepted socket belongs to the server's user, and what listens there is
   still the remembered socket.

The kernel reports only our own network namespace, so servers elsewhere cannot be proven.
docs/security.md says who could still deceive this.
"""

from __future__ import annotations

import os
import socket
import stat
import threading
import time
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from qjoule.errors import QjouleError
from qjoule.root_part.access import SocketAccess, bind_process
from qjoule.root_part.client import root_part, user_name
from qjoule.root_part.protocol import Refused
from qjoule.servers.client import ANSWER_S, Account
from qjoule.servers.processes import asking_user
from qjoule.servers.types import Server
from qjoule.tags.connections import SocketOwners
from qjoule.tags.definitions import Connection

_BYTES_MAX = 1 << 16
_KEYS = ("user", "password", "host", "users")
_PAUSE_S = 0.002


def open_credentials(path: Path) -> int:
    """Opens the file as root does, since it may be root's; returns a descriptor.

    Raises:
        QjouleError: it cannot be opened, or others than its owner may read or write it.
    """
    try:
        descriptor, file = root_part().given(path)
    except Refused as error:
        raise QjouleError(f"{path}: {error}") from None
    if file.uid not in (0, asking_user()) or stat.S_IMODE(file.mode) & 0o077:
        os.close(descriptor)
        raise QjouleError(f"{path}: others may read or change it: chown root, chmod 600")
    return descriptor


def read_credentials(descriptor: int) -> Mapping[str, Account]:
    """Returns the accounts by the names of their sections.

    Raises:
        QjouleError: the file is invalid. The message contains nothing of its content.
    """
    content = os.pread(descriptor, _BYTES_MAX, 0)
    try:
        sections = tomllib.loads(content.decode())
    except ValueError:
        raise QjouleError("the credentials are no TOML") from None
    accounts = {}
    for name, section in sections.items():
        if not isinstance(section, dict) or set(section) - set(_KEYS):
            raise QjouleError(f"the credentials have sections with {', '.join(_KEYS)} only")
        users = section.pop("users", [])
        if not isinstance(users, list):
            raise QjouleError("the credentials have users that are no list")
        if not all(isinstance(value, str) for value in (*section.values(), *users)):
            raise QjouleError("the credentials have values that are no strings")
        accounts[name] = Account(**section, users=tuple(users))
    return accounts


def account_for(accounts: Mapping[str, Account], label: str, flavour: str, uid: int) -> Account:
    """Returns the account for a server of this user: of its own section, or of its product's.

    Raises:
        QjouleError: there is none.
    """
    name = label if label in accounts else flavour
    account = accounts.get(name)
    if account is None:
        raise QjouleError(f"the credentials have no [{flavour}]")
    is_meant = name == label and not account.users
    owner = user_name(uid)
    if uid and not is_meant and {str(uid), owner}.isdisjoint(account.users):
        raise QjouleError(f'[{name}] is not for servers of {owner}: add "{owner}" to its users')
    return account


@dataclass(frozen=True)
class TracedProcess:
    """Facts about a server's main process when the credential helper starts."""

    pid: int
    uid: int
    sockets: frozenset[int] = frozenset()  #: inodes, unique over the machine
    unproven: str = ""  #: why connections to it cannot be proven


def traced_process(server: Server) -> TracedProcess:
    """Reads the facts through the root part, which answers until the tracer is attached."""
    pid = server.tgids[0]
    try:
        uid, connection = bind_process(root_part().need("asking servers"), pid)
        with connection:
            access = SocketAccess(connection)
            network, sockets = access.network(), access.sockets()
    except QjouleError as error:
        return TracedProcess(pid, server.uid, unproven=str(error))
    why = ""
    if uid != server.uid:
        why = "its process is another user's by now"
    elif network != os.fspath(Path("/proc/self/ns/net").readlink()):
        why = "it is in another network namespace than qjoule, which can prove nothing of it"
    return TracedProcess(pid, uid, sockets, why)


@dataclass
class Peer:
    """An address at which a traced server listens."""

    address: str
    port: int
    uid: int
    cookie: bytes  #: the listening socket's
    refused: str = ""  #: why the last connection was closed at once; empty: it was accepted


class Peers:
    """The addresses that this process may connect to."""

    def __init__(self) -> None:
        """Must run before this process loses the right to bind sockets."""
        self._kernel = SocketOwners()
        self._one_at_a_time = threading.Lock()  #: drivers have threads
        self._peers: dict[tuple[str, int], Peer] = {}

    def add(self, host: str, port: int, process: TracedProcess) -> Peer:
        """Adds and returns the first address of the host at which the process listens.

        Raises:
            QjouleError: there is no such address, or the process cannot be proven.
        """
        if process.unproven:
            raise QjouleError(process.unproven)
        for address in _addresses(host, port):
            listener = self._kernel.listener(address, port)
            if listener is not None and listener.inode in process.sockets:
                peer = Peer(address, port, process.uid, listener.cookie)
                return self._peers.setdefault(_key((address, port)), peer)
        raise QjouleError(
            f"the kernel shows no socket of the traced process ({process.pid}) that listens on "
            f"{host}, port {port}"
        )

    def guard(self) -> None:
        """From now on, every connection of this process leads to a peer, or fails.

        Drivers connect whenever they like: again after a failure, or to other servers of a cluster.
        So this replaces the one method that all of them use.
        """
        connect = socket.socket.connect

        def connect_to_peer(self_: socket.socket, address: Any) -> None:
            peer = self._peers.get(_key(address))
            if peer is None:
                raise QjouleError(f"{address} is not a server that may be asked")
            peer.refused = ""
            try:
                connect(self_, address)
                peer.refused = self._why_unproven(self_, peer)
            except BlockingIOError:  # no later step would check the connection
                peer.refused = "its driver does not wait for the connection"
            if peer.refused:
                self_.close()
                raise QjouleError(peer.refused)

        def connect_ex(_self: socket.socket, _address: Any) -> int:
            raise QjouleError("connections are not proven in this way")

        socket.socket.connect = connect_to_peer  # type: ignore[method-assign,assignment]
        socket.socket.connect_ex = connect_ex  # type: ignore[method-assign,assignment]

    def _why_unproven(self, connected: socket.socket, peer: Peer) -> str:
        """Returns why the connection is not proven; empty if it is."""
        ours, theirs = (
            f"{address} {port}"
            for address, port, *_ in (connected.getsockname(), connected.getpeername())
        )
        deadline = time.monotonic() + ANSWER_S
        while True:
            with self._one_at_a_time:
                accepted = self._kernel.owner_of(Connection("", client=theirs, server=ours))
                listener = self._kernel.listener(peer.address, peer.port)
            if listener is None or listener.cookie != peer.cookie:
                return "what listens there is another socket than when tracing began"
            if accepted is not None and accepted.inode:
                break
            if time.monotonic() > deadline:
                return "it does not accept the connection, or another machine does"
            time.sleep(_PAUSE_S)
        if accepted.uid != peer.uid:
            return f"user {accepted.uid} accepted the connection, not the server's user {peer.uid}"
        return ""


def _addresses(host: str, port: int) -> list[str]:
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise QjouleError(f"the host {host} is unknown: {error}") from None
    return list(dict.fromkeys(str(address[0]) for *_, address in addresses))


def _key(address: Any) -> tuple[str, int]:
    """Returns the key of an address in `Peers`; for anything but a TCP address, an unused key."""
    try:
        return str(ip_address(address[0])), address[1]
    except (ValueError, TypeError, IndexError):
        return "", 0
