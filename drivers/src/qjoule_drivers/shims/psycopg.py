"""Psycopg 3, synchronous and asynchronous. All that it sends and receives goes through
`Connection.wait`.

A call lasts as long as one `wait`: BEGIN and the statement that it was sent with are one call, each
batch of a server-side cursor and each piece of a COPY is one.
"""

from __future__ import annotations

from typing import Any

from qjoule_drivers.channel import Peer, channel
from qjoule_drivers.comments import commented, keys_in_statements
from qjoule_drivers.connections import name_of_a_new_connection
from qjoule_drivers.ring import ERROR, OK
from qjoule_drivers.shims.peer import meet, peer_of_descriptor
from qjoule_drivers.shims.shim import Shim

_LONGEST_NAME = 63  #: NAMEDATALEN - 1: the server cuts `application_name` there


def _wait(original: Any) -> Any:
    def wait(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not SHIM.active:
            return original(self, *args, **kwargs)
        call = channel.begin(self._qjoule_peer or meet(self, _describe))
        try:
            result = original(self, *args, **kwargs)
        except BaseException:
            channel.end(self._qjoule_peer, call, ERROR)
            raise
        channel.end(self._qjoule_peer, call, OK)
        return result

    return wait


def _wait_async(original: Any) -> Any:
    async def wait(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not SHIM.active:
            return await original(self, *args, **kwargs)
        call = channel.begin(self._qjoule_peer or meet(self, _describe))
        try:
            result = await original(self, *args, **kwargs)
        except BaseException:
            channel.end(self._qjoule_peer, call, ERROR)
            raise
        channel.end(self._qjoule_peer, call, OK)
        return result

    return wait


def _convert(original: Any) -> Any:
    def convert(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        if keys_in_statements and SHIM.active:
            try:
                self.query = commented(self.query)
            except Exception:
                channel.failed()
        return result

    return convert


def _parameters(original: Any) -> Any:
    def _get_connection_params(cls: Any, *args: Any, **kwargs: Any) -> Any:
        return _named(original.__func__(cls, *args, **kwargs))

    return classmethod(_get_connection_params)


def _parameters_async(original: Any) -> Any:
    async def _get_connection_params(cls: Any, *args: Any, **kwargs: Any) -> Any:
        return _named(await original.__func__(cls, *args, **kwargs))

    return classmethod(_get_connection_params)


def _named(parameters: Any) -> Any:
    """With a name that libpq takes where neither the application nor `PGAPPNAME` gives one."""
    try:
        name = name_of_a_new_connection(_LONGEST_NAME) if SHIM.active else ""
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
        (_ASYNC, "AsyncConnection", "wait", _wait_async),
    ),
    optional=(
        (_SYNC, "Connection", "_get_connection_params", _parameters),
        (_ASYNC, "AsyncConnection", "_get_connection_params", _parameters_async),
        (_QUERIES, "PostgresQuery", "convert", _convert),
        (_QUERIES, "PostgresClientQuery", "convert", _convert),
    ),
    defaults=(
        (_SYNC, "Connection", "_qjoule_peer", None),
        (_ASYNC, "AsyncConnection", "_qjoule_peer", None),
    ),
)
