# SPDX-License-Identifier: Apache-2.0
"""Calls that only clients report (attach mode `tag`), as rows of `queries` and `shapes`.

A reported call has no statement. Its shape is the database system it went to plus its tags, without
the tags that identify a single request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from qjoule.contract import AttachMode, QueryFlag
from qjoule.lazy_import import LazyModule, hashlib, pa
from qjoule.shapes.safe_text import sanitise, shorten
from qjoule.stream.statements import MAX_SHAPES
from qjoule.tags.joins import tags_type
from qjoule.trace.columns import Array
from qjoule.trace.vocabulary import OTHER_FINGERPRINT

if TYPE_CHECKING:
    from qjoule.trace import schema
else:  # a capture needs no tables
    schema = LazyModule("qjoule.trace.schema")


#: Tags that differ for every request.
OF_ONE_REQUEST = frozenset({"trace", "span"})
#: Queries that the kernel side counts have lower ids.
FIRST_ID = 1 << 63
TEXT_CHARACTERS = 256
#: By `Call.status`: the query's status, and its flags.
_STATUSES = (None, "ok", "error", "unfinished")
_FLAGS = (QueryFlag(0), QueryFlag.OK, QueryFlag.ERROR, QueryFlag.OPEN)


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
