# SPDX-License-Identifier: Apache-2.0
"""Executables with contents that no linker writes."""

from __future__ import annotations

import lzma
import re
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from qjoule.errors import QjouleError
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
    note,
    symbol,
)
from servers.toy_elf import MYSQL_8

NAME = MYSQL_8.encode()
#: The string that makes it a MySQL, so that its functions are searched for.
MYSQL = Part(".rodata", PROGBITS, b"\0mysql_native_password\0MySQL 8.0.36 \0")


def one_line_about(found: Examined) -> str:
    assert found.flavour is None
    assert found.problem
    assert "\n" not in found.problem
    return found.problem


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (elf([MYSQL], count=65535), "65535 sections"),
        (elf([MYSQL], count=4000), "beyond the end"),
        (elf([MYSQL], names=b"x" * (2 << 20)), "section names of"),
        (elf([Part("a", PROGBITS, name_at=1)], names=b"x" * (1 << 20)), "section names of"),
        (elf([Part("a", PROGBITS, name_at=1)], names=b"x" * 1000), "not found"),
        (elf([MYSQL, Part(".symtab", SYMTAB, link=77)]), "out of bounds|out of range"),
        (elf([MYSQL, Part(".dynsym", DYNSYM, offset=1 << 63, size=1 << 20)]), "beyond the end"),
        (elf([MYSQL, Part(".note.gnu.build-id", NOTE, note(b"GNU\0", 3, b"", 1 << 31))]), "note"),
        (elf([MYSQL, Part(".note.gnu.build-id", NOTE, size=2 << 20)]), "bytes"),
    ],
    ids=range(9),
)
def test_headers_that_make_no_sense(
    content: bytes, words: str, look_into: Callable[..., Examined]
) -> None:
    assert re.search(words, one_line_about(look_into(content)))


def test_a_table_with_one_name_a_hundred_thousand_times(
    look_into: Callable[..., Examined],
) -> None:
    """Each occurrence of a name was looked up among all symbols: minutes for a file of 12 MB."""
    times = 100_000
    strings = b"\0" + (NAME + b"\0") * times
    symbols = b"".join(symbol(1 + number * (len(NAME) + 1)) for number in range(times))
    tables = [Part(".symtab", SYMTAB, symbols, link=3), Part(".strtab", STRTAB, strings)]
    assert "more than 1000 times" in one_line_about(look_into(elf([MYSQL, *tables])))


def test_a_name_without_an_end(look_into: Callable[..., Examined]) -> None:
    strings = b"\0_Z16dispatch_command" + b"x" * (8 << 20)
    tables = [Part(".symtab", SYMTAB, symbol(1), link=3), Part(".strtab", STRTAB, strings)]
    found = look_into(elf([MYSQL, *tables]))
    assert found.resolution is not None
    assert len(found.resolution.problem) <= 1000


def test_a_million_symbols_of_one_name(look_into: Callable[..., Examined]) -> None:
    tables = [
        Part(".symtab", SYMTAB, symbol(1) * 1_000_000, link=3),
        Part(".strtab", STRTAB, b"\0" + NAME + b"\0"),
    ]
    found = look_into(elf([MYSQL, *tables]))
    assert found.resolution is not None
    assert found.resolution.problem


@pytest.mark.parametrize(("value", "size"), [(0x1000, (1 << 64) - 1), ((1 << 64) - 1, 1 << 63)])
def test_functions_of_any_size_and_place(
    value: int, size: int, look_into: Callable[..., Examined]
) -> None:
    tables = [
        Part(".symtab", SYMTAB, symbol(1, value, size), link=3),
        Part(".strtab", STRTAB, b"\0" + NAME + b"\0"),
    ]
    content = bytearray(elf([MYSQL, *tables]))
    segment = struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, 1 << 63, 1 << 63, 1)
    struct.pack_into("<Q", content, 32, len(content))  # e_phoff
    struct.pack_into("<H", content, 56, 1)  # e_phnum
    found = look_into(bytes(content) + segment)
    assert found.resolution is not None
    assert found.resolution.problem
    assert found.resolution.boundary == ()


def test_a_bomb_of_mini_debug_info(look_into: Callable[..., Examined]) -> None:
    packed = lzma.compress(bytes(80 << 20), preset=0)
    found = look_into(elf([MYSQL, Part(".gnu_debugdata", PROGBITS, packed)]))
    assert "mini debug info" in one_line_about(found)


def test_a_file_of_two_gigabytes_that_is_empty(
    tmp_path: Path, look_into: Callable[..., Examined]
) -> None:
    """It takes no space on the disk, but its sections claim all of it."""
    size = 2100 << 20
    parts = [
        Part(".rodata", PROGBITS, offset=4096, size=size - 4096),
        Part(".symtab", SYMTAB, offset=4096, size=size - 4096, link=3),
        Part(".strtab", STRTAB, offset=4096, size=size - 4096),
        Part(".dynsym", DYNSYM, offset=4096, size=size - 4096, link=3),
    ]
    path = tmp_path / "mysqld"
    path.write_bytes(elf(parts))
    with path.open("r+b") as stream:
        stream.truncate(size)
    assert look_into(path).flavour is None


def test_sections_that_are_not_in_the_file(look_into: Callable[..., Examined]) -> None:
    parts = [Part(".rodata", NOBITS, size=1 << 62), Part(".symtab", NOBITS, size=1 << 62)]
    assert look_into(elf(parts)).flavour is None


def test_constants_full_of_what_is_looked_for(look_into: Callable[..., Examined]) -> None:
    """Versions, banners and the names in them, thirty megabytes of each."""
    for text in (b"\0", b"-MariaDB", b"\0" + b"9.9.9", b"MySQL 8.0.36 ", b"m", b"\0PostgreSQL 1"):
        marks = b"Redis version=%s, bits=%d" + b"mysql_native_password"
        content = text * ((30 << 20) // len(text))
        look_into(elf([Part(".rodata", PROGBITS, marks + content)]))


def test_code_is_read_in_bounds(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(elf([MYSQL]))
    executable = open_executable(path)
    with pytest.raises(QjouleError, match="at a time"):
        executable.read(0, 1 << 40)
    with pytest.raises(QjouleError, match="no such offset"):
        executable.read(1 << 70, 16)
    assert executable.read(1 << 60, 16) == b""
