# SPDX-License-Identifier: Apache-2.0
"""Writes what a server's process has mapped, for the tracer to unwind its stacks with.

The unwind tables (`.eh_frame`) are copied unchanged: the tracer parses them. Only the headers of a
file are parsed here. `tracer/stacks.h` has the layout.
"""

from __future__ import annotations

import ctypes
import posixpath
import re
import struct
from collections.abc import Iterator, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Protocol

from qjoule.errors import QjouleError
from qjoule.servers.access import Access, ProcFile, Unreadable, mapped_files
from qjoule.servers.elf import build_id_of
from qjoule.servers.elf_file import MALFORMED, ElfFile, FileSource, MemorySource, Section

MAGIC, MODULES_MAX = 0x31544A51, 512
#: struct stacks_head; struct stacks_module
HEAD, MODULE = struct.Struct("<4I4Q"), struct.Struct("<9QII2Q")
#: Memory for one process. A large server's tables have some 20 MB.
SPACE_BYTES = 64 << 20
VDSO = "[vdso]"
#: In place of a file: the code that a JVM has compiled. Offsets in it are numbers of its code.
JIT_CODE = "[JIT code]"
#: The sections with unwind information: an index, and the tables.
TABLES = (".eh_frame_hdr", ".eh_frame")
_LINE = re.compile(
    r"([0-9a-f]{1,16})-([0-9a-f]{1,16}) (\S{4}) ([0-9a-f]{1,16}) (\S+ \d{1,20}) *(.*)"
)
#: Libraries that are not mapped: most per directory, and the end of their names.
_LIBRARIES_MAX, LIBRARY = 256, ".so"
_DELETED = " (deleted)"
_PATH_MAX = 4096


class Room(Protocol):
    """Memory that is shared with the tracer."""

    def __setitem__(self, where: slice, content: bytes, /) -> None: ...
    def __len__(self) -> int: ...


@dataclass(frozen=True)
class Mapped:
    """A line of /proc/PID/maps. `file`: device and inode."""

    start: int
    end: int
    executable: bool
    offset: int
    file: str
    name: str


@dataclass(frozen=True)
class ModuleFile:
    """A file with code: its path and identity."""

    path: str
    build_id: str


@dataclass(frozen=True)
class _Tables:
    """Tables of one file: segments of code (address, offset, size), and sections in the room."""

    number: int
    code: tuple[tuple[int, int, int], ...]
    sections: tuple[int, ...]  #: offset in the room, size and address of each of `TABLES`


def mapped(maps: bytes) -> Iterator[Mapped]:
    """Parses the lines of /proc/PID/maps."""
    for line in maps.decode(errors="replace").split("\n"):
        if match := _LINE.fullmatch(line):
            start, end, rights, offset, file, name = match.groups()
            yield Mapped(
                *(int(start, 16), int(end, 16), rights[2] == "x", int(offset, 16), file),
                name.removesuffix(_DELETED),
            )


def is_jvm(access: Access) -> bool:
    """Returns true if the process is a HotSpot JVM."""
    return bool(mapped_files(access.proc(ProcFile.MAPS), "libjvm.so"))


@cache
def own_vdso() -> bytes:
    """Returns the code that the kernel maps into every process, from our own memory."""
    for mapping in mapped(Path("/proc/self/maps").read_bytes()):
        if mapping.name == VDSO:
            return ctypes.string_at(mapping.start, mapping.end - mapping.start)
    return b""


