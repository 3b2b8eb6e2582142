# SPDX-License-Identifier: Apache-2.0
"""Helpers for joining queries with calls: join keys, searches among calls, ends of calls, eviction,
and tags as a column of queries.

A key numbers one stream of a connection.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qjoule.lazy_import import pa
from qjoule.tags.definitions import Connection, Tags

Array = NDArray[Any]


def distinct_pairs(a: Array, b: Array) -> list[tuple[Array, tuple[int, int]]]:
    """Returns each distinct pair of values with its rows."""
    if not a.size:
        return []
    # Most have no streams. Each pair becomes one integer: sorting rows of two is ten times slower.
    streams, which = np.unique(b, return_inverse=True) if b.any() else (b[:1], np.int64(0))
    uniques, codes = np.unique(a.astype(np.int64) * streams.size + which, return_inverse=True)
    order = np.argsort(codes, kind="stable")
    edges = np.searchsorted(codes[order], np.arange(len(uniques) + 1))
    return [
        (order[edges[n] : edges[n + 1]], (pair // streams.size, int(streams[pair % streams.size])))
        for n, pair in enumerate(uniques.tolist())
    ]


def last_before(calls: Array, keys: Array, begins_ns: Array) -> Array:
    """Index of each query's last call on its key that began at or before the query; -1: none.

    `calls` are sorted by key and time. Times are replaced by their ranks, so that key and time fit
    into one integer for the binary search.
    """
    if not calls.size:
        return np.full(keys.size, -1, np.int64)
    times = np.unique(np.concatenate([calls["t_ns"], begins_ns]))
    width = np.int64(times.size + 1)
    ranks = calls["key"] * width + np.searchsorted(times, calls["t_ns"])
    sought = keys * width + np.searchsorted(times, begins_ns)
    last = np.searchsorted(ranks, sought, side="right") - 1
    is_its = (keys >= 0) & (last >= 0) & (calls["key"][np.maximum(last, 0)] == keys)
    return np.where(is_its, last, -1)


def is_over(calls: Array, of_query: Array, wholes: Array, begins_ns: Array) -> Array:
    """Returns (n,) whether the connection was closed between the call and its query.

    `of_query`: as `last_before` returns it, -1: none. `connection_keys`: keys of whole connections.
    """
    if not (wholes >= 0).any():
        return np.zeros(of_query.size, np.bool_)
    last = last_before(calls, wholes, begins_ns)
    call, end = calls[np.maximum(of_query, 0)], calls[np.maximum(last, 0)]
    later = end["t_ns"] > call["t_ns"]
    later |= (end["t_ns"] == call["t_ns"]) & (end["number"] > call["number"])
    over: Array = (of_query >= 0) & (last >= 0) & later
    return over


def drop_from_largest_user(
    calls: Array, users: Mapping[int, int], sizes: Sequence[int] | None
) -> Array:
    """Drops the older half of the calls, at least one, of the user who uses the most room.

    Args:
        calls: array of `calls.CALL`, at least one; the order is preserved.
        users: user ids by application.
        sizes: size of each set of tags, by its number; None: each call counts as one.
    """
    applications, codes = np.unique(calls["application"], return_inverse=True)
    uids, of_application = np.unique([users[n] for n in applications.tolist()], return_inverse=True)
    of_call = of_application[codes.reshape(-1)]
    if sizes is None:
        room = np.bincount(of_call, minlength=uids.size)
    else:
        tagged, number = calls["tags"] >= 0, max(len(sizes), 1)
        pairs = np.unique(of_call[tagged] * np.int64(number) + calls["tags"][tagged])
        weights = np.array(sizes, np.float64)[pairs % number]
        room = np.bincount(pairs // number, weights, minlength=uids.size)
    its = np.flatnonzero(of_call == int(np.argmax(room)))
    oldest = its[np.argsort(calls["t_ns"][its], kind="stable")[: (its.size + 1) // 2]]
    return np.delete(calls, oldest)


#: Bound on the ends of all calls together.
MAX_ENDS = 100_000


class Ends:
    """Ends of calls by application and call. If there are too many, the user with the most loses
    the oldest."""

    def __init__(self, most: int = MAX_ENDS) -> None:
        self._most = most
        self._all: dict[int, dict[tuple[int, int], int]] = {}  #: by user
        self._counts: Counter[int] = Counter()
        self._number = 0

    def __bool__(self) -> bool:
        return self._number > 0

    def add(self, uid: int, application: int, call: int, t_ns: int) -> None:
        """Stores when the call ended."""
        ends = self._all.setdefault(uid, {})
        before = len(ends)
        ends[application, call] = t_ns
        added = len(ends) - before
        self._number += added
        self._counts[uid] += added
        if self._number > self._most:
            biggest = max(self._counts, key=lambda user: self._counts[user])
            ends = self._all[biggest]
            ends.pop(next(iter(ends)))
            self._number -= 1
            self._counts[biggest] -= 1
            if not ends:
                del self._all[biggest], self._counts[biggest]

    def of(self, uid: int, application: int, call: int) -> int:
        """Returns when the call ended; 0: unknown."""
        ends = self._all.get(uid)
        return ends.get((application, call), 0) if ends else 0


def tags_type() -> pa.DataType:
    """The Arrow type of the tags column."""
    return pa.map_(pa.string(), pa.string())


def as_maps(sets: Sequence[Tags], calls: Array, of_query: Array) -> pa.MapArray:
    """Returns a map per query with its call's tags and trace; null if there is no call.

    Args:
        sets: tag sets, indexed by the numbers in `calls`.
        calls: array of `calls.CALL`.
        of_query: (n,) index in `calls` of each query's call; -1: none.
    """
    names: list[str] = []
    values: list[str] = []
    offsets = np.zeros(of_query.size + 1, np.int32)
    query_calls = calls[np.maximum(of_query, 0)] if calls.size else calls
    tags = query_calls["tags"].tolist()
    traced = query_calls["traced"].tolist()
    for query in np.flatnonzero(of_query >= 0).tolist():
        pairs = sets[tags[query]]
        if traced[query]:
            ids = (("span", query_calls["span"][query]), ("trace", query_calls["trace"][query]))
            pairs = (*pairs, *((name, bytes(value).hex()) for name, value in ids))
        offsets[query + 1] = len(pairs)
        names += [name for name, _ in pairs]
        values += [value for _, value in pairs]
    ends = np.cumsum(offsets, dtype=np.int64).astype(np.int32)
    return pa.MapArray.from_arrays(
        pa.array(ends, pa.int32(), mask=np.append(of_query < 0, False)),
        pa.array(names, pa.string()),
        pa.array(values, pa.string()),
    )


def name_of(connection: Connection) -> str | None:
    """Names a connection as the server's end does; None if the application lacks an address.

    >>> name_of(Connection("sql", "127.0.0.1 51234", "127.0.0.1 3306"))
    '127.0.0.1 51234 > 127.0.0.1 3306'
    """
    if connection.client is None or connection.client.startswith("unix "):
        return connection.client
    return f"{connection.client} > {connection.server}" if connection.server else None


#: Stream number that means the whole connection.
WHOLE = -1


class Keys:
    """Numbers the streams of connections."""

    def __init__(self) -> None:
        self._streams: dict[str, dict[int, int]] = {}
        self._next = 0

    def number(self, connection: str, stream: int) -> int:
        """Returns the number of a stream, which is assigned at first use."""
        streams = self._streams.setdefault(connection, {})
        if stream not in streams:
            streams[stream] = self._next
            self._next += 1
        return streams[stream]

    def number_of(self, connection: str, stream: int) -> int:
        """Returns the number of a stream; -1 if it has none."""
        return self._streams.get(connection, {}).get(stream, -1)

    def has(self, connection: str | None) -> bool:
        """Returns true if any stream of the connection has a number; None: of any connection."""
        return bool(self._streams) if connection is None else connection in self._streams

    def names(self) -> dict[int, tuple[str, int]]:
        """Returns the connection and stream of each number."""
        return {
            number: (name, stream)
            for name, streams in self._streams.items()
            for stream, number in streams.items()
        }

    def connection_keys(self) -> NDArray[np.int64]:
        """Returns (numbers,) the number of each number's whole connection, or -1."""
        numbers = np.full(self._next, -1, np.int64)
        for streams in self._streams.values():
            if WHOLE in streams:
                numbers[list(streams.values())] = streams[WHOLE]
        return numbers

    def renumber(self, keys: Iterable[int]) -> None:
        """Renumbers these keys from 0 in this order, and drops the others."""
        new = {old: number for number, old in enumerate(keys)}
        streams_by_name = {
            name: {stream: new[key] for stream, key in streams.items() if key in new}
            for name, streams in self._streams.items()
        }
        self._streams = {name: streams for name, streams in streams_by_name.items() if streams}
        self._next = len(new)
