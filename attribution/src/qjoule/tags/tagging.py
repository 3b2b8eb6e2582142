"""What a recording asks: which tags its queries have."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa

from qjoule.tags.calls import Array, Calls
from qjoule.tags.listener import DEFAULT_PATH, Listener


class TagSource:
    """The applications of this host, from now until `close`."""

    def __init__(self, path: Path | None = None, owner: int | None = None) -> None:
        """Listens at once: while this process still has root's rights. Raises QjouleError.

        Args:
            path: of the socket; default: `QJOULE_TAGS_SOCKET`, or below /run.
            owner: of the folder below /run: who will have to remove the socket.
        """
        named = os.environ.get("QJOULE_TAGS_SOCKET")
        self._calls = Calls()
        path = path or (Path(named) if named else DEFAULT_PATH)
        self._listener = Listener(path, self._calls)
        if owner is not None and path == DEFAULT_PATH:
            os.chown(path.parent, owner, -1)

    @property
    def lost(self) -> int:
        """Calls that applications could not tell, or that were forgotten or not believed."""
        return self._listener.lost + self._calls.dropped + self._calls.unbelievable

    @property
    def applications(self) -> int:
        """Processes that came."""
        return self._listener.met

    @property
    def joined(self) -> int:
        """Queries whose call is known."""
        return self._calls.joined

    def start(self) -> None:
        """Takes what comes, from now on."""
        self._listener.start()

    def tags_of(
        self, connections: list[str | None], codes: Array, streams: Array, begins_ns: Array
    ) -> pa.MapArray:
        """Tags of queries that have ended: what their calls wrote has been written by then."""
        self._listener.poll()
        return self._calls.tags_of(connections, codes, streams, begins_ns)

    def close(self) -> None:
        """Takes no more, and tells the applications."""
        self._listener.close()
