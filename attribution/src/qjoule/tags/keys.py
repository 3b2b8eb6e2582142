# SPDX-License-Identifier: Apache-2.0
"""The key that joins calls and queries: a connection and one of its streams, as one number."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from qjoule.tags.definitions import Connection


def name_of(connection: Connection) -> str | None:
    """The connection's name, which the server's end also knows; None if the application lacks it.

    >>> name_of(Connection("sql", "127.0.0.1 51234", "127.0.0.1 3306"))
    '127.0.0.1 51234 > 127.0.0.1 3306'
    """
    if connection.client is None or connection.client.startswith("unix "):
        return connection.client
    return f"{connection.client} > {connection.server}" if connection.server else None


#: In place of a stream: the whole connection.
WHOLE = -1


class Keys:
    """A number for each connection and stream."""

    def __init__(self) -> None:
        self._streams: dict[str, dict[int, int]] = {}
        self._next = 0

    def number(self, connection: str, stream: int) -> int:
        """Its number; assigns one if it has none."""
        streams = self._streams.setdefault(connection, {})
        if stream not in streams:
            streams[stream] = self._next
            self._next += 1
        return streams[stream]

    def known(self, connection: str, stream: int) -> int:
        """Its number; -1 if it has none."""
        return self._streams.get(connection, {}).get(stream, -1)

    def has(self, connection: str | None) -> bool:
        """Whether any of its streams has a number; None: any connection's."""
        return bool(self._streams) if connection is None else connection in self._streams

    def names(self) -> dict[int, tuple[str, int]]:
        """The connection and stream of each number."""
        return {
            number: (name, stream)
            for name, streams in self._streams.items()
            for stream, number in streams.items()
        }

    def wholes(self) -> NDArray[np.int64]:
        """(numbers,): for each number, the number of its whole connection; -1 if that has none."""
        numbers = np.full(self._next, -1, np.int64)
        for streams in self._streams.values():
            if WHOLE in streams:
                numbers[list(streams.values())] = streams[WHOLE]
        return numbers

    def renumber(self, kept: Iterable[int]) -> None:
        """Renumbers these from 0, in this order, and forgets the others."""
        new = {old: number for number, old in enumerate(kept)}
        found = {
            name: {stream: new[key] for stream, key in streams.items() if key in new}
            for name, streams in self._streams.items()
        }
        self._streams = {name: streams for name, streams in found.items() if streams}
        self._next = len(new)
