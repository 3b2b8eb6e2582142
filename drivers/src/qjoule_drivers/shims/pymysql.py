# SPDX-License-Identifier: Apache-2.0
"""PyMySQL. Everything it sends goes through `Connection._execute_command`; three methods read
results.

A call ends with its last result: the last of several (multi-statements), or the last row of an
unbuffered one (`SSCursor`).

Tags in statements are query attributes if the connection has negotiated them, else comments. The
negotiated format holds as long as the connection is open, even after the driver is unwrapped. So
the two methods that depend on it are replaced on the connection itself.
"""

from __future__ import annotations

import weakref
from functools import partial
from time import monotonic_ns
from typing import Any

from qjoule_drivers.channel import Peer, channel
from qjoule_drivers.comments import (
    CAPABILITY,
    NONE,
    attributes,
    commented,
    connection_tags,
    keys_in_statements,
)
from qjoule_drivers.ring import ERROR, OK
from qjoule_drivers.shims.shim import WRAPPER, Shim, end, ending, find_peer, peer_of

_COM_QUERY = 3


def _connect(original: Any) -> Any:
    def connect(self: Any, sock: Any = None) -> Any:
        self._qjoule_peer = None  # a new socket is a new connection for the server
        self._qjoule_call = 0
        try:
            if SHIM.active:
                attributes = {f"qjoule.{key}": tag for key, tag in connection_tags().items()}
                self._connect_attrs = {**self._connect_attrs, **attributes}
        except Exception:
            channel.failed()
        return original(self, sock)

    return connect


def _execute_command(original: Any) -> Any:
    now = monotonic_ns  # faster than a global

    def _execute_command(self: Any, command: Any, sql: Any) -> Any:
        peer = self._qjoule_peer
        if peer is not None:
            to = peer.to
            if peer.frame is to.frame() and now() < to.until_ns:
                return original(self, command, sql)  # nothing to report
        if not SHIM.active or self._sock is None:
            return original(self, command, sql)
        call = channel.begin(peer or find_peer(self, _describe))
        if not call:
            return original(self, command, sql)
        try:
            return original(self, command, sql)
        finally:
            # Only now: the original may have read the rest of the last result.
            self._qjoule_call = call

    return _execute_command


def _with_comment(original: Any) -> Any:
    def _execute_command(self: Any, command: Any, sql: Any) -> Any:
        if command == _COM_QUERY and SHIM.active and not self._qjoule_attributes:
            try:
                sql = commented(sql)
            except Exception:
                channel.failed()
        return original(self, command, sql)

    return _execute_command


def _request_authentication(original: Any) -> Any:
    def _request_authentication(self: Any) -> Any:
        _negotiate_attributes(self)
        return original(self)

    return _request_authentication


def _negotiate_attributes(connection: Any) -> None:
    """Negotiates attributes, or not, before the connection answers the server's greeting.

    Does nothing if a subclass sends statements in its own way.
    """
    try:
        _drop_attributes(connection)  # drop what an earlier connect() negotiated
        if (
            SHIM.active
            and keys_in_statements
            and "_execute_command" not in vars(connection)
            and connection.server_capabilities & ~connection.client_flag & CAPABILITY
            and "MariaDB" not in connection.server_version
            and hasattr(type(connection)._execute_command, WRAPPER)
        ):
            # avoids a reference cycle, so that an unused connection is closed
            itself = weakref.ref(connection)
            connection._qjoule_attributes = True
            connection._execute_command = partial(_with_attributes, itself)
            connection._request_authentication = partial(_renegotiate_attributes, itself)
            connection.client_flag |= CAPABILITY
    except Exception:
        channel.failed()
        _drop_attributes(connection)


def _drop_attributes(connection: Any) -> None:
    if vars(connection).pop("_qjoule_attributes", False):
        vars(connection).pop("_execute_command", None)
        vars(connection).pop("_request_authentication", None)
        connection.client_flag &= ~CAPABILITY


def _with_attributes(itself: Any, command: Any, sql: Any) -> Any:
    connection = itself()
    if command == _COM_QUERY:
        before = NONE
        try:
            if SHIM.active:
                before = attributes(connection.encoding)
        except Exception:
            channel.failed()
        sql = before + (sql.encode(connection.encoding) if isinstance(sql, str) else sql)
    return type(connection)._execute_command(connection, command, sql)


def _renegotiate_attributes(itself: Any) -> Any:
    connection = itself()
    _negotiate_attributes(connection)
    return type(connection)._request_authentication(connection)


def _force_close(original: Any) -> Any:
    def _force_close(self: Any) -> Any:
        self._qjoule_peer = None
        return original(self)

    return _force_close


def _read_query_result(original: Any) -> Any:
    def _read_query_result(self: Any, unbuffered: Any = False) -> Any:
        try:
            rows = original(self, unbuffered)
        except BaseException:
            end(self, ERROR)
            raise
        call = self._qjoule_call
        if call:
            result = self._result
            if result.unbuffered_active:
                result._qjoule_call = (self._qjoule_peer, call)
                self._qjoule_call = 0
            elif not result.has_next:
                self._qjoule_call = 0
                channel.end(self._qjoule_peer, call, OK)
        return rows

    return _read_query_result


def _read_unbuffered(original: Any) -> Any:
    def read(self: Any) -> Any:
        try:
            return original(self)
        finally:
            if not self.unbuffered_active and self._qjoule_call is not None:
                (peer, call), self._qjoule_call = self._qjoule_call, None
                channel.end(peer, call, OK)

    return read


def _describe(connection: Any) -> Peer:
    thread_id = connection.server_thread_id
    session = thread_id[0] if isinstance(thread_id, (tuple, list)) else thread_id
    return peer_of(connection._sock, "mysql", session if isinstance(session, int) else None)


_MODULE = "pymysql.connections"
SHIM = Shim(
    name="pymysql",
    trigger=_MODULE,
    distribution="pymysql",
    tested=("0.10", "1.3"),
    modules=(_MODULE,),
    sites=(
        (_MODULE, "Connection", "connect", _connect),
        (_MODULE, "Connection", "_execute_command", _execute_command),
        (_MODULE, "Connection", "_force_close", _force_close),
    ),
    ends=(
        (_MODULE, "Connection", "_read_query_result", _read_query_result),
        (_MODULE, "Connection", "_read_ok_packet", ending),
        (_MODULE, "MySQLResult", "_read_rowdata_packet_unbuffered", _read_unbuffered),
        (_MODULE, "MySQLResult", "_finish_unbuffered_query", _read_unbuffered),
    ),
    in_statements=(
        (_MODULE, "Connection", "_execute_command", _with_comment),
        (_MODULE, "Connection", "_request_authentication", _request_authentication),
    ),
    defaults=(
        (_MODULE, "Connection", "_qjoule_peer", None),
        (_MODULE, "Connection", "_qjoule_call", 0),
        (_MODULE, "Connection", "_qjoule_attributes", False),
        (_MODULE, "MySQLResult", "_qjoule_call", None),
    ),
)
