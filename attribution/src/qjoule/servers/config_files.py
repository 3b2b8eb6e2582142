# SPDX-License-Identifier: Apache-2.0
"""Reads configuration files within bounds, since a file may be made to exhaust its reader.

Files of lines may include others; the total is bounded. A full YAML reader would follow aliases
of aliases, merge mappings into each other, and take minutes for a number of a million digits. This
YAML reader converts only yes, no and null.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from qjoule.lazy_import import LazyModule
from qjoule.servers.access import Unreadable
from qjoule.servers.candidate import Candidate

if TYPE_CHECKING:
    import yaml
else:
    yaml = LazyModule("yaml")  # 0.6 MB, which only `examine` needs (see its `prepare`)

_FILES_MAX = 256
_BYTES_MAX = 2 << 20
_LINES_MAX = 50_000
_LINE_MAX = 4096  #: characters, as in mysys/my_default.c
_DEPTH_MAX = 10  #: nested includes: the most that any server allows

#: Values that messages may show: a file that is not the server's may contain anything.
_WORD = re.compile(r"[\w.,:*\[\]-]{0,64}", re.ASCII)


@dataclass
class ConfigFiles:
    """Reads one candidate's files, and bounds their total size."""

    candidate: Candidate
    called: str = "configuration files"
    _files: int = 0
    _bytes: int = 0
    _lines: int = 0

    def lines(self, path: str, depth: int) -> Iterator[str]:
        """Yields the lines of a file; none if there is no such file.

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
    """Returns a path for a message: a path from a line of a file may contain anything."""
    return path if len(path) <= 256 and path.isprintable() else "a file with a strange name"


def shown_value(value: str, allowed: tuple[str, ...] = ()) -> str:
    """Returns a value for a message: an `allowed` one, or any word if `allowed` is empty."""
    if value in allowed or (not allowed and _WORD.fullmatch(value)):
        return value
    return "(another value)"


#: cassandra.yaml has 120 KB with its comments, 700 events, a depth of 5, and no aliases.
TEXT_MAX = 384 << 10  #: characters
_EVENTS_MAX = 20_000
_YAML_DEPTH_MAX = 24
_NODES_MAX = 20_000  #: aliases count as the nodes that they refer to
#: YAML 1.1: the meaning of words without quotes.
_WORDS = {"yes": True, "on": True, "true": True, "no": False, "off": False, "false": False}
_NOTHING = ("", "~", "null", "Null", "NULL")
_STANDARD = "tag:yaml.org,2002:"
_TAGS = tuple(_STANDARD + name for name in ("str", "int", "bool", "float", "null", "map", "seq"))


def read_settings(text: str, path: str) -> Any:
    """Parses YAML to mappings, lists, words as strings, and True, False and None.

    Numbers stay strings as written. Keys are strings. Of two equal keys the last one counts. Error
    messages show nothing of the file's content.

    Raises:
        Unreadable: it is not YAML, has several documents or application tags, or exceeds a bound.
    """
    if len(text) > TEXT_MAX:
        raise Unreadable(f"{path} is larger than {TEXT_MAX >> 10} KiB")
    try:
        return _Reader(text, path).document()
    except (yaml.YAMLError, ValueError, IndexError, RecursionError, OverflowError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark is not None else ""
        raise Unreadable(f"{path} is no YAML{where}") from None


class _Reader:
    def __init__(self, text: str, path: str) -> None:
        self._path = path
        self._events = yaml.parse(text, Loader=yaml.BaseLoader)
        self._events_read = 0
        self._nodes = 0
        self._anchors: dict[str, tuple[Any, int]] = {}  #: value, and its number of nodes

    def document(self) -> Any:
        """Returns the only document; None for an empty file."""
        value, documents = None, 0
        while not isinstance(event := self._next(), yaml.StreamEndEvent):
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise Unreadable(f"{self._path} has several documents")
                value = self._value(self._next(), 0)
            elif isinstance(event, yaml.StreamStartEvent):
                continue
        return value

    def _next(self) -> yaml.Event:
        self._events_read += 1
        if self._events_read > _EVENTS_MAX:
            raise Unreadable(f"{self._path} has too many entries")
        return next(self._events)

    def _value(self, event: Any, depth: int) -> Any:
        if depth > _YAML_DEPTH_MAX:
            raise Unreadable(f"{self._path} is nested too deeply")
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in self._anchors:  # also an alias within its own anchor
                raise Unreadable(f"{self._path} has an alias of nothing")
            value, nodes = self._anchors[event.anchor]
            self._count(nodes)
            return value
        before = self._nodes
        self._count(1)
        if event.tag is not None and event.tag not in (*_TAGS, "!"):
            raise Unreadable(f"{self._path} has tags that are not known")
        value = self._plain(event, depth)
        if event.anchor is not None:
            self._anchors[event.anchor] = value, self._nodes - before
        return value

    def _plain(self, event: Any, depth: int) -> Any:
        if isinstance(event, yaml.ScalarEvent):
            return _scalar(event)
        if isinstance(event, yaml.SequenceStartEvent):
            values = []
            while not isinstance(inner := self._next(), yaml.SequenceEndEvent):
                values.append(self._value(inner, depth + 1))
            return values
        if not isinstance(event, yaml.MappingStartEvent):
            raise Unreadable(f"{self._path} is no YAML")
        pairs: dict[str, Any] = {}
        while not isinstance(inner := self._next(), yaml.MappingEndEvent):
            if not isinstance(inner, yaml.ScalarEvent) or inner.value == "<<":
                raise Unreadable(f"{self._path} has keys that are not words")
            pairs[inner.value] = self._value(self._next(), depth + 1)
        return pairs

    def _count(self, nodes: int) -> None:
        self._nodes += nodes
        if self._nodes > _NODES_MAX:
            raise Unreadable(f"{self._path} has too many entries")


def _scalar(event: yaml.ScalarEvent) -> Any:
    value: str = event.value
    if event.style is not None or event.tag is not None:
        return value
    if value in _NOTHING:
        return None
    return _WORDS.get(value.lower(), value)
