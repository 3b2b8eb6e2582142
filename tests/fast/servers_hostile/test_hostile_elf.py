# SPDX-License-Identifier: Apache-2.0
"""Executables with contents that no linker writes. Also: fake JVM tables."""

from __future__ import annotations

import lzma
import os
import re
import struct
from pathlib import Path

import pytest

from qjoule.errors import QjouleError
from qjoule.servers.direct_access import FileAccess
from qjoule.servers.elf import open_executable
from qjoule.servers.jvm.hotspot import CannotRead
from qjoule.servers.types import Examined
from servers.hostile import (
    DYNSYM,
    NOBITS,
    NOTE,
    PROGBITS,
    STRTAB,
    SYMTAB,
    Part,
    ToyMemory,
    elf,
    examine_alone,
    facts_of,
    hotspot,
    note,
    symbol,
    vm_structs,
)
from servers.toy_elf import MYSQL_8

NAME = b"\0" + MYSQL_8.encode() + b"\0"
#: The string that makes it a MySQL, so that its functions are searched for.
MYSQL = Part(".rodata", PROGBITS, b"\0mysql_native_password\0MySQL 8.0.36 \0")


def symbols(content: bytes, strings: bytes = NAME) -> list[Part]:
    return [
        MYSQL,
        Part(".symtab", SYMTAB, content, link=3),
        Part(".strtab", STRTAB, strings),
    ]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "mysqld"


def examined(path: Path, content: bytes) -> Examined:
    """What an examination within resource limits makes of an executable that does not run."""
    path.write_bytes(content)
    return examine_alone(FileAccess(path), facts_of(path))


#: 100,000 occurrences of one name: each was looked up among all symbols, which took minutes.
REPEATED = symbols(
    b"".join(symbol(1 + number * (len(NAME) - 1)) for number in range(100_000)),
    b"\0" + NAME[1:] * 100_000,
)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (elf([MYSQL], count=65535), "65535 sections"),
        (elf([MYSQL], names=b"x" * (2 << 20)), "section names of"),
        (elf([MYSQL, Part(".symtab", SYMTAB, link=77)]), "out of bounds|out of range"),
        (elf([MYSQL, Part(".dynsym", DYNSYM, offset=1 << 63, size=1 << 20)]), "beyond the end"),
        (elf([MYSQL, Part(".note.gnu.build-id", NOTE, note(b"GNU\0", 3, b"", 1 << 31))]), "note"),
        (elf(REPEATED), "more than 1000 times"),
        (
            elf([MYSQL, Part(".gnu_debugdata", PROGBITS, lzma.compress(bytes(80 << 20)))]),
            "mini debug info",
        ),
    ],
    ids=range(7),
)
def test_each_bound_of_an_executable_is_one_line(path: Path, content: bytes, message: str) -> None:
    result = examined(path, content)
    assert result.flavour is None
    assert re.search(message, result.problem)
    assert "\n" not in result.problem


@pytest.mark.parametrize(
    "parts",
    [
        symbols(symbol(1), b"\0_Z16dispatch_command" + b"x" * (8 << 20)),  # a name without an end
        symbols(symbol(1, (1 << 64) - 1) * 1_000_000),
        symbols(symbol(1, (1 << 64) - 1, 1 << 63)),
    ],
    ids=range(3),
)
def test_functions_of_any_name_number_size_and_place_have_no_probe(
    path: Path, parts: list[Part]
) -> None:
    content = bytearray(elf(parts))
    segment = struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, 1 << 63, 1 << 63, 1)
    struct.pack_into("<Q", content, 32, len(content))  # e_phoff
    struct.pack_into("<H", content, 56, 1)  # e_phnum
    result = examined(path, bytes(content) + segment)
    assert result.resolution is not None
    assert 0 < len(result.resolution.problem) <= 1000
    assert result.resolution.boundary == ()


def test_sections_that_claim_gigabytes_are_not_read(path: Path) -> None:
    """The file takes no space on the disk."""
    size = 2100 << 20
    parts = [
        Part(name, kind, offset=4096, size=size - 4096, link=3)
        for name, kind in ((".rodata", PROGBITS), (".symtab", SYMTAB), (".strtab", STRTAB))
    ]
    path.write_bytes(elf(parts))
    os.truncate(path, size)
    assert examine_alone(FileAccess(path), facts_of(path)).flavour is None
    parts = [Part(".rodata", NOBITS, size=1 << 62), Part(".symtab", NOBITS, size=1 << 62)]
    assert examined(path, elf(parts)).flavour is None


