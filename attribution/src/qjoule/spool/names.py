# SPDX-License-Identifier: Apache-2.0
"""The names of a recording that is not converted yet: one line of JSON for each thing learnt.

The spool has numbers alone. What they mean comes through the tracer's pipe, with literals and
logins in it; this file keeps what a trace may keep. A line begins with its checksum (XXH3, 64 bits,
hexadecimal), so a line that was cut off or damaged is found, left out and counted.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, BinaryIO

import numpy as np
from xxhash import xxh3_64_hexdigest

from qjoule.contract import TASK
from qjoule.servers.startup import Startup
from qjoule.shapes.other_id import OtherId
from qjoule.stream.blocks import Records
from qjoule.stream.client_tags import Tagged
from qjoule.stream.named import Named, ToldId
from qjoule.stream.session_news import SessionNews
from qjoule.tags.definitions import Tags
from qjoule.tags.kept_calls import KeptCall
from qjoule.tags.reported_calls import Call

_CHECKSUM_CHARACTERS = 16
#: The longest line: a shape's text, or the task events of one write. Longer ones are damage.
_MOST_LINE_BYTES = 64 << 20


@dataclass(frozen=True)
class Spooled:
    """All that the frames up to this number refer to has been named before."""

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
    """What was lost on the way from applications and from a meter, so far."""

    lost_calls: int = 0
    unverified_calls: int = 0
    bad_meter_lines: int = 0


@dataclass(frozen=True)
class Metered:
    """Readings of an external meter, as rows of the table `meter`."""

    rows: tuple[dict[str, Any], ...]


#: What a line may say. TASK records stand for themselves.
News = (
    Named
    | ToldId
    | SessionNews
    | Tagged
    | KeptCall
    | Call
    | Spooled
    | Ended
    | Untraced
    | Counted
    | Metered
    | Records
)


class NamesWriter:
    """Appends to `file`, which is unbuffered: a line is written at once, or not at all."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._lines: list[bytes] = []

    def add(self, news: News) -> None:
        """Adds a line to the next `flush`."""
        line = json.dumps(_encoded(news), separators=(",", ":")).encode()
        self._lines.append(xxh3_64_hexdigest(line).encode() + b" " + line + b"\n")

    def flush(self) -> None:
        """Writes the lines. Raises `OSError`."""
        lines, self._lines = self._lines, []
        left = memoryview(b"".join(lines))
        while left.nbytes:
            left = left[self._file.write(left) :]


class NamesReader:
    """Iterates over the lines of `file`. `damaged` counts those that cannot be read."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.damaged = 0

    def __iter__(self) -> Iterator[News]:
        while line := self._file.readline(_MOST_LINE_BYTES):
            news = _read(line)
            if news is None:
                self.damaged += 1
            else:
                yield news


def _read(line: bytes) -> News | None:
    checksum, text = line[:_CHECKSUM_CHARACTERS], line[_CHECKSUM_CHARACTERS + 1 : -1]
    if not line.endswith(b"\n") or checksum != xxh3_64_hexdigest(text).encode():
        return None
    try:
        return _decoded(json.loads(text))
    except (
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
    ):  # whole, but of a version that says it differently
        return None


def _encoded(news: News) -> dict[str, Any]:
    kind = _KINDS.get(type(news))
    if kind is None:
        assert isinstance(news, np.ndarray)
        return {"tasks": base64.b64encode(news.tobytes()).decode()}
    fields = asdict(news)  # type: ignore[arg-type] # all others are
    if isinstance(news, Named) and news.captured is not None:
        fields["captured"] = base64.b64encode(news.captured).decode()
    return {kind: fields}


def _decoded(line: dict[str, Any]) -> News | None:
    ((kind, fields),) = line.items()
    decode = _DECODERS.get(kind)
    return None if decode is None else decode(fields)


def _named(fields: dict[str, Any]) -> Named:
    captured, ids = fields.pop("captured"), tuple(OtherId(*one) for one in fields.pop("ids"))
    return Named(**fields, captured=captured and base64.b64decode(captured), ids=ids)


def _session(fields: dict[str, Any]) -> SessionNews:
    startup = fields.pop("startup")
    if startup is not None:
        startup = Startup(**(startup | {"tags": _tags(startup["tags"])}))
    return SessionNews(**fields, startup=startup)


def _with_tags(fields: dict[str, Any]) -> dict[str, Any]:
    return fields | {"tags": _tags(fields["tags"])}


def _tags(pairs: list[list[str]]) -> Tags:
    return tuple((key, value) for key, value in pairs)


_KINDS = {
    Named: "shape",
    ToldId: "id",
    SessionNews: "session",
    Tagged: "tags",
    KeptCall: "call",
    Call: "unseen",
    Spooled: "frames",
    Ended: "end",
    Untraced: "untraced",
    Counted: "counted",
    Metered: "meter",
}
_DECODERS: dict[str, Callable[[Any], News]] = {
    "shape": _named,
    "session": _session,
    "id": lambda fields: ToldId(fields["shape"], OtherId(*fields["id"])),
    "tags": lambda fields: Tagged(**_with_tags(fields)),
    "call": lambda fields: KeptCall(**_with_tags(fields)),
    "unseen": lambda fields: Call(**_with_tags(fields)),
    "frames": lambda fields: Spooled(**fields),
    "end": lambda fields: Ended(**fields),
    "untraced": lambda fields: Untraced(fields["process"], tuple(fields["tgids"])),
    "counted": lambda fields: Counted(**fields),
    "meter": lambda fields: Metered(tuple(fields["rows"])),
    "tasks": lambda fields: np.frombuffer(base64.b64decode(fields), TASK),
}
