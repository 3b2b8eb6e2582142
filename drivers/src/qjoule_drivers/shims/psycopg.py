# SPDX-License-Identifier: Apache-2.0
"""Psycopg 3, synchronous and asynchronous. Everything it sends and receives goes through
`Connection.wait`.

A call lasts as long as one `wait`. So BEGIN and the statement after it are one call. Each batch
of a server-side cursor, and each piece of a COPY, is a call.
"""

from __future__ import annotations

from time import monotonic_ns
from typing import Any

from qjoule_drivers.channel import Peer, channel
from qjoule_drivers.comments import commented, connection_name
from qjoule_drivers.ring import ERROR, OK
from qjoule_drivers.shims.shim import Shim, find_peer, peer_of_descriptor

_LONGEST_NAME = 63  #: NAMEDATALEN - 1: the server cuts `application_name` there


def _wait(original: Any) -> Any:
    now = monotonic_ns  # faster than a global

    def wait(self: Any, gen: Any, *args: Any, **options: Any) -> Any:
        peer = self._qjoule_peer
        if peer is not None:
            to = peer.to
            if peer.frame is to.frame() and now() < to.until_ns:
                if args or options:
                    return original(self, gen, *args, **options)
                return original(self, gen)  # nothing to report
        call = channel.begin(peer or find_peer(self, _describe)) if SHIM.active else 0
        if not call:
            return original(self, gen, *args, **options)
        try:
            result = original(self, gen, *args, **options)
        except BaseException:
            channel.end(self._qjoule_peer, call, ERROR)
            raise
        channel.end(self._qjoule_peer, call, OK)
        return result

    return wait


def _wait_async(original: Any) -> Any:
    async def wait(self: Any, *args: Any, **options: Any) -> Any:
        call = 0
        if SHIM.active:
            call = channel.begin(self._qjoule_peer or find_peer(self, _describe))
        if not call:
            return await original(self, *args, **options)
        try:
            result = await original(self, *args, **options)
        except BaseException:
            channel.end(self._qjoule_peer, call, ERROR)
            raise
        channel.end(self._qjoule_peer, call, OK)
        return result

    return wait


def _close(original: Any) -> Any:
    def close(self: Any) -> Any:
        result = original(self)
        if self.closed:  # false if it went back to its pool
            self._qjoule_peer = None
        return result

    return close


def _close_async(original: Any) -> Any:
    async def close(self: Any) -> Any:
        result = await original(self)
        if self.closed:
            self._qjoule_peer = None
        return result

    return close


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


def _parameters(original: Any) -> Any:
    def _get_connection_params(cls: Any, *args: Any, **kwargs: Any) -> Any:
        return _with_name(original.__func__(cls, *args, **kwargs))

    return classmethod(_get_connection_params)


def _parameters_async(original: Any) -> Any:
    async def _get_connection_params(cls: Any, *args: Any, **kwargs: Any) -> Any:
        return _with_name(await original.__func__(cls, *args, **kwargs))

    return classmethod(_get_connection_params)


def _with_name(parameters: Any) -> Any:
    """Adds a name that libpq uses only if neither the application nor `PGAPPNAME` sets one."""
    try:
        name = connection_name(_LONGEST_NAME) if SHIM.active else ""
        if name and "fallback_application_name" not in parameters:
            return {**parameters, "fallback_application_name": name}
    except Exception:
        channel.failed()
    return parameters


def _describe(connection: Any) -> Peer:
    pgconn = connection.pgconn
    return peer_of_descriptor(pgconn.socket, "postgresql", pgconn.backend_pid)


_SYNC, _ASYNC, _QUERIES = "psycopg.connection", "psycopg.connection_async", "psycopg._queries"
SHIM = Shim(
    name="psycopg",
    trigger="psycopg",
    distribution="psycopg",
    tested=("3.1", "3.4"),
    modules=("psycopg", _QUERIES),
    sites=(
        (_SYNC, "Connection", "wait", _wait),
        (_SYNC, "Connection", "close", _close),
        (_ASYNC, "AsyncConnection", "wait", _wait_async),
        (_ASYNC, "AsyncConnection", "close", _close_async),
    ),
    optional=(
        (_SYNC, "Connection", "_get_connection_params", _parameters),
        (_ASYNC, "AsyncConnection", "_get_connection_params", _parameters_async),
    ),
    in_statements=(
        (_QUERIES, "PostgresQuery", "convert", _convert),
        (_QUERIES, "PostgresClientQuery", "convert", _convert),
    ),
    defaults=(
        (_SYNC, "Connection", "_qjoule_peer", None),
        (_ASYNC, "AsyncConnection", "_qjoule_peer", None),
    ),
)
