# SPDX-License-Identifier: Apache-2.0
"""Reads configuration files line by line, follows includes, and bounds the total.

Used for servers whose configuration files consist of lines and may include others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from qjoule.servers.access import Unreadable
from qjoule.servers.candidate import Candidate

_FILES_MAX = 256
_BYTES_MAX = 2 << 20
_LINES_MAX = 50_000
_LINE_MAX = 4096  #: characters; mysys/my_default.c reads as many
_DEPTH_MAX = 10  #: of includes: the most that any of these servers allows

#: What may be shown of a value: a file that is not the server's may contain anything.
_WORD = re.compile(r"[\w.,:*\[\]-]{0,64}", re.ASCII)


@dataclass
class ConfigFiles:
    """Counts what is read of one candidate's files."""

    candidate: Candidate
    called: str = "configuration files"
    _files: int = 0
    _bytes: int = 0
    _lines: int = 0

    def lines(self, path: str, depth: int) -> Iterator[str]:
        """The lines of a file; none if there is no such file.

        Raises:
            Unreadable: it cannot be read, or the total exceeds what any server would read.
        """
        self._files += 1
        if depth > _DEPTH_MAX or self._files > _FILES_MAX:
            raise Unreadable(f"too many {self.called} included, at {shown_path(path)}")
        content = self.candidate.access.file(path) or b""
        self._bytes += len(content)
        lines = content.decode(errors="replace").splitlines()
        self._lines += len(lines)
        if self._bytes > _BYTES_MAX or self._lines > _LINES_MAX:
            raise Unreadable(f"its {self.called} are too large, at {shown_path(path)}")
        for line in lines:
            if len(line) > _LINE_MAX:
                raise Unreadable(f"{shown_path(path)} has a line of {len(line)} characters")
            yield line


def shown_path(path: str) -> str:
    """A path for a message: a path from a line of a file may contain anything."""
    return path if len(path) <= 256 and path.isprintable() else "a file with a strange name"


def shown_value(value: str, known: tuple[str, ...] = ()) -> str:
    """A value for a message: shown if it is in `known`, or if `known` is empty and it is a word."""
    if value in known or (not known and _WORD.fullmatch(value)):
        return value
    return "(another value)"
