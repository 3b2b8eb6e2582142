# SPDX-License-Identifier: Apache-2.0
"""Parses the layout of an ELF file: its sections by name, its segments, its notes.

The file is untrusted, so every size and offset in it may be any number. Everything is read by
offset, within bounds; a value that does not fit raises `ValueError`. Header tables are read whole
into numpy.
"""

from __future__ import annotations

import lzma
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import numpy.typing as npt

#: Elf64_Ehdr, Elf64_Shdr and Elf64_Phdr (System V ABI, "ELF Header", "Sections", "Program Header").
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = np.dtype(
    [
        *(("name", "<u4"), ("type", "<u4"), ("flags", "<u8"), ("vaddr", "<u8"), ("offset", "<u8")),
        *(("size", "<u8"), ("link", "<u4"), ("info", "<u4"), ("align", "<u8"), ("entry", "<u8")),
    ]
)
_SEGMENT = np.dtype(
    [
        *(("type", "<u4"), ("flags", "<u4"), ("offset", "<u8"), ("vaddr", "<u8")),
        *(("paddr", "<u8"), ("size", "<u8"), ("memory", "<u8"), ("align", "<u8")),
    ]
)
_MAGIC, _ET_EXEC = b"\x7fELF", 2
_SHT_PROGBITS, _SHT_NOBITS, _PT_LOAD, _PT_TLS, _PF_X = 1, 8, 1, 7, 1
_MACHINES = {3: "x86", 21: "PowerPC", 22: "S/390", 40: "ARM", 62: "x64", 183: "AArch64"}
_MACHINES |= {243: "RISC-V", 258: "LoongArch"}

#: Most headers; a linked executable has some forty sections and a dozen segments.
_SECTIONS_MAX, _SEGMENTS_MAX = 4096, 1024
_NAMES_BYTES_MAX = 1 << 20
_NAME_BYTES_MAX = 256
_SECTION_BYTES_MAX = 192 << 20  #: a symbol table of 8 million functions
_NOTES_BYTES_MAX, _NOTES_MAX = 1 << 20, 10_000
_DEBUGDATA_BYTES_MAX = 64 << 20
#: Raised for malformed files.
MALFORMED = (
    ValueError,
    IndexError,
    struct.error,
    OverflowError,
    MemoryError,
    EOFError,
    lzma.LZMAError,
)


class Source(Protocol):
    """Bytes that can be read by offset."""

    def size(self) -> int: ...

    def read(self, offset: int, size: int) -> bytes:
        """Returns fewer bytes at the end."""


@dataclass(frozen=True)
class FileSource:
    """Reads an open file, without its file position."""

    descriptor: int

    def size(self) -> int:
        return os.fstat(self.descriptor).st_size

    def read(self, offset: int, size: int) -> bytes:
        return os.pread(self.descriptor, size, offset)


@dataclass(frozen=True)
class MemorySource:
    content: bytes

    def size(self) -> int:
        return len(self.content)

    def read(self, offset: int, size: int) -> bytes:
        return self.content[offset : offset + size]


@dataclass(frozen=True)
class Section:
    index: int
    name: str
    type: int
    vaddr: int
    offset: int
    size: int
    link: int  #: index of the related section

    @property
    def is_in_file(self) -> bool:
        return self.type != _SHT_NOBITS


@dataclass(frozen=True)
class Segment:
    """A segment that is loaded into memory."""

    vaddr: int
    offset: int
    size: int
    memory: int  #: its size in memory, including the zeros after its content
    executable: bool


@dataclass(frozen=True)
class Note:
    name: bytes
    type: int
    content: bytes


