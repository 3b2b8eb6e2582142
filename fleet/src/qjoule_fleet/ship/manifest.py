# SPDX-License-Identifier: Apache-2.0
"""What has been shipped: a manifest for each host and day at the destination, one line a file.

    {"path": "hours/date=…/host=db1/hour-19-….parquet", "size": 5120, "sha256": "…",
     "mtime_ns": …, "shipped": "2026-11-23T20:05:41Z"}

A reader may check parts against it. A line that cannot be read is left out: its part is shipped
again, which changes nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from qjoule.api.command import read_as

_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)


@dataclass(frozen=True)
class Entry:
    """A file that was shipped. `mtime_ns`: when it was last changed, by the host's clock."""

    path: str
    size: int
    sha256: str
    mtime_ns: int
    shipped: str  #: ISO 8601, UTC


def parse(content: bytes) -> tuple[dict[str, Entry], int]:
    """Entries by path, the last one of each counting, and the number of damaged lines."""
    found: dict[str, Entry] = {}
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
            found[entry.path] = entry
        else:
            damaged += 1
    return found, damaged


def text(entries: Iterable[Entry]) -> bytes:
    """The manifest, in the order of the paths."""
    ordered = sorted(entries, key=lambda one: one.path)
    return "".join(json.dumps(asdict(one)) + "\n" for one in ordered).encode()
