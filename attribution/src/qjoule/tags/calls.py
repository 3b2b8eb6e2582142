# SPDX-License-Identifier: Apache-2.0
"""Joins queries of a server to calls of applications."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qjoule.lazy_import import pa
from qjoule.tags.application import Application, reports_valid_until
from qjoule.tags.definitions import Tags, characters
from qjoule.tags.joins import (
    WHOLE,
    Ends,
    Keys,
    as_maps,
    distinct_pairs,
    drop_from_largest_user,
    is_over,
    last_before,
    name_of,
    tags_type,
)
from qjoule.tags.kept_calls import KeptCall, bounded, kept_calls
from qjoule.tags.ring import BEGIN, BEGIN_IN_TRACE, END, HOLDS, NOT_DEFINED, OVER, Slots

#: A query arrives here at most this long after its end. Earlier calls are dropped, except the last
#: one of each connection: it may belong to a long query.
KEPT_NS = 10_000_000_000
MAX_CALLS = 2_000_000
#: Approximate characters of all distinct tags together.
MAX_TAG_CHARACTERS = 32_000_000
#: A record whose time is further than this from now is refused.
PLAUSIBLE_NS = 3_600_000_000_000
NEVER_NS = 1 << 62

CALL = np.dtype(
    [
        ("key", "i8"),
        ("t_ns", "i8"),
        ("tags", "i8"),  # -1: unknown
        ("application", "i8"),
        ("number", "i8"),
        ("holds", "?"),  # valid until the next call of its key, else until its own end
        ("over", "?"),  # the connection has ended: `key` is that of the whole connection
        ("traced", "?"),
        ("trace", "V16"),
        ("span", "V8"),
    ]
)
Array = NDArray[Any]
Gaps = list[tuple[int, int]]


class Calls:
    """Calls that applications reported in the last seconds, by connection and stream."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._keys = Keys()
        self._tags: dict[Tags, int] = {}
        self._characters = 0
        self._applications: dict[int, Application] = {}
        # disconnected applications: when, and their gaps
        self._parted: dict[int, tuple[int, Gaps]] = {}
        self._users: dict[int, int] = {}  # by application, for all with calls
        self._ends = Ends()
        self._calls = np.empty(0, CALL)
        self._new: list[Array] = []
        self._call_count = 0
        self.unbelievable = 0  #: records without a definition, or whose time is far from now
        self.unverified = 0  #: records of connections that may not be the reporter's own
        self.dropped = 0  #: calls that were forgotten for lack of room

    def take(self, application: Application, records: Slots, now_ns: int) -> None:
        """Adds a batch of an application's records, whose definitions have been read."""
        with self._lock:
            self._applications[application.number] = application
            kind = records["kind"]
            self._add_ends(application, records[kind == END])
            begins = np.isin(kind & ~np.uint32(HOLDS), (BEGIN, BEGIN_IN_TRACE))
            self._add_begins(application, records[begins | (kind == OVER)], now_ns)

    def disconnected(self, application: Application, now_ns: int) -> None:
        """Saves the ends of the application's calls, because its ring is about to be released."""
        with self._lock:
            if application.number in self._users:
                self._parted[application.number] = now_ns, application.gaps
            ring = application.ring
            if ring is not None:
                numbers = np.concatenate(
                    [
                        calls["number"][calls["application"] == application.number]
                        for calls in (self._calls, *self._new)
                    ]
                )
                ends = ring.ends(numbers) >> np.uint64(2)
                self._remember_ends(application, numbers[ends > 0], ends[ends > 0])
            self._applications.pop(application.number, None)

    def tags_of(
        self, connections: list[str | None], codes: Array, streams: Array, begins_ns: Array
    ) -> pa.MapArray:
        """Tags of queries, by connection, stream and begin.

        Args:
            connections: names of connections (see `name_of`); None: unknown.
            codes: (n,) index in `connections` of each query's connection; -1: unknown.
            streams: (n,) the request's number on its connection; 0 without concurrent requests.
            begins_ns: (n,) CLOCK_MONOTONIC.

        Returns null if no call is known, an empty map if the call has no tags.
        """
        with self._lock:
            calls = self._sorted()
            if not calls.size:
                self._drop_old(calls, 0)
                return pa.nulls(codes.size, tags_type())
            keys, wholes = self._keys_of(connections, codes, streams)
            indices = last_before(calls, keys, begins_ns)
            indices = self._still_open(calls, indices, begins_ns)
            indices[is_over(calls, indices, wholes, begins_ns)] = -1
            indices[calls["tags"][indices] < 0] = -1
            maps = as_maps(list(self._tags), calls, indices)
            self._drop_old(calls, int(begins_ns.max(initial=0)))
            return maps

    def take_finished(self, before_ns: int) -> list[KeptCall]:
        """Removes and returns calls that began before this and that no later query can belong to.

        For recordings that join them later: a query gets the tags of the call that was under way on
        its connection and stream when it began.
        """
        with self._lock:
            calls = self._sorted()
            until_ns = self._valid_until(calls)
            done = (calls["t_ns"] < before_ns) & (until_ns <= before_ns)
            finished = kept_calls(calls[done], until_ns[done], self._keys.names(), list(self._tags))
            self._calls = calls[~done]
            self._call_count = self._calls.size
            if len(self._tags) > 2 * self._call_count + 1024:
                self._renumber(self._calls)
            return finished

    def _valid_until(self, calls: Array) -> Array:
        """Returns when each call (sorted) stops being valid; NEVER_NS if it still is."""
        ends, missed = self._ends_of(calls)
        until = np.where(ends > 0, ends, np.where(missed, 0, NEVER_NS))
        until[calls["holds"]] = NEVER_NS
        for number in np.unique(calls["application"]).tolist():
            its = calls["application"] == number
            application = self._applications.get(number)
            parted_ns, gaps = self._parted.get(number, (NEVER_NS, []))
            until[its] = np.minimum(until[its], parted_ns)
            for first_ns, last_ns in application.gaps if application is not None else gaps:
                hit = its & calls["holds"] & (calls["t_ns"] <= last_ns)
                until[hit] = np.minimum(until[hit], first_ns)
        return bounded(calls, until, self._keys.connection_keys())

    def calls_on(self, connections: Sequence[str | None]) -> list[bool]:
        """Returns whether there are calls on each connection; None: on any connection."""
        with self._lock:
            return [self._keys.has(name) for name in connections]

    # ---- taking in ------------------------------------------------------------------------------

    def _add_begins(self, application: Application, records: Slots, now_ns: int) -> None:
        t_ns = records["t_ns"].astype(np.int64)
        # Future times are refused: by then the connection may belong to another user.
        believed = (t_ns > max(now_ns - PLAUSIBLE_NS, 0)) & (t_ns <= time.monotonic_ns())
        self.unbelievable += int(np.count_nonzero(~believed))
        records, t_ns = records[believed], t_ns[believed]
        verified = t_ns <= self._numbered(records[["connection"]], application, reports_valid_until)
        self.unverified += int(np.count_nonzero(~verified))
        records, t_ns = records[verified], t_ns[verified]
        if not records.size:
            return
        calls = np.zeros(records.size, CALL)
        calls["t_ns"] = t_ns
        calls["application"] = application.number
        calls["number"] = records["number"]
        calls["holds"] = records["kind"] & HOLDS > 0
        calls["over"] = records["kind"] == OVER
        calls["traced"] = records["kind"] & ~np.uint32(HOLDS) == BEGIN_IN_TRACE
        calls["trace"], calls["span"] = records["trace"], records["span"]
        # One record ends a connection with all of its streams.
        for rows, number in ((~calls["over"], self._key), (calls["over"], self._connection_key)):
            connections = records[["connection", "stream"]][rows]
            calls["key"][rows] = self._numbered(connections, application, number)
        calls["tags"] = self._numbered(records[["tags"]], application, self._tag_set)
        has_key = calls["key"] >= 0
        undefined = (calls["tags"] < 0) & (records["tags"] != NOT_DEFINED)
        self.unbelievable += int(np.count_nonzero(~has_key | undefined))
        if has_key.any():
            self._users[application.number] = application.uid
        self._new.append(calls[has_key])
        self._call_count += int(np.count_nonzero(has_key))
        if self._call_count > MAX_CALLS or self._characters > MAX_TAG_CHARACTERS:
            self._drop_oldest()

    @staticmethod
    def _numbered(fields: Array, application: Application, number: Any) -> Array:
        """`number(application, *values)` for every record, called once per distinct record."""
        uniques, codes = np.unique(fields, return_inverse=True)
        numbers = [number(application, *values) for values in uniques.tolist()]
        result: Array = np.array(numbers, np.int64)[codes.reshape(-1)]
        return result

    def _key(self, application: Application, connection: int, stream: int) -> int:
        described = application.definitions.connection(connection)
        name = name_of(described) if described is not None else None
        return -1 if name is None else self._keys.number(name, stream)

    def _connection_key(self, application: Application, connection: int, _: int) -> int:
        return self._key(application, connection, WHOLE)

    def _tag_set(self, application: Application, number: int) -> int:
        tags = application.definitions.tags(number)
        if tags is None:
            return -1
        if tags not in self._tags:
            self._characters += characters(tags)
        return self._tags.setdefault(tags, len(self._tags))

    def _add_ends(self, application: Application, records: Slots) -> None:
        # An END record holds its begin's number in the fields of a begin's connection and tags.
        begins = records["connection"].astype(np.uint64) << np.uint64(32) | records["tags"]
        self._remember_ends(application, begins, records["t_ns"])

    def _remember_ends(self, application: Application, numbers: Array, ends_ns: Array) -> None:
        for number, t_ns in zip(numbers.tolist(), ends_ns.tolist(), strict=True):
            self._ends.add(application.uid, application.number, number, min(t_ns, NEVER_NS))

    # ---- finding --------------------------------------------------------------------------------

    def _sorted(self) -> Array:
        if self._new:
            calls = np.concatenate([self._calls, *self._new])
            self._calls = calls[np.lexsort((calls["number"], calls["t_ns"], calls["key"]))]
            self._new = []
        return self._calls

    def _keys_of(
        self, connections: list[str | None], codes: Array, streams: Array
    ) -> tuple[Array, Array]:
        """Returns the key of each query's connection and stream, and of its whole connection, or
        -1."""
        keys, wholes = np.full((2, codes.size), -1, np.int64)
        for rows, (code, stream) in distinct_pairs(codes, streams):
            name = connections[code] if code >= 0 else None
            if name is not None:
                keys[rows] = self._keys.number_of(name, stream)
                wholes[rows] = self._keys.number_of(name, WHOLE)
        return keys, wholes

    def _still_open(self, calls: Array, indices: Array, begins_ns: Array) -> Array:
        """Removes calls that had ended, or were no longer valid, when the query began."""
        hit = np.flatnonzero(indices >= 0)
        its = calls[indices[hit]]
        ends, missed = self._ends_of(its)
        ended = np.zeros(indices.size, np.bool_)
        ended[hit] = np.where(ends > 0, ends <= begins_ns[hit], missed) & ~its["holds"]
        ended[hit] |= self._was_outdated(its, begins_ns[hit])
        return np.where(ended, -1, indices)

    def _ends_of(self, calls: Array) -> tuple[Array, Array]:
        """Returns when each call ended (0: unknown), and whether an unknown end may be lost."""
        ends = np.zeros(calls.size, np.int64)
        missed = np.zeros(calls.size, np.bool_)
        owners = calls["application"]
        for number in np.unique(owners).tolist():
            which = owners == number
            application = self._applications.get(number)
            ring = application.ring if application is not None else None
            if ring is not None:
                numbers = calls["number"][which]
                ends[which] = ring.ends(numbers) >> np.uint64(2)
                missed[which] = ring.may_have_ended(numbers)
        if self._ends:
            for at in np.flatnonzero(ends == 0).tolist():
                owner = int(owners[at])
                number = int(calls["number"][at])
                ends[at] = self._ends.of(self._users[owner], owner, number)
        return ends, missed

    def _was_outdated(self, calls: Array, begins_ns: Array) -> Array:
        """Returns whether each call was outdated when its query began: the application had gone, or
        could not report a change."""
        past = np.zeros(calls.size, np.bool_)
        for number in np.unique(calls["application"]).tolist():
            its = calls["application"] == number
            application = self._applications.get(number)
            parted_ns, gaps = self._parted.get(number, (NEVER_NS, []))
            past |= its & (begins_ns >= parted_ns)
            for first_ns, last_ns in application.gaps if application is not None else gaps:
                past |= its & calls["holds"] & (calls["t_ns"] <= last_ns) & (begins_ns >= first_ns)
        return past

    def _drop_old(self, calls: Array, newest_ns: int) -> None:
        """Drops all but recent calls and the last call of each open connection. Renumbers keys and
        tags."""
        last = np.append(calls["key"][1:] != calls["key"][:-1], True)[: calls.size]
        recent = calls["t_ns"] > newest_ns - KEPT_NS
        if (calls["over"] & ~recent).any():  # also drop the last calls of connections that ended
            indices, wholes = np.arange(calls.size), self._keys.connection_keys()[calls["key"]]
            last &= ~is_over(calls, indices, wholes, np.full(calls.size, NEVER_NS))
        remaining = calls[recent | (last & ~calls["over"])]
        remembered = max(len(self._tags), len(self._users))
        if remaining.size < calls.size // 2 or remembered > 2 * remaining.size + 1024:
            self._renumber(remaining)
        elif remaining.size < calls.size:
            self._calls = remaining
        self._call_count = self._calls.size

    def _renumber(self, calls: Array) -> None:
        keys, key_codes = np.unique(calls["key"], return_inverse=True)
        tags, tag_codes = np.unique(calls["tags"], return_inverse=True)
        sets = list(self._tags)
        self._keys.renumber(keys.tolist())
        applications = set(np.unique(calls["application"]).tolist())
        self._parted = {n: how for n, how in self._parted.items() if n in applications}
        applications |= self._applications.keys()
        self._users = {n: uid for n, uid in self._users.items() if n in applications}
        unknown = int((tags < 0).sum())  # code -1 does not change
        self._tags = {sets[old]: new for new, old in enumerate(tags[unknown:].tolist())}
        self._characters = sum(map(characters, self._tags))
        calls = calls.copy()
        calls["key"], calls["tags"] = key_codes.reshape(-1), tag_codes.reshape(-1) - unknown
        self._calls = calls

    def _drop_oldest(self) -> None:
        """Drops the older half of the calls of the user who uses the most room."""
        self._renumber(calls := self._sorted())  # first drops tags that no call uses
        while self._calls.size > MAX_CALLS or self._characters > MAX_TAG_CHARACTERS:
            sizes = None if self._calls.size > MAX_CALLS else list(map(characters, self._tags))
            self._renumber(drop_from_largest_user(self._calls, self._users, sizes))
        self._call_count = self._calls.size
        self.dropped += calls.size - self._call_count