def test_code_is_read_in_bounds(path: Path) -> None:
    path.write_bytes(elf([MYSQL]))
    executable = open_executable(path)
    with pytest.raises(QjouleError, match="at a time"):
        executable.read(0, 1 << 40)
    with pytest.raises(QjouleError, match="no such offset"):
        executable.read(1 << 70, 16)
    assert executable.read(1 << 60, 16) == b""


# ---- fake JVM tables: a process can write anything to its own memory -----------------------------

#: The structures needed to read a list of classes: (type, field, static, offset, address).
FIELDS = [
    ("ClassLoaderData", "_next", False, 0, 0),
    ("ClassLoaderData", "_klasses", False, 8, 0),
    ("Klass", "_name", False, 0, 0),
    ("Klass", "_next_link", False, 8, 0),
    ("Symbol", "_length", False, 0, 0),
    ("Symbol", "_body", False, 2, 0),
    ("JVMFlag", "_name", False, 0, 0),
    ("JVMFlag", "_addr", False, 8, 0),
]
SIZES = [("JVMFlag", 16), ("ConstantPool", 16)]


@pytest.fixture
def memory(tmp_path: Path) -> ToyMemory:
    return ToyMemory(tmp_path / "mem")


def statics(head: int, flags: int = 0, count: int = 0) -> list[tuple[str, str, bool, int, int]]:
    return [
        ("ClassLoaderDataGraph", "_head", True, 0, head),
        ("JVMFlag", "flags", True, 0, flags),
        ("JVMFlag", "numFlags", True, 0, count),
    ]


def lists(memory: ToyMemory, loader: int, klass: int, name: int = 0) -> dict[str, int]:
    """A loader and a class at fixed places; each is its own next one if its argument is not 0."""
    at = len(memory.content)
    memory.words(at if loader else 0, at + 24)  # its next is itself
    memory.words(name, at + 24 if klass else 0)
    zero = memory.words(0)
    return vm_structs(memory, [*FIELDS, *statics(memory.words(at), zero, zero)], SIZES)


@pytest.mark.parametrize(
    ("loader", "klass", "name"),
    [(1, 0, b""), (0, 1, b""), (0, 1, b"\x01\x00b")],  # with names, the bound on reads is first
)
def test_lists_in_a_circle_end(memory: ToyMemory, loader: int, klass: int, name: bytes) -> None:
    variables = lists(memory, loader, klass, memory.put(name) if name else 0)
    with hotspot(memory, variables) as hotspot_jvm, pytest.raises(CannotRead, match="no end"):
        hotspot_jvm.classes({"a"})


@pytest.mark.parametrize("size", [0, 1 << 17, 1 << 63])
def test_flags_of_any_size_are_refused(size: int, memory: ToyMemory) -> None:
    zero, many = memory.words(0), memory.words((1 << 64) - 1)
    variables = vm_structs(memory, [*FIELDS, *statics(zero, zero, many)], [("JVMFlag", size)])
    with pytest.raises(CannotRead), hotspot(memory, variables):
        pass


@pytest.mark.parametrize("pointer", [1 << 47, (1 << 64) - 1, (1 << 64) - 4096])
def test_wild_pointers(pointer: int, memory: ToyMemory) -> None:
    head = memory.words(pointer)
    zero = memory.words(0)
    variables = vm_structs(memory, [*FIELDS, *statics(head, zero, zero)], SIZES)
    with hotspot(memory, variables) as jvm, pytest.raises(CannotRead):
        jvm.classes({"a"})
    for name in variables:
        with pytest.raises(CannotRead), hotspot(memory, variables | {name: pointer}):
            pass


@pytest.mark.parametrize("stride", [0, 1 << 20, (1 << 64) - 1])
def test_strides_that_make_no_sense(stride: int, memory: ToyMemory) -> None:
    zero = memory.words(0)
    variables = vm_structs(memory, [*FIELDS, *statics(zero, zero, zero)], SIZES, stride)
    with pytest.raises(CannotRead, match="make no sense"), hotspot(memory, variables):
        pass


@pytest.mark.parametrize("offset", [1 << 17, (1 << 64) - 1])
def test_structures_of_any_size(offset: int, memory: ToyMemory) -> None:
    """A class is read up to its last field: that many bytes were requested."""
    fields = [field for field in FIELDS if field[:2] != ("Klass", "_name")]
    zero, head = memory.words(0), memory.words(4096)
    wild = [("Klass", "_name", False, offset, 0)]
    variables = vm_structs(memory, [*fields, *wild, *statics(head, zero, zero)], SIZES)
    with hotspot(memory, variables) as jvm, pytest.raises(CannotRead, match="Klass::_name"):
        jvm.classes({"a"})
