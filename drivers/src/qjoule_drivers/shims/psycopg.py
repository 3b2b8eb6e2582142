"""Psycopg 3, synchronous and asynchronous. All that it sends and receives goes through
`Connection.wait`.

A call lasts as long as one `wait`: BEGIN and the statement that it was sent with are one call, each
batch of a server-side cursor and each piece of a COPY is one.
"""

from __future__ import annotations

from typing import Any

from qjoule_drivers.channel import Peer, channel
from qjoule_drivers.comments import commented
from qjoule_drivers.ring import ERROR, OK
from qjoule_drivers.shims.calls import begin, end
from qjoule_drivers.shims.peer import peer_of_descriptor
from qjoule_drivers.shims.shim import Shim


def _wait(original: Any) -> Any:
    def wait(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not SHIM.active:
            return original(self, *args, **kwargs)
        call = begin(self, _meet)
        try:
            result = original(self, *args, **kwargs)
        except BaseException:
            end(self._qjoule_peer, call, ERROR)
            raise
        end(self._qjoule_peer, call, OK)
        return result

    return wait


def _wait_async(original: Any) -> Any:
    async def wait(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not SHIM.active:
            return await original(self, *args, **kwargs)
        call = begin(self, _meet)
        try:
            result = await original(self, *args, **kwargs)
        except BaseException:
            end(self._qjoule_peer, call, ERROR)
            raise
        end(self._qjoule_peer, call, OK)
        return result

    return wait


def _convert(original: Any) -> Any:
    def convert(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        if SHIM.active:
            try:
                self.query = commented(self.query)
            except Exception:
                channel.failed()
        return result

    return convert


def _meet(connection: Any) -> Peer:
    pgconn = connection.pgconn
    peer = peer_of_descriptor(pgconn.socket, "postgresql", pgconn.backend_pid)
    connection._qjoule_peer = peer
    return peer


_SYNC, _ASYNC, _QUERIES = "psycopg.connection", "psycopg.connection_async", "psycopg._queries"
SHIM = Shim(
    name="psycopg",
    trigger="psycopg",
    distribution="psycopg",
    tested=("3.1", "3.4"),
    modules=("psycopg", _QUERIES),
    sites=(
        (_SYNC, "Connection", "wait", _wait),
        (_ASYNC, "AsyncConnection", "wait", _wait_async),
    ),
    optional=(
        (_QUERIES, "PostgresQuery", "convert", _convert),
        (_QUERIES, "PostgresClientQuery", "convert", _convert),
    ),
    defaults=(
        (_SYNC, "Connection", "_qjoule_peer", None),
        (_ASYNC, "AsyncConnection", "_qjoule_peer", None),
    ),
)
