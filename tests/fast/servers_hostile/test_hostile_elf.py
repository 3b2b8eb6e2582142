# SPDX-License-Identifier: Apache-2.0
"""Executables with contents that no linker writes."""

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
from qjoule.servers.examined import Examined
from servers.hostile import (
    DYNSYM,
    NOBITS,
    NOTE,
    PROGBITS,
    STRTAB,
    SYMTAB,
    Part,
    elf,
    examine_alone,
    facts_of,
    note,
    symbol,
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
    ("content", "words"),
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
def test_each_bound_of_an_executable_is_one_line(path: Path, content: bytes, words: str) -> None:
    result = examined(path, content)
    assert result.flavour is None
    assert re.search(words, result.problem)
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