class ElfFile:
    """An ELF file. Any method may raise the errors in `MALFORMED`."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._size = source.size()
        header = source.read(0, _HEADER.size)
        if not header.startswith(_MAGIC):
            raise ValueError("Magic number does not match")
        identity = header[:16]
        #: The rest applies only to such files.
        self.is_64_bit_little_endian = identity[4:6] == b"\x02\x01"
        fields = _HEADER.unpack(header)[1:] if self.is_64_bit_little_endian else (0,) * 13
        kind, machine, _, _, self._phoff, self._shoff, _, _, *rest = map(int, fields)
        self._phsize, self._phnum, self._shsize, self._shnum, self._names_index = rest
        self.machine = _MACHINES.get(machine, f"machine {machine}")
        self.is_fixed = kind == _ET_EXEC

    def section(self, name: str) -> Section | None:
        return self._by_name.get(name)

    def linked(self, section: Section) -> Section:
        """Returns the related section; for a symbol table, its strings."""
        return self._sections[section.link]

    def content(self, section: Section, most: int = _SECTION_BYTES_MAX) -> bytes:
        """Returns the content as stored in the file, compressed or not."""
        if section.size > most:
            raise ValueError(f"section {section.name} of {section.size} bytes")
        return self._read(section.offset, section.size, f"section {section.name}")

    def notes(self, name: str) -> Iterator[Note]:
        """Yields the notes in a section (System V ABI, "Note Section")."""
        section = self.section(name)
        if section is None or not section.is_in_file:
            return
        content, at = self.content(section, _NOTES_BYTES_MAX), 0
        for _ in range(_NOTES_MAX):
            if at + 12 > len(content):
                return
            name_size, size, kind = struct.unpack_from("<III", content, at)
            begins = at + 12 + (name_size + 3) // 4 * 4
            if begins + size > len(content):
                raise ValueError(f"a note in {name} reaches beyond its end")
            yield Note(
                content[at + 12 : at + 12 + name_size], kind, content[begins : begins + size]
            )
            at = begins + (size + 3) // 4 * 4

    def segments(self) -> Iterator[Segment]:
        """Yields the loaded segments."""
        if self._phnum > _SEGMENTS_MAX:
            raise ValueError(f"{self._phnum} segments")
        for row in self._headers(_SEGMENT, self._phoff, self._phnum, self._phsize):
            if row["type"] == _PT_LOAD:
                vaddr, offset, size, memory = (
                    int(row[name]) for name in ("vaddr", "offset", "size", "memory")
                )
                yield Segment(vaddr, offset, size, memory, bool(row["flags"] & _PF_X))

    def thread_bytes(self) -> int:
        """Returns the size of the block of thread-local variables below the thread pointer (ELF
        TLS, variant II); 0: it has none."""
        for row in self._headers(_SEGMENT, self._phoff, self._phnum, self._phsize):
            if row["type"] == _PT_TLS:
                memory, align = int(row["memory"]), max(int(row["align"]), 1)
                return -(-memory // align) * align
        return 0

    def debug_data(self) -> ElfFile | None:
        """Returns MiniDebugInfo, a compressed ELF file with this file's addresses.

        GDB manual, "Debugging information in a special section".
        """
        packed = self.section(".gnu_debugdata")
        if packed is None or packed.type != _SHT_PROGBITS:
            return None
        return ElfFile(MemorySource(_decompressed(self.content(packed, _DEBUGDATA_BYTES_MAX))))

    @cached_property
    def _by_name(self) -> dict[str, Section]:
        return {section.name: section for section in self._sections}

    @cached_property
    def _sections(self) -> list[Section]:
        if self._shnum > _SECTIONS_MAX:
            raise ValueError(f"{self._shnum} sections")
        rows = self._headers(_SECTION, self._shoff, self._shnum, self._shsize)
        if not len(rows):
            return []
        of_names = rows[self._names_index]
        if of_names["size"] > _NAMES_BYTES_MAX:
            raise ValueError(f"section names of {of_names['size']} bytes")
        names = self._read(int(of_names["offset"]), int(of_names["size"]), "section names")
        return [
            Section(
                number,
                _name(names, int(row["name"])),
                *(int(row[field]) for field in ("type", "vaddr", "offset", "size", "link")),
            )
            for number, row in enumerate(rows)
        ]

    def _headers(
        self, form: np.dtype[np.void], offset: int, count: int, size: int
    ) -> npt.NDArray[np.void]:
        if count and size != form.itemsize:
            raise ValueError(f"headers of {size} bytes")
        return np.frombuffer(self._read(offset, count * size, "headers"), form)

    def _read(self, offset: int, size: int, what: str) -> bytes:
        if offset + size > self._size:
            raise ValueError(f"{what} reaches beyond the end of the file")
        content = self._source.read(offset, size)
        if len(content) != size:
            raise ValueError(f"{what}: the file was cut meanwhile")
        return content


def _name(names: bytes, position: int) -> str:
    end = names.index(b"\0", position, position + _NAME_BYTES_MAX)
    return names[position:end].decode(errors="replace")


def _decompressed(packed: bytes) -> bytes:
    # memlimit bounds the dictionary, max_length the output.
    inflater = lzma.LZMADecompressor(memlimit=2 * _DEBUGDATA_BYTES_MAX)
    plain = inflater.decompress(packed, max_length=_DEBUGDATA_BYTES_MAX)
    if not inflater.eof:
        raise ValueError("mini debug info is cut off or too large")
    return plain
