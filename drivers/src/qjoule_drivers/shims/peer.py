# SPDX-License-Identifier: Apache-2.0
"""Describes a connection to the recorder, so that it can find the server's end, and ends its calls.

A driver's connection carries both: ``_qjoule_peer`` and ``_qjoule_call``.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from typing import Any

from qjoule_drivers.channel import Peer, channel
from qjoule_drivers.ring import ERROR, OK

_INET = (socket.AF_INET, socket.AF_INET6)


def meet(connection: Any, describe: Callable[[Any], Peer]) -> Peer | None:
    """The peer of a connection at its first call, then stored as ``_qjoule_peer``. None if it
    cannot be determined. Never raises.
    """
    try:
        connection._qjoule_peer = peer = describe(connection)
    except Exception:
        channel.failed(call_is_lost=True)
        return None
    return peer


def end(connection: Any, status: int) -> None:
    """Ends the connection's call, if one is under way. Never raises."""
    call, connection._qjoule_call = connection._qjoule_call, 0
    channel.end(connection._qjoule_peer, call, status)


def ending(original: Any) -> Any:
    """Wraps a connection's method that returns when its call's result has arrived."""

    def read(self: Any, *args: Any) -> Any:
        try:
            result = original(self, *args)
        except BaseException:
            end(self, ERROR)
            raise
        end(self, OK)
        return result

    return read


def peer_of(sock: Any, system: str, session: int | None = None) -> Peer:
    """The peer of a connected socket, plain or TLS. Raises OSError if it is not connected.

    ``session`` is the number that the server gave to the connection, if known.
    """
    of: dict[str, object] = {"db.system.name": system}
    if sock.family == socket.AF_UNIX:
        path = sock.getpeername()
        of["network.transport"] = "unix"
        of["client.inode"] = os.fstat(sock.fileno()).st_ino
        of["server.address"] = path if isinstance(path, str) else os.fsdecode(path)
    elif sock.family in _INET:
        local, peer = sock.getsockname(), sock.getpeername()
        of["network.transport"] = "tcp"
        of["network.local.address"], of["network.local.port"] = local[:2]
        of["server.address"], of["server.port"] = peer[:2]
    if session:
        of["server.session"] = session
    return Peer(of)


def peer_of_descriptor(fd: int, system: str, session: int | None = None) -> Peer:
    """Like :func:`peer_of`, for a connection whose socket belongs to a C library. Raises
    OSError.
    """
    borrowed = socket.socket(fileno=fd)
    try:
        return peer_of(borrowed, system, session)
    finally:
        borrowed.detach()
