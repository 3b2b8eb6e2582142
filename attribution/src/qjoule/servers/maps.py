# SPDX-License-Identifier: Apache-2.0
"""Files that a process has mapped (proc(5), /proc/pid/maps)."""

from __future__ import annotations

import re
from dataclasses import dataclass

_DELETED = " (deleted)"
_LINE = re.compile(
    r"(?P<start>[0-9a-f]{1,16})-(?P<end>[0-9a-f]{1,16}) \S{4} (?P<offset>[0-9a-f]{1,16}) \S+ "
    r"(?P<inode>\d{1,20}) +(?P<name>/.*)"
)


@dataclass(frozen=True)
class Mapping:
    """A mapped file; `Access.mapped` opens that very file, also if it was replaced or deleted."""

    name: str  #: as the process sees it
    base: int  #: address of the file's first byte, which a library's addresses count from
    end: int

    @property
    def area(self) -> str:
        """The name of its link in /proc/PID/map_files: without leading zeros."""
        return f"{self.base:x}-{self.end:x}"


def mapped_files(maps: bytes, pattern: str) -> list[Mapping]:
    """The files that are mapped from their first byte on and whose last name matches `pattern`.

    Args:
        maps: a /proc/PID/maps, empty where it may not be read.
    """
    found: dict[tuple[str, str], Mapping] = {}
    wanted = re.compile(pattern)
    for line in maps.decode(errors="surrogateescape").split("\n"):
        match = _LINE.fullmatch(line)
        if match is None or int(match["offset"], 16):
            continue
        name = match["name"].removesuffix(_DELETED)
        if wanted.fullmatch(name.rpartition("/")[2]):
            mapping = Mapping(name, int(match["start"], 16), int(match["end"], 16))
            found.setdefault((name, match["inode"]), mapping)
    return list(found.values())
