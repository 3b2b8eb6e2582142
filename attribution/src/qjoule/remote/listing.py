# SPDX-License-Identifier: Apache-2.0
"""What recordings an agent has (`GET /recordings`), read as a hostile document."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from qjoule.errors import QjouleError
from qjoule.remote.control import MAX_FILES, SCHEMA
from qjoule.shapes.safe_text import sanitise, shorten
from qjoule.typed_json import read_as

MAX_RECORDINGS, MAX_FILE_BYTES = 1000, 1 << 40
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")
_FILE = re.compile(r"(?:[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}/)?[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")
_PART = re.compile(r"[0-9]+-kept-.*")
_STATE = 64


@dataclass(frozen=True)
class StoredFile:
    """A file; `name` may have one folder."""

    name: str
    bytes: int


@dataclass(frozen=True)
class Stored:
    """A recording. Only one that has ended has files."""

    name: str
    state: str
    files: tuple[StoredFile, ...] = ()

    @property
    def runs(self) -> bool:
        return self.state == "recording"

    @property
    def is_part(self) -> bool:
        """Whether a flight recorder saved it."""
        return _PART.fullmatch(self.name) is not None


@dataclass(frozen=True)
class FlightRecorder:
    seconds: int


@dataclass(frozen=True)
class Listing:
    """All of them, the oldest first."""

    schema: str
    recordings: tuple[Stored, ...] = ()
    flight_recorder: FlightRecorder | None = None

    def named(self, name: str) -> Stored | None:
        return next((one for one in self.recordings if one.name == name), None)


def listing_of(content: bytes) -> Listing:
    """Raises `QjouleError` if it is not what an agent sends."""
    try:
        found: Listing = read_as(Listing, json.loads(content), SCHEMA)
        _check(found)
    except (ValueError, RecursionError) as error:
        words = shorten(sanitise(str(error)), 200)
        raise QjouleError(f"what the agent sent is no {SCHEMA}: {words}") from None
    return found


def _check(found: Listing) -> None:
    if found.schema != SCHEMA or len(found.recordings) > MAX_RECORDINGS:
        raise ValueError("another schema, or too many recordings")
    for one in found.recordings:
        if not _NAME.fullmatch(one.name) or len(one.files) > MAX_FILES:
            raise ValueError("a recording with a wrong name, or too many files")
        if len(one.state) > _STATE or sanitise(one.state) != one.state:
            raise ValueError("a wrong state")
        for file in one.files:
            if not _FILE.fullmatch(file.name) or not 0 <= file.bytes <= MAX_FILE_BYTES:
                raise ValueError("a file with a wrong name or size")
        if len({file.name for file in one.files}) < len(one.files):
            raise ValueError("two files with the same name")
