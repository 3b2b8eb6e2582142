# SPDX-License-Identifier: Apache-2.0
"""Parts of the local store: validates them when they are shipped, and tracks those that wait.

If the store removes a waiting part, it counts as lost.

The destination has a manifest of shipped files for each host and day, one line per file:

    {"path": "hours/date=…/host=db1/hour-19-….parquet", "size": 5120, "sha256": "…",
     "mtime_ns": …, "shipped": "2026-11-23T20:05:41Z"}

Readers may verify parts by it. Unreadable lines are ignored: their parts are shipped again, which
changes nothing.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

from qjoule.api.command import pa, pq, read_as, write_whole
from qjoule.api.rollups import CLOSED_KEY, SLOW, VERSION_KEY, Part, decoded, unreadable

_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)


@dataclass(frozen=True)
class Entry:
    """A shipped file. `mtime_ns`: its last change, by the host's clock."""

    path: str
    size: int
    sha256: str
    mtime_ns: int
    shipped: str  #: ISO 8601, UTC


def parse(content: bytes) -> tuple[dict[str, Entry], int]:
    """Returns entries by path (the last one counts), and the number of damaged lines."""
    entries: dict[str, Entry] = {}
    damaged = 0
    for line in content.split(b"\n"):
        if not line.strip():
            continue
        try:
            entry: Entry = read_as(Entry, json.loads(line), "manifest")
        except (ValueError, TypeError, RecursionError):
            damaged += 1
            continue
        if _SHA256.fullmatch(entry.sha256):
            entries[entry.path] = entry
        else:
            damaged += 1
    return entries, damaged


def text(entries: Iterable[Entry]) -> bytes:
    """Formats a manifest, sorted by path."""
    ordered = sorted(entries, key=lambda entry: entry.path)
    return "".join(json.dumps(asdict(entry)) + "\n" for entry in ordered).encode()


#: Maximum size of a part; an hour of 500 statements has some 400 kB.
MAX_BYTES = 256 << 20


class ValidatedPart(NamedTuple):
    """A part's content. `wrong`: the reason why it must not be shipped."""

    content: bytes = b""
    sha256: str = ""
    wrong: str = ""


def is_open(part: Part, path: Path) -> bool:
    """True if the part's footer says that its hour is still being written."""
    if part.table in SLOW:
        return False
    try:
        metadata = decoded(pq.read_metadata(path).metadata)
    except (OSError, pa.ArrowException, ValueError):
        return False
    return not unreadable(metadata.get(VERSION_KEY)) and metadata.get(CLOSED_KEY) != "1"


def read_part(part: Part, path: Path) -> ValidatedPart:
    """Reads and validates a part. Raises `FileNotFoundError` if it has just been removed."""
    try:
        if path.stat().st_size > MAX_BYTES:
            return ValidatedPart(wrong=f"it is larger than {MAX_BYTES >> 20} MB")
        content = path.read_bytes()
        file = pq.ParquetFile(pa.BufferReader(content), page_checksum_verification=True)
        metadata = decoded(file.metadata.metadata)
        if wrong := unreadable(metadata.get(VERSION_KEY)):
            return ValidatedPart(wrong=wrong)
        if part.table not in SLOW and metadata.get(CLOSED_KEY) != "1":
            return ValidatedPart(wrong="its hour is open again")
        if wrong := part.contradicts(metadata):
            return ValidatedPart(wrong=wrong)
        for group in range(file.num_row_groups):
            file.read_row_group(group)
    except FileNotFoundError:
        raise
    except (OSError, pa.ArrowException, ValueError) as error:
        return ValidatedPart(wrong=f"it is damaged: {' '.join(str(error).split())[:200]}")
    return ValidatedPart(content, hashlib.sha256(content).hexdigest())


_MOST = 100_000
_MAX_BYTES = 32 << 20


class Waiting:
    """Waiting parts of one store and destination. They are stored in `directory`, if given.

    A shipper may not write to the store, which belongs to the agent.
    """

    def __init__(self, directory: Path | None, store: Path, destination: str) -> None:
        digest = hashlib.sha256(f"{store}\n{destination}".encode()).hexdigest()[:16]
        self._file = None if directory is None else directory / f"waiting-{digest}.json"
        self._paths: Sequence[str] = self._read()

    def vanished(self, here: Collection[str]) -> list[str]:
        """Returns parts that waited at the last pass and are not in the store any more."""
        return [path for path in self._paths if path not in here]

    def keep(self, paths: Sequence[str]) -> None:
        if list(paths) == list(self._paths):
            return
        self._paths = list(paths[-_MOST:])
        if self._file is None:
            return
        with suppress(OSError):
            write_whole(self._file, json.dumps(self._paths).encode(), durable=False)

    def _read(self) -> Sequence[str]:
        with suppress(OSError, ValueError, RecursionError):
            if self._file is not None and self._file.stat().st_size <= _MAX_BYTES:
                paths = json.loads(self._file.read_bytes())
                if isinstance(paths, list) and all(isinstance(path, str) for path in paths):
                    return paths
        return []
