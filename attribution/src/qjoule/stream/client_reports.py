# SPDX-License-Identifier: Apache-2.0
"""Reads what clients report: tags that they send to the server itself, in comments or attributes,
and calls that only they report (attach mode `tag`), as rows of `queries` and `shapes`.

Tags also work from other hosts, where no shim can report calls. If a statement and its connection
have tags of the same key, the statement's tag wins. If a shim reported the call, only the shim's
tags count.

A reported call has no statement. Its shape is the database system it went to plus its tags, without
the tags that identify a single request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from qjoule.contract import AttachMode, QueryFlag
from qjoule.lazy_import import LazyModule, hashlib, pa
from qjoule.servers.decoding import TAG_READERS
from qjoule.shapes.safe_text import sanitise, shorten
from qjoule.stream.blocks import Frame
from qjoule.stream.names import dialect_of
from qjoule.stream.statements import MAX_SHAPES
from qjoule.tags.definitions import Tags
from qjoule.tags.joins import tags_type
from qjoule.trace.columns import Array
from qjoule.trace.vocabulary import OTHER_FINGERPRINT

if TYPE_CHECKING:
    from qjoule.trace import schema
else:  # a capture needs no tables
    schema = LazyModule("qjoule.trace.schema")

#: Tags of queries that have not ended. Beyond this number the oldest are forgotten.
MAX_QUERIES = 100_000
#: Comments and attributes by their hashes. Beyond this number the least recently used are
#: forgotten. The kernel side remembers a quarter as many (bpf/core/tags.bpf.h) and sends a text
#: again once it has forgotten it.
MAX_HASHES = 65_536

Numbers = NDArray[np.uint64]
#: For each query, the index of its connection's tags (-1: none); and the tags.
OfConnections = tuple[NDArray[np.int64], Sequence[Tags]]
#: Tags that differ for every request.
OF_ONE_REQUEST = frozenset({"trace", "span"})
#: Queries that the kernel side counts have lower ids.
FIRST_ID = 1 << 63
TEXT_CHARACTERS = 256
#: By `Call.status`: the query's status, and its flags.
_STATUSES = (None, "ok", "error", "unfinished")
_FLAGS = (QueryFlag(0), QueryFlag.OK, QueryFlag.ERROR, QueryFlag.OPEN)


@dataclass(frozen=True)
class Tagged:
    """Tags that a client sent; `number`: their hash, or the id of the single query."""

    number: int
    tags: Tags
    single: bool


class ClientTags:
    """Keeps tags from the block that brings them until the query has ended."""

    def __init__(self, on_tags: Callable[[Tagged], object] = lambda _tagged: None) -> None:
        """`on_tags` is called with all tags that are taken in."""
        self._on_tags = on_tags
        self._of_query: dict[int, Tags] = {}
        self._of_hash: dict[int, Tags] = {}

    def take(self, frame: Frame, *, of_queries: bool = True) -> bool:
        """Takes in a TEXT block. Returns false if it holds a statement.

        `of_queries`: whether the caller asks for tags query by query. If not, tags of a single
        query are dropped.
        """
        dialect = dialect_of(frame)
        if dialect not in TAG_READERS:
            return False
        record = frame.records[0]
        single = bool(record["single"])
        if of_queries or not single:
            self.add(int(record["shape"]), frame.text, dialect, single=single)
        return True

    def learn(self, tagged: Tagged) -> None:
        """Takes in tags that were read before."""
        tags_by_number = self._of_query if tagged.single else self._of_hash
        tags_by_number[tagged.number] = tagged.tags
        if len(tags_by_number) > (MAX_QUERIES if tagged.single else MAX_HASHES):
            tags_by_number.pop(next(iter(tags_by_number)))
        self._on_tags(tagged)

    def add(self, number: int, text: bytes, dialect: int, *, single: bool) -> None:
        """Takes in the text of a comment or of attributes.

        Args:
            number: the hash that queries with this text carry; if `single`, the id of one query.
            dialect: one of `servers.decoding.TAG_READERS`.
        """
        if tags := TAG_READERS[dialect](text):
            self.learn(Tagged(number, tags, single))

    def fill(
        self,
        called: pa.Array | None,
        queries: Numbers,
        hashes: Numbers,
        connections: OfConnections | None = None,
    ) -> pa.Array | None:
        """Tags of ended queries: the shim's tags where there are any, else those sent to the
        server.

        Args:
            called: tags that shims reported; None: no query has any.
            queries: (n,) ids.
            hashes: (n,) hashes of the queries' comments or attributes; 0: none.
            connections: tags of their connections; None: no connection has any.
        """
        if connections is None and not self._of_query and not hashes.any():
            return called
        sent = self._sent_tags(queries, hashes, connections)
        if sent is None:
            return called
        if called is None:
            return sent
        offsets = called.offsets.to_numpy(zero_copy_only=False)
        better = (np.diff(offsets) == 0) & sent.is_valid().to_numpy(zero_copy_only=False)
        which = np.where(better, np.arange(len(sent)) + len(sent), np.arange(len(sent)))
        return pa.concat_arrays([called.cast(tags_type()), sent]).take(pa.array(which))

    def _sent_tags(
        self, queries: Numbers, hashes: Numbers, connections: OfConnections | None
    ) -> pa.Array | None:
        """The tags sent to the server; None: no query has any."""
        codes, tag_sets = self.together(queries, hashes, connections)
        if not any(tag_sets):
            return None
        return pa.array([tags or None for tags in tag_sets], tags_type()).take(pa.array(codes))

    def of_hash(self, number: int) -> Tags:
        """The tags with this hash; empty if they are not known (any more)."""
        return self._of_hash.get(number, ())

    def together(
        self, queries: Numbers, hashes: Numbers, connections: OfConnections | None = None
    ) -> tuple[NDArray[np.int64], list[Tags]]:
        """Merges the tags of queries and of their connections, as `fill` does: codes, and tags."""
        query_tags: list[Tags] = [()]
        stated = self._tag_codes(queries, hashes, query_tags)
        theirs, connection_tags = connections or (np.full(queries.size, -1, np.int64), ())
        every = (*connection_tags, ())  # the last entry is for code -1
        pairs, codes = np.unique(stated * len(every) + theirs + 1, return_inverse=True)
        merged = [
            _merged(query_tags[pair // len(every)], every[pair % len(every) - 1])
            for pair in pairs.tolist()
        ]
        return codes.reshape(-1), merged

    def _tag_codes(
        self, queries: Numbers, hashes: Numbers, query_tags: list[Tags]
    ) -> NDArray[np.int64]:
        """For each query, the index of its tags in `query_tags`, which gets those it lacks."""
        uniques, codes = np.unique(hashes, return_inverse=True)
        places = np.zeros(uniques.size, np.int64)
        for place, number in enumerate(uniques.tolist()):
            tags = self._of_hash.pop(number, None)
            if tags is not None:
                self._of_hash[number] = tags  # now the most recently used
                places[place] = len(query_tags)
                query_tags.append(tags)
        stated: NDArray[np.int64] = places[codes.reshape(-1)]
        if self._of_query:
            for place, query in enumerate(queries.tolist()):
                tags = self._of_query.pop(query, None)
                if tags is not None:
                    stated[place] = len(query_tags)
                    query_tags.append(tags)
        return stated


def _merged(statement: Tags, connection: Tags) -> Tags:
    if not (statement and connection):
        return statement or connection
    return tuple(sorted((dict(connection) | dict(statement)).items()))


class CallReports(Protocol):
    """Source of the calls that applications report: see `qjoule.tags.tagging`."""

    @property
    def lost(self) -> int:
        """Number of calls so far that applications could not report."""

    @property
    def unverified(self) -> int:
        """Number of calls so far that were reported on connections that may be another user's."""

    def tags_of(
        self, connections: list[str | None], codes: Array, streams: Array, begins_ns: Array
    ) -> pa.MapArray:
        """Tags of queries; `connections[codes]` names a query's connection, code -1 unknown."""

    def calls_on(self, connections: Sequence[str | None]) -> list[bool]:
        """Whether any calls on each connection were reported. None (unknown): on any connection."""

    def reported(
        self, opaque: Mapping[str, int], *, everything: bool = False
    ) -> Sequence[ReportedCall]:
        """Calls that have ended since the last time, to servers whose queries no probe sees.

        Args:
            opaque: connections that probes cannot look into, with the server of each.
            everything: also return calls that are still under way.
        """


