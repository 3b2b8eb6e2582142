# SPDX-License-Identifier: Apache-2.0
"""Packs a trace into a tar (POSIX.1-1988, ustar), and unpacks one that may be hostile.

`unpack` parses headers itself: Python's `tarfile` follows links, long names and extended headers of
any size, none of which a trace has.
"""

from __future__ import annotations

import os
import re
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from qjoule.errors import QjouleError
from qjoule.trace.meta_file import MOST_META_BYTES, read_meta
from qjoule.trace.schema import TABLES

MAX_FILES = 10_000
_BLOCK, _PIECE = 512, 1 << 18
_META = "meta.json"
_PART = r"part-[0-9]{6,9}(?:-[0-9]{6,9})?"
_TABLES = "|".join(TABLES)
_NAME = re.compile(
    rf"meta\.json|calibration\.json|memory\.bin|capture/[a-z]{{1,32}}|"
    rf"(?:{_TABLES})(?:/{_PART})?\.parquet"
)
_SIZE = re.compile(rb"[0-7]{11}\0")
_WRONG = "what came is no trace"


def pack(trace: Path, out: BinaryIO) -> None:
    """Writes the trace's files. Omits the end of the archive if a file cannot be read.

    Raises `QjouleError` for a file of more than 8 GiB.
    """
    with tarfile.open(fileobj=out, mode="w|", format=tarfile.USTAR_FORMAT) as archive:
        for path in sorted(trace.rglob("*")):
            name = str(path.relative_to(trace))
            if not path.is_file() or not _NAME.fullmatch(name):
                continue
            with path.open("rb") as file:
                about = tarfile.TarInfo(name)
                about.size = os.fstat(file.fileno()).st_size
                try:
                    archive.addfile(about, file)
                except ValueError:
                    raise QjouleError(f"{name} is too large for a tar") from None


def unpack(read: Callable[[int], bytes], directory: Path) -> tuple[int, int]:
    """Writes the files of a whole archive into a directory. Returns their number and bytes.

    Args:
        read: returns exactly so many bytes. Raises `QjouleError` if there are no more.

    Raises:
        QjouleError: the archive has anything but regular files with the names of a trace's files,
            each once; its meta.json is invalid; or the files do not fit on the disk.
    """
    names: set[str] = set()
    total = 0
    while (head := read(_BLOCK)) != bytes(_BLOCK):
        name, size = _entry(head)
        if name in names or len(names) == MAX_FILES:
            raise QjouleError(f"{_WRONG}: {name} twice, or too many files")
        room = os.statvfs(directory)
        if size > room.f_bavail * room.f_frsize or (name == _META and size > MOST_META_BYTES):
            raise QjouleError(f"{name}: {size / 1e6:,.0f} MB are too much, or do not fit")
        names.add(name)
        total += size
        (directory / name).parent.mkdir(mode=0o700, exist_ok=True)
        with (directory / name).open("xb") as file:
            for remaining in range(size, 0, -_PIECE):
                file.write(read(min(remaining, _PIECE)))
        read(-size % _BLOCK)
    try:
        read_meta(directory)
    except (OSError, ValueError) as error:
        raise QjouleError(f"{_WRONG}: {_META}: {error}") from None
    return len(names), total


def _entry(head: bytes) -> tuple[str, int]:
    """Parses a file's header: name and size."""
    sum_there = head[148:156].rstrip(b"\0 ")
    own_sum = sum(head) - sum(head[148:156]) + 8 * ord(" ")
    name = head[:100].rstrip(b"\0").decode("latin-1")
    if (
        not _NAME.fullmatch(name)
        or not _SIZE.fullmatch(head[124:136])
        or sum_there != f"{own_sum:06o}".encode()
        or head[156:157] != tarfile.REGTYPE
        or head[257:263] != b"ustar\0"
        or head[345:500].strip(b"\0")
    ):
        raise QjouleError(f"{_WRONG}: a wrong file in the archive")
    return name, int(head[124:135], 8)
