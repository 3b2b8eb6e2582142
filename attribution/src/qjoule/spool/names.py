# SPDX-License-Identifier: Apache-2.0
"""The names of a recording that is not converted yet: one line of JSON for each thing learnt.

The spool has numbers alone. What they mean comes through the tracer's pipe, with literals and
logins in it; this file keeps what a trace may keep. A line begins with its checksum (XXH3, 64 bits,
hexadecimal), so a line that was cut off or damaged is found, left out and counted.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any, BinaryIO

import numpy as np
from xxhash import xxh3_64_hexdigest

from qjoule.contract import TASK, Loss
from qjoule.shapes.shape import OtherId
from qjoule.stream.blocks import TIME_LIMIT_NS, Records
from qjoule.stream.client_tags import Tagged
from qjoule.stream.names import CompiledListing, ReportedQueryId, StatementShape
from qjoule.stream.pending import LostBefore, PartOf
from qjoule.stream.session_updates import SessionUpdate
from qjoule.tags.kept_calls import KeptCall
from qjoule.tags.reported_calls import Call
from qjoule.trace.vocabulary import DIALECTS, SESSION_EVENTS
from qjoule.typed_json import read_as

_CHECKSUM_CHARACTERS = 16
#: The longest line: a shape's text, or the task events of one write. Longer ones are damage.
_MOST_LINE_BYTES = 64 << 20


@dataclass(frozen=True)
class Spooled:
    """Marks that all names have been written that the frames up to this number refer to."""

    frames: int


@dataclass(frozen=True)
class Ended:
    """The last line: the tracer's output was read to its end."""

    t_ns: int


@dataclass(frozen=True)
class Untraced:
    """Processes of a server that is not traced."""

    process: str
    tgids: tuple[int, ...]


@dataclass(frozen=True)
class Counted:
    """Losses of applications' calls and of a meter's readings so far."""

    lost_calls: int = 0
    unverified_calls: int = 0
    bad_meter_lines: int = 0


@dataclass(frozen=True)
class MeterReading:
    """A row of the table `meter`."""

    t_ns: int
    stamp_ns: int | None
    raw: int


@dataclass(frozen=True)
class Metered:
    """Readings of an external meter."""

    rows: tuple[MeterReading, ...]


@dataclass(frozen=True)
class SegmentBegins:
    """First line of the state that a segment of a ring begins with: see `qjoule.spool.files`.

    `frame`: number of its first frame. All that ran since `begin_ns` is in it or later. `lost` and
    `counted`: until then.
    """

    segment: int
    frame: int
    begin_ns: int
    lost: tuple[LostBefore, ...] = ()
    counted: Counted = Counted()


#: What a line may hold; task events are arrays of `contract.TASK`.
CaptureEvent = (
    StatementShape
    | ReportedQueryId
    | SessionUpdate
    | Tagged
    | KeptCall
    | Call
    | Spooled
    | Ended
    | Untraced
    | Counted
    | Metered
    | PartOf
    | CompiledListing
    | Records
)


class NamesWriter:
    """Appends to `file`, which is unbuffered: a line is written at once, or not at all."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._lines: list[bytes] = []

    def add(self, news: CaptureEvent) -> None:
        """Adds a line to the next `flush`."""
        self._lines.append(line_of(news))

    def flush(self) -> None:
        """Writes the lines. Raises `OSError`."""
        lines, self._lines = self._lines, []
        unwritten = memoryview(b"".join(lines))
        while unwritten.nbytes:
            unwritten = unwritten[self._file.write(unwritten) :]

    def spooled(self, frames: int, segment: int, segment_begins: int) -> None:
        """Called when all names that these frames refer to have been added. Raises `OSError`.

        The segment is of a ring, see `qjoule.spool.ring_names`.
        """
        del segment, segment_begins
        self.add(Spooled(frames))
        self.flush()

    def close(self) -> None:
        with suppress(OSError):
            os.fsync(self._file.fileno())
        self._file.close()


def line_of(news: CaptureEvent | SegmentBegins) -> bytes:
    """The line that `NamesWriter` writes for `news`, with its checksum."""
    line = json.dumps(_encoded(news), separators=(",", ":")).encode()
    return xxh3_64_hexdigest(line).encode() + b" " + line + b"\n"


class NamesReader:
    """Iterates over the lines of `file`. `damaged` counts those that cannot be read.

    Args:
        only: leaves out lines of other kinds, without decoding them; as `KINDS_OF_TIMES`.
    """

    def __init__(self, file: BinaryIO, only: AbstractSet[bytes] | None = None) -> None:
        self._file, self._only = file, only
        self.damaged = 0

    def __iter__(self) -> Iterator[CaptureEvent]:
        while line := self._file.readline(_MOST_LINE_BYTES):
            text = _verified_text(line)
            if text is not None and self._only is not None and _kind(text) not in self._only:
                continue
            news = None if text is None else _read(text)
            if news is None:
                self.damaged += 1
            else:
                yield news


def _verified_text(line: bytes) -> bytes | None:
    """Returns a line's text; None if the line is damaged."""
    checksum, text = line[:_CHECKSUM_CHARACTERS], line[_CHECKSUM_CHARACTERS + 1 : -1]
    whole = line.endswith(b"\n") and checksum == xxh3_64_hexdigest(text).encode()
    return text if whole else None