class ReportedCall(Protocol):
    """See `qjoule.tags.reported_calls.Call`."""

    @property
    def server(self) -> int: ...
    @property
    def system(self) -> str: ...
    @property
    def begin_ns(self) -> int: ...
    @property
    def end_ns(self) -> int: ...
    @property
    def status(self) -> int: ...
    @property
    def tags(self) -> Sequence[tuple[str, str]]: ...
    @property
    def ended(self) -> bool: ...


class CallShapes:
    """Shapes of calls. Beyond `max_shapes`, all further ones share `OTHER_FINGERPRINT`."""

    def __init__(self, max_shapes: int = MAX_SHAPES) -> None:
        self._max_shapes = max_shapes
        self._shapes_by_text: dict[str, int] = {}
        self._new: list[tuple[int, str, str, int]] = []
        self.tags: dict[int, dict[str, str]] = {}  #: by shape

    def shape(self, call: ReportedCall) -> tuple[int, str]:
        """The hash of the call's shape, and its fingerprint."""
        tags = {key: value for key, value in call.tags if key not in OF_ONE_REQUEST}
        text = text_of(call.system, tags)
        digest = hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8)
        shape, fingerprint = int.from_bytes(digest.digest(), "big"), digest.hexdigest()
        if text not in self._shapes_by_text:
            if len(self._shapes_by_text) >= self._max_shapes:
                text, shape, fingerprint = "(other calls)", FIRST_ID, OTHER_FINGERPRINT
                tags = {}
            if text not in self._shapes_by_text:
                self._shapes_by_text[text] = shape
                self.tags[shape] = tags
                self._new.append((shape, fingerprint, text, call.server))
        return shape, fingerprint

    def take_new(self) -> list[tuple[int, str, str, int]]:
        """Shape, fingerprint, text and first server of the shapes that are new since the last
        call.
        """
        new, self._new = self._new, []
        return new

    def take_rows(self) -> pa.Table:
        """The new shapes as rows of `shapes`."""
        names = ("shape", "fingerprint", "text", "server")
        rows = [dict(zip(names, values, strict=True)) for values in self.take_new()]
        return pa.Table.from_pylist(rows, schema.SHAPES)


