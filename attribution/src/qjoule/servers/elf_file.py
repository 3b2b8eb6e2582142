"""What lies where in an ELF file: its sections by name, its segments, its notes.

Header tables are read whole into numpy. pyelftools would make an object of every section to find
one by its name or to list segments, hash tables of all symbols among them: half a second for each
server, before anything is traced.
"""

from __future__ import annotations

import io
import lzma
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
from elftools.common.exceptions import ELFError
from elftools.construct import ConstructError
from elftools.elf.elffile import ELFFile

#: Elf64_Shdr and Elf64_Phdr (System V ABI, "Sections" and "Program Header").
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
_SHT_PROGBITS, _SHT_NOBITS, _PT_LOAD, _PF_X = 1, 8, 1, 1
_SECTION_BYTES_MAX = 1 << 30
_DEBUGDATA_BYTES_MAX = 256 << 20
#: What is raised on files that are not what they say, by pyelftools too.
MALFORMED = (
    ELFError,
    ConstructError,
    ValueError,
    KeyError,
    IndexError,
    TypeError,
    AttributeError,
    AssertionError,
    struct.error,
    OverflowError,
    MemoryError,
    RecursionError,
    EOFError,
    lzma.LZMAError,
)


@dataclass(frozen=True)
class Section:
    index: int
    name: str
    type: int
    vaddr: int
    offset: int
    size: int
    link: int  #: index of the section that goes with it

    @property
    def is_in_file(self) -> bool:
        return self.type != _SHT_NOBITS


@dataclass(frozen=True)
class Segment:
    """A part of the file that is loaded."""

    vaddr: int
    offset: int
    size: int
    memory: int  #: its size there, with what begins as zeros
    executable: bool


class ElfFile:
    """An open ELF file. All of it may raise what is in `MALFORMED`."""

    def __init__(self, stream: BinaryIO) -> None:
        self._elf = ELFFile(stream)
        self._stream = stream
        self.machine: str = self._elf.get_machine_arch()
        #: What follows is of no other file.
        self.is_64_bit_little_endian: bool = self._elf.elfclass == 64 and self._elf.little_endian
        self.is_fixed = self._elf["e_type"] == "ET_EXEC"

    def section(self, name: str) -> Section | None:
        return self._by_name.get(name)

    def linked(self, section: Section) -> Section:
        """The one that goes with it: a symbol table's strings."""
        return self._sections[section.link]

    def content(self, section: Section) -> bytes:
        """As it is in the file: pyelftools would also inflate it, without a bound."""
        if section.size > _SECTION_BYTES_MAX:
            raise ValueError(f"section {section.name} of {section.size} bytes")
        return self._read(section.offset, section.size, f"section {section.name}")

    def notes(self, name: str) -> Iterator[Any]:
        """The notes in a section, as pyelftools gives them."""
        section = self.section(name)
        if section is not None:
            made = self._elf.get_section(section.index)
            if hasattr(made, "iter_notes"):
                yield from made.iter_notes()

    def segments(self) -> Iterator[Segment]:
        """Those that are loaded."""
        elf = self._elf
        for row in self._headers(_SEGMENT, elf["e_phoff"], elf.num_segments(), elf["e_phentsize"]):
            if row["type"] == _PT_LOAD:
                vaddr, offset, size, memory = (
                    int(row[name]) for name in ("vaddr", "offset", "size", "memory")
                )
                yield Segment(vaddr, offset, size, memory, bool(row["flags"] & _PF_X))

    def debug_data(self) -> ElfFile | None:
        """MiniDebugInfo: an ELF file of its own, compressed. Its addresses are the outer file's.

        GDB manual, "Debugging information in a special section".
        """
        packed = self.section(".gnu_debugdata")
        if packed is None or packed.type != _SHT_PROGBITS:
            return None
        return ElfFile(io.BytesIO(_unpacked(self.content(packed))))

    @cached_property
    def _by_name(self) -> dict[str, Section]:
        return {section.name: section for section in self._sections}

    @cached_property
    def _sections(self) -> list[Section]:
        elf = self._elf
        rows = self._headers(_SECTION, elf["e_shoff"], elf.num_sections(), elf["e_shentsize"])
        if not len(rows):
            return []
        of_names = rows[elf.get_shstrndx()]
        names = self._read(int(of_names["offset"]), int(of_names["size"]), "section names")
        return [
            Section(
                number,
                names[row["name"] : names.index(b"\0", row["name"])].decode(errors="replace"),
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
        end = self._stream.seek(0, io.SEEK_END)
        if offset + size > end:
            raise ValueError(f"{what} reaches beyond the end of the file")
        self._stream.seek(offset)
        return self._stream.read(size)


def _unpacked(packed: bytes) -> bytes:
    inflater = lzma.LZMADecompressor(memlimit=_DEBUGDATA_BYTES_MAX)
    plain = inflater.decompress(packed, max_length=_DEBUGDATA_BYTES_MAX)
    if not inflater.eof:
        raise ValueError("mini debug info is cut off or too large")
    return plain
