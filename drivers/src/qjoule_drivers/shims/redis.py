"""redis-py, synchronous and asynchronous. Commands leave by `send_packed_command`, a pipeline's all
at once.

The replies of a pipeline end its call one after the other: the last one counts.
"""

from __future__ import annotations

from typing import Any

from qjoule_drivers.channel import Peer
from qjoule_drivers.ring import ERROR, OK
from qjoule_drivers.shims.calls import begin, end
from qjoule_drivers.shims.peer import peer_of
from qjoule_drivers.shims.shim import Shim


def _send_packed_command(original: Any) -> Any:
    def send_packed_command(self: Any, *args: Any, **kwargs: Any) -> Any:
        # Not connected: it connects first, and greets by commands of their own.
        if SHIM.active and self._sock is not None:
            self._qjoule_call = begin(self, _meet)
        return original(self, *args, **kwargs)

    return send_packed_command


def _read_response(original: Any) -> Any:
    def read_response(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            response = original(self, *args, **kwargs)
        except BaseException:
            _end(self, ERROR)
            raise
        _end(self, OK)
        return response

    return read_response


def _disconnect(original: Any) -> Any:
    def disconnect(self: Any, *args: Any, **kwargs: Any) -> Any:
        self._qjoule_peer = None
        self._qjoule_call = 0
        return original(self, *args, **kwargs)

    return disconnect


def _send_packed_command_async(original: Any) -> Any:
    async def send_packed_command(self: Any, *args: Any, **kwargs: Any) -> Any:
        if SHIM.active and self._writer is not None:
            self._qjoule_call = begin(self, _meet_async)
        return await original(self, *args, **kwargs)

    return send_packed_command


def _read_response_async(original: Any) -> Any:
    async def read_response(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            response = await original(self, *args, **kwargs)
        except BaseException:
            _end(self, ERROR)
            raise
        _end(self, OK)
        return response

    return read_response


def _end(connection: Any, status: int) -> None:
    end(connection._qjoule_peer, connection._qjoule_call, status)


def _meet(connection: Any) -> Peer:
    peer = peer_of(connection._sock, "redis")
    connection._qjoule_peer = peer
    return peer


def _meet_async(connection: Any) -> Peer:
    peer = peer_of(connection._writer.get_extra_info("socket"), "redis")
    connection._qjoule_peer = peer
    return peer


_SYNC, _ASYNC = "redis.connection", "redis.asyncio.connection"
SHIM = Shim(
    name="redis",
    trigger="redis",
    distribution="redis",
    tested=("5.0", "9"),
    modules=(_SYNC, _ASYNC),
    sites=(
        (_SYNC, "AbstractConnection", "send_packed_command", _send_packed_command),
        (_SYNC, "AbstractConnection", "read_response", _read_response),
        (_SYNC, "AbstractConnection", "disconnect", _disconnect),
        (_ASYNC, "AbstractConnection", "send_packed_command", _send_packed_command_async),
        (_ASYNC, "AbstractConnection", "read_response", _read_response_async),
        (_ASYNC, "AbstractConnection", "disconnect", _disconnect),
    ),
    defaults=(
        (_SYNC, "AbstractConnection", "_qjoule_peer", None),
        (_SYNC, "AbstractConnection", "_qjoule_call", 0),
        (_ASYNC, "AbstractConnection", "_qjoule_peer", None),
        (_ASYNC, "AbstractConnection", "_qjoule_call", 0),
    ),
)
