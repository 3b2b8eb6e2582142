# SPDX-License-Identifier: Apache-2.0
"""Server files as an attacker would make them to harm their reader."""

from __future__ import annotations

import json
import os
import resource
import struct
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from qjoule.servers.access import Access
from qjoule.servers.elf import Executable, Symbol
from qjoule.servers.examine import examine
from qjoule.servers.examined_json import examined_from_json
from qjoule.servers.jvm.hotspot import HotSpot, Memory
from qjoule.servers.types import Examined, Facts

CPU_SECONDS = 10  #: time of one examination; an unbounded loop takes minutes
MEMORY_BYTES = 1 << 30  #: more than before it began

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
PROGBITS, SYMTAB, STRTAB, NOTE, NOBITS, DYNSYM = 1, 2, 3, 7, 8, 11


@dataclass(frozen=True)
class Part:
    """A section: its content, or what its header claims."""

    name: str
    type: int
    content: bytes = b""
    link: int = 0
    offset: int | None = None
    size: int | None = None
    name_at: int | None = None


def symbol(name: int, value: int = 0x1000, size: int = 16, info: int = 0x12) -> bytes:
    """An Elf64_Sym in section 1; by default a global function."""
    return struct.pack("<IBBHQQ", name, info, 0, 1, value, size)


def elf(parts: Sequence[Part], *, count: int | None = None, names: bytes = b"") -> bytes:
    """An ELF file with these sections, numbered from 1; the section with their names is last."""
    text = b"\0" + names
    body, rows = b"", [_SECTION.pack(*[0] * 10)]
    for part in (*parts, Part(".shstrtab", STRTAB)):
        at = len(text) if part.name_at is None else part.name_at
        text += part.name.encode() + b"\0"
        content = text if part.name == ".shstrtab" else part.content
        offset = 64 + len(body) if part.offset is None else part.offset
        size = len(content) if part.size is None else part.size
        body += content
        rows.append(_SECTION.pack(at, part.type, 0, 0x1000, offset, size, part.link, 0, 1, 0))
    identity = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    number = len(rows) if count is None else count
    header = _HEADER.pack(
        identity, 2, 62, 1, 0, 0, 64 + len(body), 0, 64, 56, 0, 64, number, len(rows) - 1
    )
    return header + body + b"".join(rows)


def note(name: bytes, kind: int, content: bytes, size: int | None = None) -> bytes:
    """An entry of a section of notes. `size`: its claimed size."""
    claimed = len(content) if size is None else size
    return (
        struct.pack("<III", len(name), claimed, kind)
        + name.ljust((len(name) + 3) // 4 * 4, b"\0")
        + content.ljust((len(content) + 3) // 4 * 4, b"\0")
    )


class OutOfBounds(AssertionError):
    """An examination exceeded its limits, or ended without a result."""


def examine_alone(access: Access, facts: Facts) -> Examined:
    """Runs `examine` in a child that is killed at its limits; returns its answer as JSON."""
    answer, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(answer)
            resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
            most = _address_space() + MEMORY_BYTES
            resource.setrlimit(resource.RLIMIT_AS, (most, most))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            with os.fdopen(write_end, "wb") as out:
                out.write(json.dumps(examine(access, facts).to_json()).encode())
        except BaseException:
            traceback.print_exc(file=sys.stderr)
            os._exit(1)
        os._exit(0)
    os.close(write_end)
    with os.fdopen(answer, "rb") as stream:
        document = stream.read()
    _, status = os.waitpid(child, 0)
    if status:
        raise OutOfBounds(f"the examination ended with status {status:#x}")
    examined = examined_from_json(document)
    if "MemoryError" in examined.problem:
        raise OutOfBounds(examined.problem)
    return examined


def _address_space() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * os.sysconf("SC_PAGE_SIZE")


def facts_of(path: Path, exe_name: str = "", pid: int = 0) -> Facts:
    """The facts of an executable, or of a process that runs it."""
    status = path.stat()
    return Facts(exe_name or str(path), (status.st_dev, status.st_ino), pid)


@dataclass(frozen=True)
class Library:
    """The variables of a libjvm.so, by their addresses."""

    variables: dict[str, int]
    path: str = "libjvm.so"

    def variable(self, name: str) -> Symbol | None:
        at = self.variables.get(name)
        return None if at is None else Symbol(name, at, 8, ".dynsym")


@contextmanager
def hotspot(memory: ToyMemory, variables: dict[str, int]) -> Iterator[HotSpot]:
    """A JVM with this memory."""
    descriptor = memory.open()
    try:
        yield HotSpot(Memory(descriptor), cast(Executable, Library(variables)), 0)
    finally:
        os.close(descriptor)


#: The tables of a HotSpot, in the order in which they are searched.
_STRUCT_COLUMNS = (
    *("TypeNameOffset", "FieldNameOffset", "IsStaticOffset", "OffsetOffset", "AddressOffset"),
    "TypeStringOffset",
)


class ToyMemory:
    """A JVM's memory in a file, filled piece by piece."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.content = bytearray(4096)  # address 0 means null

    def put(self, content: bytes) -> int:
        """Appends content; returns its address."""
        at = len(self.content)
        self.content += content.ljust((len(content) + 15) // 8 * 8, b"\0")
        return at

    def words(self, *values: int) -> int:
        return self.put(struct.pack(f"<{len(values)}Q", *(v % (1 << 64) for v in values)))

    def open(self) -> int:
        self.path.write_bytes(self.content)
        return os.open(self.path, os.O_RDONLY)


def vm_structs(
    memory: ToyMemory,
    fields: Iterable[tuple[str, str, bool, int, int]],
    sizes: Iterable[tuple[str, int]] = (),
    stride: int = 48,
    type_names: Mapping[str, str] = {},
) -> dict[str, int]:
    """Writes `gHotSpotVMStructs` and `gHotSpotVMTypes`. `type_names`: of fields, by name."""

    def string(text: str) -> int:
        return memory.put(text.encode() + b"\0")

    structs = [
        (
            string(klass),
            string(name),
            int(static),
            offset,
            address,
            string(type_names.get(name, "")),
        )
        for klass, name, static, offset, address in fields
    ]
    table = memory.words(*(word for row in structs for word in row), *[0] * 6)
    types = [(string(name), size) for name, size in sizes]
    type_table = memory.words(*(word for row in types for word in row), 0, 0)
    values = {"gHotSpotVMStructs": table, "gHotSpotVMTypes": type_table}
    values["gHotSpotVMStructEntryArrayStride"] = stride
    for number, column in enumerate(_STRUCT_COLUMNS):
        values[f"gHotSpotVMStructEntry{column}"] = 8 * number
    values["gHotSpotVMTypeEntryArrayStride"] = 16
    values["gHotSpotVMTypeEntryTypeNameOffset"] = 0
    values["gHotSpotVMTypeEntrySizeOffset"] = 8
    return {name: memory.words(value) for name, value in values.items()}
