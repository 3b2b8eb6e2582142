# SPDX-License-Identifier: Apache-2.0
"""Calls of applications in a capture, which the conversion joins with queries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qjoule.lazy_import import pa
from qjoule.tags.definitions import Tags
from qjoule.tags.joins import tags_type

Array = NDArray[Any]


@dataclass(frozen=True)
class KeptCall:
    """A call. Queries on its connection and stream that begin within its time get its tags.

    `trace`, `span`: hexadecimal, empty without a trace.
    """

    connection: str
    stream: int
    begin_ns: int
    until_ns: int
    tags: Tags
    trace: str = ""
    span: str = ""

    @property
    def all_tags(self) -> Tags:
        """The call's tags and the ids of its trace."""
        ids = (("span", self.span), ("trace", self.trace))
        return (*self.tags, *ids) if self.trace else self.tags


def bounded(calls: Array, until_ns: Array, wholes: Array) -> Array:
    """Bounds the ends of calls by the next call of their key and by their connection's end.

    Args:
        calls: array of `calls.CALL`, sorted by key and time.
        until_ns: (n,) when calls would end otherwise.
        wholes: for each key, the key of its whole connection, or -1.
    """
    until: Array = until_ns.copy()
    same = calls["key"][1:] == calls["key"][:-1]
    until[:-1][same] = np.minimum(until[:-1], calls["t_ns"][1:])[same]
    whole_of = wholes[calls["key"]]
    for whole in np.unique(whole_of[whole_of >= 0]).tolist():
        overs = calls["t_ns"][(calls["key"] == whole) & calls["over"]]
        rows = np.flatnonzero((whole_of == whole) & ~calls["over"])
        following = np.searchsorted(overs, calls["t_ns"][rows], side="left")
        over_ns = np.append(overs, np.iinfo(np.int64).max)[following]
        until[rows] = np.minimum(until[rows], over_ns)
    return until


def kept_calls(
    calls: Array, until_ns: Array, names: Mapping[int, tuple[str, int]], sets: Sequence[Tags]
) -> list[KeptCall]:
    """Converts `calls.CALL` records that end at `until_ns`. Skips those without tags.

    Args:
        names: connection and stream of each key.
        sets: tag sets, indexed by the numbers in `calls`.
    """
    kept = []
    for call, until in zip(calls, until_ns.tolist(), strict=True):
        if call["over"] or call["tags"] < 0:
            continue
        connection, stream = names[int(call["key"])]
        traced = bool(call["traced"])
        kept.append(
            KeptCall(
                connection=connection,
                stream=stream,
                begin_ns=int(call["t_ns"]),
                until_ns=until,
                tags=sets[int(call["tags"])],
                trace=bytes(call["trace"]).hex() if traced else "",
                span=bytes(call["span"]).hex() if traced else "",
            )
        )
    return kept


class KeptCalls:
    """Joins captured calls in a conversion; same interface as `qjoule.tags.tagging`.

    Calls of one connection and stream do not overlap: the next one ends the one before.
    """

    def __init__(self, calls: Iterable[KeptCall]) -> None:
        by_key: dict[tuple[str, int], list[KeptCall]] = {}
        for call in calls:
            by_key.setdefault((call.connection, call.stream), []).append(call)
        self._calls = {
            key: sorted(key_calls, key=lambda call: call.begin_ns)
            for key, key_calls in by_key.items()
        }
        self.joined = 0

    def tags_of(
        self, connections: Sequence[str | None], codes: Array, streams: Array, begins_ns: Array
    ) -> pa.MapArray:
        """Tags of queries; see `Calls.tags_of`."""
        tags: list[Tags | None] = [None] * codes.size
        if self._calls:
            keys = codes.astype(np.int64) * (1 << 32) + streams.astype(np.int64)
            for key in np.unique(keys[codes >= 0]).tolist():
                rows = np.flatnonzero(keys == key)
                name = connections[key >> 32]
                calls = self._calls.get((name, key & 0xFFFF_FFFF)) if name is not None else None
                for index, call in _queries_within(calls or [], begins_ns[rows]):
                    tags[int(rows[index])] = call.all_tags
                    self.joined += 1
        return pa.array(tags, tags_type())

    def calls_on(self, connections: Sequence[str | None]) -> list[bool]:
        """Returns whether calls on each connection were reported; None: on any connection."""
        with_calls = {connection for connection, _ in self._calls}
        return [bool(with_calls) if name is None else name in with_calls for name in connections]


def _queries_within(calls: list[KeptCall], begins_ns: Array) -> Iterable[tuple[int, KeptCall]]:
    """Yields queries that begin within one of these calls: their index, and the call."""
    if not calls:
        return
    times = np.array([call.begin_ns for call in calls], np.int64)
    last = np.searchsorted(times, begins_ns, side="right") - 1
    for at in np.flatnonzero(last >= 0).tolist():
        call = calls[int(last[at])]
        if begins_ns[at] < call.until_ns:
            yield at, call
