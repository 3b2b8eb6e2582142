"""A call's two ends, as a shim tells them: whatever happens here, the application goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from qjoule_drivers.channel import Peer, channel


def begin(connection: Any, meet: Callable[[Any], Peer]) -> int:
    """A statement is about to be sent; returns its call, 0 if nobody listens.

    A driver's connection carries its peer as ``_qjoule_peer``; ``meet`` makes that of a new one.
    """
    try:
        return channel.begin(connection._qjoule_peer or meet(connection))
    except Exception:
        channel.failed()
        return 0


def end(peer: Peer | None, call: int, status: int) -> None:
    """The result of ``call`` has arrived; nothing to tell if that is 0."""
    if call and peer is not None:
        try:
            channel.end(peer, call, status)
        except Exception:
            channel.failed()
