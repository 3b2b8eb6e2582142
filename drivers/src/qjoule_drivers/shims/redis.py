# SPDX-License-Identifier: Apache-2.0
"""redis-py, synchronous and asynchronous. Commands are sent by `send_packed_command`, a pipeline's
all at once.

Each reply of a pipeline sets the end of its one call; the last reply counts.
"""

from __future__ import annotations

from time import monotonic_ns
from typing import Any

from qjoule_drivers.channel import Peer, channel
from qjoule_drivers.comments import connection_name
from qjoule_drivers.ring import ERROR, OK
from qjoule_drivers.shims.shim import Shim, find_peer, peer_of

_LONGEST_NAME = 256  #: Redis itself has no limit; `CLIENT LIST` is read by people


def _send_packed_command(original: Any) -> Any:
    now = monotonic_ns  # faster than a global

    def send_packed_command(self: Any, command: Any, check_health: bool = True) -> Any:
        peer = self._qjoule_peer
        if peer is not None:
            to = peer.to
            if peer.frame is to.frame() and now() < to.until_ns:
                return original(self, command, check_health)  # nothing to report
        if SHIM.active:
            # Connect first: commands that the original sends by itself get their own calls, and are
            # done before this call begins.
            if not self._sock:
                _connect(self)
            if check_health and self.health_check_interval:
                self.check_health()
            self._qjoule_call = channel.begin(self._qjoule_peer or find_peer(self, _describe))
        return original(self, command, check_health)

    return send_packed_command


def _read_response(original: Any) -> Any:
    def read_response(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            response = original(self, *args, **kwargs)
        except BaseException:
            channel.end(self._qjoule_peer, self._qjoule_call, ERROR)
            raise
        channel.end(self._qjoule_peer, self._qjoule_call, OK)
        return response

    return read_response


def _disconnect(original: Any) -> Any:
    def disconnect(self: Any, *args: Any, **kwargs: Any) -> Any:
        self._qjoule_peer = None
        self._qjoule_call = 0
        return original(self, *args, **kwargs)

    return disconnect


def _disconnect_async(original: Any) -> Any:
    async def disconnect(self: Any, *args: Any, **kwargs: Any) -> Any:
        self._qjoule_peer = None
        self._qjoule_call = 0
        return await original(self, *args, **kwargs)

    return disconnect


def _send_packed_command_async(original: Any) -> Any:
    async def send_packed_command(self: Any, command: Any, check_health: bool = True) -> Any:
        if SHIM.active:
            if not self.is_connected:
                await _connect(self)
            if check_health and self.health_check_interval:
                await self.check_health()
            self._qjoule_call = channel.begin(self._qjoule_peer or find_peer(self, _describe_async))
        return await original(self, command, check_health)

    return send_packed_command


def _read_response_async(original: Any) -> Any:
    async def read_response(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            response = await original(self, *args, **kwargs)
        except BaseException:
            channel.end(self._qjoule_peer, self._qjoule_call, ERROR)
            raise
        channel.end(self._qjoule_peer, self._qjoule_call, OK)
        return response

    return read_response


def _connect(connection: Any) -> Any:
    """Connects in the same way as this version's original."""
    if hasattr(connection, "connect_check_health"):
        return connection.connect_check_health(check_health=False)
    return connection.connect()


def _init(original: Any) -> Any:
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        try:
            if SHIM.active and not self.client_name:
                self.client_name = connection_name(_LONGEST_NAME) or self.client_name
        except Exception:
            channel.failed()

    return __init__


def _describe(connection: Any) -> Peer:
    return peer_of(connection._sock, "redis")


def _describe_async(connection: Any) -> Peer:
    return peer_of(connection._writer.get_extra_info("socket"), "redis")


_SYNC, _ASYNC = "redis.connection", "redis.asyncio.connection"
SHIM = Shim(
    name="redis",
    trigger="redis",
    distribution="redis",
    tested=("5.0", "9"),
    modules=(_SYNC, _ASYNC),
    sites=(
        (_SYNC, "AbstractConnection", "__init__", _init),
        (_ASYNC, "AbstractConnection", "__init__", _init),
        (_SYNC, "AbstractConnection", "send_packed_command", _send_packed_command),
        (_SYNC, "AbstractConnection", "disconnect", _disconnect),
        (_ASYNC, "AbstractConnection", "send_packed_command", _send_packed_command_async),
        (_ASYNC, "AbstractConnection", "disconnect", _disconnect_async),
    ),
    ends=(
        (_SYNC, "AbstractConnection", "read_response", _read_response),
        (_ASYNC, "AbstractConnection", "read_response", _read_response_async),
    ),
    defaults=(
        (_SYNC, "AbstractConnection", "_qjoule_peer", None),
        (_SYNC, "AbstractConnection", "_qjoule_call", 0),
        (_ASYNC, "AbstractConnection", "_qjoule_peer", None),
        (_ASYNC, "AbstractConnection", "_qjoule_call", 0),
    ),
)
