# SPDX-License-Identifier: Apache-2.0
"""The DataStax driver for Cassandra. Every request goes through `Connection.send_msg`, from
whichever thread sends it.

A call ends when its response arrives in the event loop's thread, even if `execute_async` returned
long ago. Each page, preparation and retry is a separate call. Those that the driver sends later, on
other threads, carry the tags and trace of the code that made the request. Requests of one
connection overlap; the CQL stream id distinguishes them.
"""

from __future__ import annotations

from contextvars import Context, copy_context
from time import monotonic_ns
from typing import Any

from qjoule_drivers.channel import Peer, channel
from qjoule_drivers.comments import chosen
from qjoule_drivers.ring import ERROR, OK
from qjoule_drivers.shims.shim import Shim, find_peer, peer_of

_PAYLOAD_FROM = 4
_WITH_PAYLOAD = frozenset(("QueryMessage", "PrepareMessage", "ExecuteMessage", "BatchMessage"))


def _send_msg(original: Any) -> Any:
    now = monotonic_ns  # faster than a global

    def send_msg(self: Any, msg: Any, request_id: Any, cb: Any, *args: Any, **kwargs: Any) -> Any:
        peer = self._qjoule_peer
        if peer is not None:
            last = peer.streams.get(request_id + 1)
            if last is not None:
                frame, to = last
                if frame is to.frame() and now() < to.until_ns:
                    return original(self, msg, request_id, cb, *args, **kwargs)  # nothing to report
        if SHIM.active:
            peer = peer or find_peer(self, _describe)
            call = channel.begin(peer, request_id + 1)
            if call:
                cb = _ending(cb, peer, call)
        return original(self, msg, request_id, cb, *args, **kwargs)

    return send_msg


def _send_msg_with_payload(original: Any) -> Any:
    def send_msg(self: Any, msg: Any, *args: Any, **kwargs: Any) -> Any:
        if SHIM.active:
            _put_payload(msg, self.protocol_version)
        return original(self, msg, *args, **kwargs)

    return send_msg


def _ending(callback: Any, peer: Peer | None, call: int) -> Any:
    def ending(response: Any, *args: Any, **kwargs: Any) -> Any:
        failed = isinstance(response, Exception) or type(response).__name__ == "ErrorMessage"
        channel.end(peer, call, ERROR if failed else OK)
        return callback(response, *args, **kwargs)

    return ending


def _put_payload(message: Any, version: int) -> None:
    """Adds CQL's custom payload, which leaves the statement unchanged: no extra preparation.

    Only from protocol version 4 on, and only for these requests (native_protocol_v4.spec, section
    2.2). For others the driver raises.
    """
    try:
        tags = chosen()
        if tags and version >= _PAYLOAD_FROM and type(message).__name__ in _WITH_PAYLOAD:
            payload = {f"qjoule.{key}": value.encode() for key, value in tags.items()}
            message.custom_payload = {**payload, **(message.custom_payload or {})}
    except Exception:
        channel.failed()


def _send_request(original: Any) -> Any:
    def send_request(self: Any, *args: Any, **kwargs: Any) -> Any:
        self._qjoule_context = copy_context()
        return original(self, *args, **kwargs)

    return send_request


def _in_request_context(original: Any) -> Any:
    def later(self: Any, *args: Any, **kwargs: Any) -> Any:
        context: Context | None = self._qjoule_context
        if context is None:
            return original(self, *args, **kwargs)
        # A copy, because a context cannot be entered twice and several of these may run at once.
        return context.copy().run(original, self, *args, **kwargs)

    return later


def _describe(connection: Any) -> Peer:
    sock = connection._socket
    return peer_of(getattr(sock, "_sock", None) or sock, "cassandra")


_CLUSTER, _CONNECTION = "cassandra.cluster", "cassandra.connection"
SHIM = Shim(
    name="cassandra",
    trigger=_CLUSTER,
    distribution="cassandra-driver",
    tested=("3.29", "4"),
    modules=(_CLUSTER, _CONNECTION),
    sites=(
        (_CONNECTION, "Connection", "send_msg", _send_msg),
        (_CLUSTER, "ResponseFuture", "send_request", _send_request),
        (_CLUSTER, "ResponseFuture", "_retry_task", _in_request_context),
        (_CLUSTER, "ResponseFuture", "_reprepare", _in_request_context),
    ),
    in_statements=((_CONNECTION, "Connection", "send_msg", _send_msg_with_payload),),
    optional=((_CLUSTER, "ResponseFuture", "_on_speculative_execute", _in_request_context),),
    defaults=(
        (_CONNECTION, "Connection", "_qjoule_peer", None),
        (_CLUSTER, "ResponseFuture", "_qjoule_context", None),
    ),
)
