"""The DataStax driver for Cassandra. Every request goes through `Connection.send_msg`, from
whichever thread sends it.

A call ends when its response arrives, in the event loop's thread, however long ago `execute_async`
returned. Each page, each preparation and each retry is a call of its own; those that the driver
sends by itself, later and elsewhere, carry the tags of the code that asked for the request.
Requests of one connection overlap: the CQL stream id tells them apart.
"""

from __future__ import annotations

from typing import Any

from qjoule_drivers.channel import Peer, channel
from qjoule_drivers.comments import chosen
from qjoule_drivers.context import innermost, resume
from qjoule_drivers.ring import ERROR, OK
from qjoule_drivers.shims.peer import peer_of
from qjoule_drivers.shims.shim import Shim


def _send_msg(original: Any) -> Any:
    def send_msg(self: Any, msg: Any, request_id: Any, cb: Any, *args: Any, **kwargs: Any) -> Any:
        if SHIM.active:
            try:
                peer = self._qjoule_peer or _meet(self)
                call = channel.begin(peer, request_id + 1)
                if call:
                    cb = _ending(cb, peer, call)
                _put_payload(msg)
            except Exception:
                channel.failed()
        return original(self, msg, request_id, cb, *args, **kwargs)

    return send_msg


def _ending(callback: Any, peer: Peer, call: int) -> Any:
    def ending(response: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            failed = isinstance(response, Exception) or type(response).__name__ == "ErrorMessage"
            channel.end(peer, call, ERROR if failed else OK)
        except Exception:
            channel.failed()
        return callback(response, *args, **kwargs)

    return ending


def _put_payload(message: Any) -> None:
    """CQL's custom payload (native protocol 4, section 2.3), beside the statement: nothing is
    prepared twice for it.
    """
    tags = chosen()
    if tags and hasattr(message, "custom_payload"):
        mine = {f"qjoule.{key}": value.encode() for key, value in tags.items()}
        message.custom_payload = {**mine, **(message.custom_payload or {})}


def _send_request(original: Any) -> Any:
    def send_request(self: Any, *args: Any, **kwargs: Any) -> Any:
        self._qjoule_frame = innermost()
        return original(self, *args, **kwargs)

    return send_request


def _later(original: Any) -> Any:
    def later(self: Any, *args: Any, **kwargs: Any) -> Any:
        frame = self._qjoule_frame
        if frame is None:
            return original(self, *args, **kwargs)
        with resume(frame):
            return original(self, *args, **kwargs)

    return later


def _meet(connection: Any) -> Peer:
    sock = connection._socket
    peer = peer_of(getattr(sock, "_sock", None) or sock, "cassandra")
    connection._qjoule_peer = peer
    return peer


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
        (_CLUSTER, "ResponseFuture", "_retry_task", _later),
        (_CLUSTER, "ResponseFuture", "_reprepare", _later),
    ),
    optional=((_CLUSTER, "ResponseFuture", "_on_speculative_execute", _later),),
    defaults=(
        (_CONNECTION, "Connection", "_qjoule_peer", None),
        (_CLUSTER, "ResponseFuture", "_qjoule_frame", None),
    ),
)