def _kind(text: bytes) -> bytes:
    """Returns a line's kind, its only key."""
    return text[2 : text.find(b'"', 2)]


def _read(text: bytes) -> CaptureEvent | None:
    try:
        return _decoded(json.loads(text))
    except (ValueError, RecursionError):  # undamaged, but of another version
        return None


def _encoded(news: CaptureEvent | SegmentBegins) -> dict[str, Any]:
    kind = _KINDS.get(type(news))
    if kind is None:
        assert isinstance(news, np.ndarray)
        return {"tasks": base64.b64encode(news.tobytes()).decode()}
    fields = asdict(news)  # type: ignore[arg-type] # all others are
    if isinstance(news, StatementShape) and news.captured is not None:
        fields["captured"] = base64.b64encode(news.captured).decode()
    return {kind: fields}


def _decoded(line: Any) -> CaptureEvent:
    """Decodes a line. Raises `ValueError`: a capture may come from anywhere."""
    if not isinstance(line, dict) or len(line) != 1:
        raise ValueError("it says not one thing")
    ((name, fields),) = line.items()
    if name == "tasks":
        return np.frombuffer(base64.b64decode(read_as(str, fields, "tasks")), TASK)
    kind = _BY_NAME.get(name)
    if kind is None or not isinstance(fields, dict):
        raise ValueError("it says nothing that is known")
    _check_values(fields)
    captured, id_values = fields.pop("captured", None), fields.pop("ids", [])
    if not isinstance(id_values, list):
        raise ValueError("ids are a list")
    if kind is ReportedQueryId:
        return ReportedQueryId(read_as(int, fields.get("shape"), name), _other_id(fields.get("id")))
    news: CaptureEvent = read_as(kind, fields, name)
    if isinstance(news, StatementShape):
        statement = read_as(str | None, captured, name)
        ids = tuple(_other_id(values) for values in id_values)
        text = None if statement is None else base64.b64decode(statement)
        return replace(news, captured=text, ids=ids)
    return news


def _other_id(values: Any) -> OtherId:
    fields = read_as(tuple[str | None, ...], values, "id")
    if len(fields) != len(OtherId._fields) or any(fields[index] is None for index in (0, 2, 3)):
        raise ValueError("an id lacks a field")
    return OtherId(*fields)


def _check_values(value: Any, name: str = "") -> None:
    """Raises `ValueError` for a number or a text that no column of a trace can hold."""
    if isinstance(value, dict):
        for key, item in value.items():
            _check_values(item, key)
    elif isinstance(value, list):
        for item in value:
            _check_values(item, name)
    elif isinstance(value, str):
        value.encode()
    elif isinstance(value, int) and not 0 <= value < _BOUNDS.get(name, TIME_LIMIT_NS):
        raise ValueError(f"{name} is out of range")


#: By the name of a field; others are less than TIME_LIMIT_NS.
_BOUNDS = {
    **dict.fromkeys(("shape", "session", "number", "raw"), 1 << 64),
    **dict.fromkeys(("cpu", "pid", "tgid", "tgids", "stream"), 1 << 32),
    "offset": 1 << 63,
    "server": 1 << 16,
    "dialect": len(DIALECTS),
    "cause": len(Loss),
    "event": len(SESSION_EVENTS),
    "status": 4,
}
_KINDS: dict[type, str] = {
    StatementShape: "shape",
    ReportedQueryId: "id",
    SessionUpdate: "session",
    Tagged: "tags",
    KeptCall: "call",
    Call: "unseen",
    Spooled: "frames",
    Ended: "end",
    Untraced: "untraced",
    Counted: "counted",
    Metered: "meter",
    PartOf: "part",
    CompiledListing: "code",
    SegmentBegins: "segment",
}
_BY_NAME = {name: kind for kind, name in _KINDS.items()}


def _kinds(*kinds: type) -> frozenset[bytes]:
    return frozenset(_KINDS[kind].encode() for kind in kinds)


_MARKS = _kinds(Spooled, Ended, PartOf)
#: Kinds of lines for segments and owners, for queries, and for `CapturedInputs`.
KINDS_OF_TIMES = _MARKS | {b"tasks"} | _kinds(CompiledListing)
KINDS_OF_QUERIES = _MARKS | _kinds(StatementShape, ReportedQueryId, SessionUpdate, Tagged)
KINDS_OF_INPUTS = _kinds(KeptCall, Call, Untraced, Counted, Metered)