def text_of(system: str, tags: dict[str, str]) -> str:
    """The text that stands for calls with these tags.

    >>> text_of("cache", {"endpoint": "checkout", "tenant": "42"})
    'cache call  endpoint=checkout tenant=42'
    """
    pairs = " ".join(f"{key}={value}" for key, value in sorted(tags.items())) or "(no tags)"
    return shorten(sanitise(f"{system} call  {pairs}"), TEXT_CHARACTERS)


def call_rows(calls: Sequence[ReportedCall], first: int, shapes: CallShapes) -> pa.Table:
    """Rows of `queries`, numbered from `FIRST_ID` + `first`; new shapes go to `shapes`."""
    names = [shapes.shape(call) for call in calls]
    flags = [
        int(_FLAGS[call.status] | (QueryFlag(0) if call.ended else QueryFlag.NO_END))
        for call in calls
    ]
    columns = {
        "query": pa.array(np.arange(first, first + len(calls), dtype=np.uint64) + FIRST_ID),
        "begin_ns": [call.begin_ns for call in calls],
        "end_ns": [call.end_ns for call in calls],
        "server": [call.server for call in calls],
        "fingerprint": [fingerprint for _, fingerprint in names],
        "shape": pa.array([shape for shape, _ in names], pa.uint64()),
        "command": ["query"] * len(calls),
        "status": [_STATUSES[call.status] for call in calls],
        "tags": pa.array([list(call.tags) for call in calls], tags_type()),
        "attach_mode": [AttachMode.TAG.name.lower()] * len(calls),
        "executions": [1] * len(calls),
        "flags": flags,
    }
    return pa.Table.from_arrays(
        [
            _column(columns[field.name], field.type)
            if field.name in columns
            else pa.nulls(len(calls), field.type)
            for field in schema.QUERIES
        ],
        schema=schema.QUERIES,
    )


def _column(values: object, of: pa.DataType) -> pa.Array:
    if isinstance(values, pa.Array):
        return values
    if pa.types.is_dictionary(of):
        return pa.array(values, pa.string()).dictionary_encode()
    return pa.array(values, of)
