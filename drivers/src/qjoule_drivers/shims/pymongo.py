# SPDX-License-Identifier: Apache-2.0
"""PyMongo, synchronous and asynchronous. Every message goes through `Connection.send_message` and
`receive_message`.

A cursor's later batches (`getMore`) are separate calls, with the tags of the code that requests
them. An unacknowledged write has no end, because the server does not answer.
"""

from __future__ import annotations

from time import monotonic_ns
from typing import Any

from qjoule_drivers.channel import Peer, channel
from qjoule_drivers.comments import chosen, pairs_of
from qjoule_drivers.ring import ERROR, OK
from qjoule_drivers.shims.shim import Shim, end, ending, find_peer, peer_of

#: Commands that take a `comment` (MongoDB 4.4 and later).
_COMMENTED = frozenset(
    (
        "find",
        "aggregate",
        "insert",
        "update",
        "delete",
        "findAndModify",
        "getMore",
        "distinct",
        "count",
    )
)


def _send_message(original: Any) -> Any:
    now = monotonic_ns  # faster than a global

    def send_message(self: Any, message: Any, max_doc_size: Any) -> Any:
        peer = self._qjoule_peer
        if peer is not None:
            to = peer.to
            if peer.frame is to.frame() and now() < to.until_ns:
                return original(self, message, max_doc_size)  # nothing to report
        if SHIM.active:
            self._qjoule_call = channel.begin(peer or find_peer(self, _describe))
        return original(self, message, max_doc_size)

    return send_message


def _send_message_async(original: Any) -> Any:
    async def send_message(self: Any, message: Any, max_doc_size: Any) -> Any:
        if SHIM.active:
            self._qjoule_call = channel.begin(self._qjoule_peer or find_peer(self, _describe))
        return await original(self, message, max_doc_size)

    return send_message


def _receive_message_async(original: Any) -> Any:
    async def receive_message(self: Any, request_id: Any) -> Any:
        try:
            reply = await original(self, request_id)
        except BaseException:
            end(self, ERROR)
            raise
        end(self, OK)
        return reply

    return receive_message


def _close_conn(original: Any) -> Any:
    def close_conn(self: Any, *args: Any, **kwargs: Any) -> Any:
        self._qjoule_peer = None
        return original(self, *args, **kwargs)

    return close_conn


def _close_conn_async(original: Any) -> Any:
    async def close_conn(self: Any, *args: Any, **kwargs: Any) -> Any:
        self._qjoule_peer = None
        return await original(self, *args, **kwargs)

    return close_conn


def _op_msg(original: Any) -> Any:
    def _op_msg(flags: Any, command: Any, *args: Any, **kwargs: Any) -> Any:
        return original(flags, _commented(command), *args, **kwargs)

    return _op_msg


def _do_batched_op_msg(original: Any) -> Any:
    def _do_batched_op_msg(namespace: Any, operation: Any, command: Any, *args: Any) -> Any:
        return original(namespace, operation, _commented(command), *args)

    return _do_batched_op_msg


def _commented(command: Any) -> Any:
    """The command with the tags that go into statements, unless it has a comment of its own."""
    try:
        tags = chosen()
        if tags and "comment" not in command and next(iter(command)) in _COMMENTED:
            return {**command, "comment": pairs_of(tags)}
    except Exception:
        channel.failed()
    return command


def _describe(connection: Any) -> Peer:
    interface = connection.conn
    sock = getattr(interface, "sock", None)
    if sock is None:
        sock = interface.get_conn
    transport = getattr(sock, "transport", None)
    if transport is not None:
        sock = transport.get_extra_info("socket")
    return peer_of(sock, "mongodb")


_SYNC, _ASYNC = "pymongo.synchronous.pool", "pymongo.asynchronous.pool"
SHIM = Shim(
    name="pymongo",
    trigger="pymongo",
    distribution="pymongo",
    tested=("4.20", "5"),
    modules=("pymongo.message", _SYNC, _ASYNC),
    sites=(
        (_SYNC, "Connection", "send_message", _send_message),
        (_SYNC, "Connection", "close_conn", _close_conn),
        (_ASYNC, "AsyncConnection", "send_message", _send_message_async),
        (_ASYNC, "AsyncConnection", "close_conn", _close_conn_async),
    ),
    ends=(
        (_SYNC, "Connection", "receive_message", ending),
        (_ASYNC, "AsyncConnection", "receive_message", _receive_message_async),
    ),
    in_statements=(
        ("pymongo.message", "", "_op_msg", _op_msg),
        ("pymongo.message", "", "_do_batched_op_msg", _do_batched_op_msg),
    ),
    defaults=(
        (_SYNC, "Connection", "_qjoule_peer", None),
        (_SYNC, "Connection", "_qjoule_call", 0),
        (_ASYNC, "AsyncConnection", "_qjoule_peer", None),
        (_ASYNC, "AsyncConnection", "_qjoule_call", 0),
    ),
)
