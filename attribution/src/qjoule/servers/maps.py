"""Files that a process has mapped (proc(5), /proc/pid/maps)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from qjoule.servers.procfs import DELETED, read_text

_LINE = re.compile(
    r"(?P<start>[0-9a-f]+)-(?P<end>[0-9a-f]+) \S{4} (?P<offset>[0-9a-f]+) \S+ "
    r"(?P<inode>\d+) +(?P<name>/.*)"
)


@dataclass(frozen=True)
class Mapping:
    """A mapped file. `path` leads to that very file, also if it was replaced or deleted."""

    name: str  #: as the process sees it
    path: Path
    base: int  #: address of the file's first byte, which a library's addresses count from


def mapped_files(process: Path, pattern: str) -> list[Mapping]:
    """The files that are mapped from their first byte on and whose last name matches `pattern`.

    None where maps may not be read. Opening `path` needs root (proc(5), /proc/pid/map_files).
    """
    found: dict[tuple[str, str], Mapping] = {}
    for line in read_text(process / "maps").splitlines():
        match = _LINE.fullmatch(line)
        if match is None or int(match["offset"], 16):
            continue
        name = match["name"].removesuffix(DELETED)
        if re.fullmatch(pattern, name.rpartition("/")[2]):
            # Without leading zeros, as the kernel names these links.
            area = f"{int(match['start'], 16):x}-{int(match['end'], 16):x}"
            mapping = Mapping(name, process / "map_files" / area, int(match["start"], 16))
            found.setdefault((name, match["inode"]), mapping)
    return list(found.values())