@dataclass
class StackTables:
    """Writes the tables of one process into `room`. Its modules are numbered from `first`."""

    room: Room
    first: int
    vdso: bytes = b""
    modules: list[ModuleFile] = field(default_factory=list)
    used: int = HEAD.size + MODULES_MAX * MODULE.size  #: bytes of the room in use
    _by_file: dict[str, _Tables | None] = field(default_factory=dict)

    def write(self, access: Access, libraries: Sequence[str] = ()) -> list[ModuleFile]:
        """Returns the files, ordered by module number. Files that cannot be read have no number.

        Args:
            libraries: see `ServerSupport.libraries`.

        Raises:
            QjouleError: the process's mappings cannot be read.
        """
        every = list(mapped(access.proc(ProcFile.MAPS)))
        stack = next((m for m in every if m.name == "[stack]"), None)
        code = [m for m in every if m.executable and (m.name[:1] == "/" or self._is_vdso(m))]
        if stack is None or not code:
            raise QjouleError("what it has mapped cannot be read")
        executable = access.executable()
        executable.close()
        #: The executable may be mapped in parts; the kernel reports where the first one begins.
        first = next((m for m in code if m.name == executable.path), code[0])
        rows = [row for m in code[:MODULES_MAX] if (row := self._row(access, m))]
        count = len(rows)
        inodes = {int(m.file.rpartition(" ")[2]) for m in code}
        unmapped = self._libraries(access, posixpath.dirname(executable.path), libraries, inodes)
        rows += islice(unmapped, MODULES_MAX - count)
        self.room[0 : HEAD.size] = HEAD.pack(
            *(MAGIC, count, len(rows) - count, 0),
            *(first.start, first.end, stack.start, stack.end),
        )
        self.room[HEAD.size : HEAD.size + len(rows) * MODULE.size] = b"".join(rows)
        if is_jvm(access):
            self.modules.append(ModuleFile(JIT_CODE, ""))
        return self.modules

    def _is_vdso(self, mapping: Mapped) -> bool:
        return mapping.name == VDSO and bool(self.vdso)

    def _row(self, access: Access, mapping: Mapped) -> bytes | None:
        """Packs one struct stacks_module; None: its file has no tables."""
        key = mapping.file + mapping.name
        if key not in self._by_file:
            try:
                self._by_file[key] = self._read(access, mapping)
            except (Unreadable, OSError, *MALFORMED):
                self._by_file[key] = None
        tables = self._by_file[key]
        if tables is None:
            return None
        for vaddr, offset, size in tables.code:
            # A segment is mapped from the start of its first page.
            if offset - 0xFFFF <= mapping.offset < offset + size:
                bias = (mapping.start - (vaddr + mapping.offset - offset)) & (1 << 64) - 1
                numbers = *tables.sections, tables.number, 0, 0, 0
                return MODULE.pack(mapping.start, mapping.end, bias, *numbers)
        return None

    def _read(self, access: Access, mapping: Mapped) -> _Tables | None:
        if mapping.name == VDSO:
            return self._copy_tables(ElfFile(MemorySource(self.vdso)), VDSO)
        file = access.mapped(mapping.start, mapping.end)
        try:
            return self._copy_tables(ElfFile(FileSource(file.fd)), mapping.name)
        finally:
            file.close()

    def _libraries(
        self, access: Access, beside: str, directories: Sequence[str], mapped_inodes: Set[int]
    ) -> Iterator[bytes]:
        """Yields a struct stacks_module per library of the first directory that has any."""
        for directory in (posixpath.normpath(posixpath.join(beside, d)) for d in directories):
            names = []
            with suppress(Unreadable):
                names = [file for file in access.names(directory) if file.endswith(LIBRARY)]
            for name in names[:_LIBRARIES_MAX]:
                with suppress(Unreadable, OSError, *MALFORMED):
                    yield from self._library(access, f"{directory}/{name}", mapped_inodes)
            if names:
                return

    def _library(self, access: Access, path: str, mapped_inodes: Set[int]) -> Iterator[bytes]:
        identity, content = access.file_id(path), access.file(path)
        # The file may be replaced meanwhile: then its identity is unknown.
        if not identity or not content or access.file_id(path) != identity:
            return
        if identity[1] in mapped_inodes or not (
            tables := self._copy_tables(ElfFile(MemorySource(content)), path)
        ):
            return
        for vaddr, offset, size in tables.code:
            bias = (offset - vaddr) & (1 << 64) - 1
            numbers = *tables.sections, tables.number, 0, identity[1], len(content)
            yield MODULE.pack(offset, offset + size, bias, *numbers)

    def _copy_tables(self, elf: ElfFile, name: str) -> _Tables | None:
        sections = [elf.section(section) for section in TABLES]
        if not elf.is_64_bit_little_endian or elf.machine != "x64" or not all(sections):
            return None
        placed = tuple(n for s in sections if s is not None for n in self._copy_section(elf, s))
        code = tuple((s.vaddr, s.offset, s.size) for s in elf.segments() if s.executable)
        self.modules.append(ModuleFile(name[:_PATH_MAX], build_id_of(elf)))
        return _Tables(self.first + len(self.modules) - 1, code, placed)

    def _copy_section(self, elf: ElfFile, section: Section) -> tuple[int, int, int]:
        content = elf.content(section, len(self.room) - self.used)
        at, self.used = self.used, self.used + len(content)
        self.room[at : self.used] = content
        return at, len(content), section.vaddr
