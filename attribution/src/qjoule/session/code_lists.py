# SPDX-License-Identifier: Apache-2.0
"""Writes the list of what one JVM has compiled to memory that the tracer reads
(`tracer/compiled.h`).

The process of `compiled_code` makes it from the JVM's memory, whose content is untrusted.
"""

from __future__ import annotations

import mmap
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from qjoule.servers.jvm.code_cache import BLOBS_MAX, Code, CodeCache, CodeKind
from qjoule.servers.jvm.hotspot import HotSpot, Memory

#: struct compiled_lists without its lists; struct compiled_list without its code; compiled_code.
HEAD, LIST, CODE = struct.Struct("<IIQ"), struct.Struct("<IIQ"), struct.Struct("<QQ6I")
MAGIC = 0x31434A51
_LIST_BYTES = LIST.size + BLOBS_MAX * CODE.size
LISTS_BYTES = HEAD.size + 2 * _LIST_BYTES
_TURN = 8  #: offset of the number of the current list
FRAME_POINTERS = "PreserveFramePointer"


@dataclass
class CodeLists:
    """Makes the lists of one JVM. `room`: memory that is shared with the tracer."""

    room: mmap.mmap
    module: int
    jvm: HotSpot
    memory: Memory
    frame_pointers: bool = False
    _listed: dict[int, _Listed] = field(default_factory=dict)  #: by block
    _numbered: dict[int, _Listed] = field(default_factory=dict)
    _last: int = 0  #: the last number given to a piece of code

    def __post_init__(self) -> None:
        """Raises `QjouleError` if the JVM's code cannot be listed."""
        self._cache = CodeCache(self.jvm, self.memory)
        self.frame_pointers = self.jvm.flag(FRAME_POINTERS)
        self.room[: HEAD.size] = HEAD.pack(MAGIC, self.module, 0)
        self.update()

    def update(self) -> None:
        """Writes a new list and makes it the current one. Raises `QjouleError` if the JVM's code
        cannot be read."""
        self.memory.begin()
        codes = self._cache.code()
        now_ns = time.monotonic_ns()
        listed: dict[int, _Listed] = {}
        for code in codes:
            entry = self._listed.get(code.block)
            if entry is None or entry.code is not code:
                self._last += 1
                entry = _Listed(code, self._last, _packed(code, self._last, now_ns))
            listed[code.block] = entry
        self._listed = listed
        self._numbered = {entry.number: entry for entry in listed.values()}
        rows = b"".join([entry.row for entry in listed.values()])
        turn = int.from_bytes(self.room[_TURN : HEAD.size], "little") + 1
        at = HEAD.size + turn % 2 * _LIST_BYTES
        head = LIST.pack(len(codes), int(self.frame_pointers), self._cache.call_stub)
        self.room[at : at + LIST.size + len(rows)] = head + rows
        self.room[_TURN : HEAD.size] = turn.to_bytes(8, "little")

    def name(self, number: int) -> str:
        """Returns the name of code that is still there; empty if it is not."""
        listed = self._numbered.get(number)
        if listed is None or listed.code.kind is CodeKind.OTHER:
            return ""
        self.memory.begin()
        return self._cache.name(listed.code)

    def names(self) -> Iterator[tuple[int, str]]:
        """Yields number and name of code that is still there. Raises `QjouleError`."""
        self.memory.begin()
        for code in self._cache.code():
            listed = self._listed.get(code.block)
            if listed is None or listed.code is not code or code.kind is CodeKind.OTHER:
                continue
            if name := self._cache.name(code):
                yield listed.number, name


class _Listed(NamedTuple):
    """A piece of code in the list. `row`: struct compiled_code."""

    code: Code
    number: int
    row: bytes


def _packed(code: Code, number: int, since_ns: int) -> bytes:
    size = code.end - code.begin
    sizes = size, code.frame_words, code.complete, code.kind
    return CODE.pack(code.begin, since_ns, *sizes, number, 0)
