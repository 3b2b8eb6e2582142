# SPDX-License-Identifier: Apache-2.0
"""Reads SESSION blocks: who a session belongs to, and what changes. Passwords are left out here."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv6Address
from typing import Any

from qjoule.contract import SessionEvent
from qjoule.servers.decoding import decoding_of
from qjoule.servers.decoding_types import RESET, Startup
from qjoule.stream.blocks import Frame
from qjoule.trace.columns import Array
from qjoule.trace.vocabulary import SESSION_EVENTS

#: Sessions remembered. The bound is for applications that open a connection for each query.
MAX_SESSIONS = 100_000


@dataclass(frozen=True)
class SessionUpdate:
    """One event of a session.

    `startup`: the names that it brings; None: it only says what kind of connection it is. `sets`: a
    statement set a parameter; without an application in `startup` it was another parameter.
    `resets`: the application has the name of the login again.
    """

    session: int
    t_ns: int
    event: int  #: `qjoule.contract.SessionEvent`
    server: int
    pid: int
    tgid: int
    address: str | None
    connection: str | None
    startup: Startup | None
    sets: bool = False
    resets: bool = False


class OpaqueConnections:
    """Encrypted or otherwise unreadable connections with known ends, and the server of each."""

    def __init__(self, most: int = MAX_SESSIONS) -> None:
        self._most = most
        self.servers: dict[str, int] = {}

    def learn(self, news: SessionUpdate) -> None:
        if news.connection is None:
            return
        self.servers.pop(news.connection, None)  # another one may have had these ends before
        if news.event == SessionEvent.OPAQUE:
            self.servers[news.connection] = news.server
            if len(self.servers) > self._most:
                self.servers.pop(next(iter(self.servers)))


def read_session(frame: Frame) -> SessionUpdate | None:
    """Decodes a SESSION block; None if it is invalid."""
    record = frame.records[0]
    event, t_ns, kind = int(record["event"]), int(record["t_ns"]), int(record["server_kind"])
    if not 0 < event < len(SESSION_EVENTS) or t_ns >= 1 << 63:
        return None
    startup = _startup(event, kind, frame.text)
    resets = event == SessionEvent.SETS and startup is not None and startup.application == RESET
    return SessionUpdate(
        session=int(record["session"]),
        t_ns=t_ns,
        event=event,
        server=int(record["server"]),
        pid=int(record["pid"]),
        tgid=int(record["tgid"]),
        address=address_of(record["address"]),
        connection=_connection(record),
        startup=Startup() if resets else startup,
        sets=event == SessionEvent.SETS,
        resets=resets,
    )


def _startup(event: int, kind: int, text: bytes) -> Startup | None:
    """The names that an event brings; None: an application's name that cannot be read."""
    decoding = decoding_of(kind)
    if event == SessionEvent.OPEN and decoding.startup is not None:
        return decoding.startup(text)
    if event == SessionEvent.USER and decoding.change is not None:
        return decoding.change(text)
    if event == SessionEvent.DATABASE:
        return Startup(database=text.decode("utf-8", "replace") or None)
    if event == SessionEvent.SETS and decoding.application_set is not None:
        return Startup(application=decoding.application_set(text))
    if event == SessionEvent.APPLICATION:
        name = decoding.application(text) if decoding.application is not None else None
        return None if name is None else Startup(application=name or None)
    return Startup()


def address_of(octets: Array) -> str | None:
    """`192.0.2.7`, `2001:db8::1`; None for a unix socket, or if unknown."""
    address = IPv6Address(octets.tobytes())
    if not int(address):
        return None
    return str(address.ipv4_mapped or address)


def _connection(record: Any) -> str | None:
    """The connection's name as in `qjoule.tags`: both ends, or the inode of the client's socket."""
    if inode := int(record["client_inode"]):
        return f"unix {inode}"
    client, server = address_of(record["address"]), address_of(record["server_address"])
    if client is None or server is None:
        return None
    return f"{client} {int(record['port'])} > {server} {int(record['server_port'])}"
