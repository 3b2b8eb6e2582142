# SPDX-License-Identifier: Apache-2.0
"""Symbols, file offsets and notes of executables, including hostile ones."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from qjoule.errors import QjouleError
from qjoule.servers.elf import NotAnExecutable, open_executable
from servers.toy_elf import MARIADB_10_11, pack_symbols, strip, toy_server


def address_by_nm(path: Path, name: str) -> int:
    listing = subprocess.run(["nm", path], capture_output=True, text=True, check=True).stdout
    (line,) = [line for line in listing.splitlines() if line.endswith(f" {name}")]
    return int(line.split()[0], 16)


def test_address_and_offset_are_those_of_the_toolchain(tmp_path: Path) -> None:
    path = toy_server(tmp_path / "toy", [MARIADB_10_11, "other"])
    executable = open_executable(path)
    (symbol,) = executable.functions(MARIADB_10_11)
    assert symbol.vaddr == address_by_nm(path, MARIADB_10_11)
    assert symbol.size > 0
    offset = executable.file_offset(symbol.vaddr)
    assert offset is not None
    raw = tmp_path / "text"
    subprocess.run(["objcopy", "-O", "binary", "-j", ".text", path, raw], check=True)
    assert executable.read(offset, symbol.size) in raw.read_bytes()


@pytest.mark.parametrize(
    ("make", "exported", "table"),
    [
        (lambda path: path, False, ".symtab"),
        (strip, True, ".dynsym"),
        (pack_symbols, False, ".gnu_debugdata"),
    ],
)
def test_every_symbol_table_is_used(tmp_path: Path, make, exported: bool, table: str) -> None:  # type: ignore[no-untyped-def]
    path = toy_server(tmp_path / "toy", [MARIADB_10_11], exported=exported)
    address = address_by_nm(path, MARIADB_10_11)
    (symbol,) = open_executable(make(path)).functions(MARIADB_10_11)
    assert (symbol.table, symbol.vaddr) == (table, address)


def test_a_stripped_executable_has_no_functions(tmp_path: Path) -> None:
    path = strip(toy_server(tmp_path / "toy", [MARIADB_10_11], exported=False))
    assert open_executable(path).functions(MARIADB_10_11) == ()


def test_names_match_whole_even_where_the_table_shares_tails(tmp_path: Path) -> None:
    executable = open_executable(toy_server(tmp_path / "toy", ["LongPortalRun", "PortalRunFetch"]))
    assert executable.functions("PortalRun") == ()
    assert len(executable.functions("LongPortalRun")) == 1
    both = open_executable(toy_server(tmp_path / "both", ["LongPortalRun", "PortalRun"]))
    assert len(both.functions("PortalRun")) == 1


def test_names_with_prefix(tmp_path: Path) -> None:
    names = ["PortalRun", "PortalRun.constprop.0", "MyPortalRun.part.1"]
    executable = open_executable(toy_server(tmp_path / "toy", names))
    assert executable.names_with_prefix("PortalRun.") == ("PortalRun.constprop.0",)


def test_a_replaced_file_is_read_again(tmp_path: Path) -> None:
    path = toy_server(tmp_path / "toy", ["before"])
    assert open_executable(path).functions("before")
    toy_server(path, ["after"])
    assert open_executable(path).functions("after")
    assert not open_executable(path).functions("before")


@pytest.mark.parametrize("content", [b"", b"\x7fELF", b"#!/bin/sh\n", b"\x7fELF" + b"\xff" * 4096])
def test_other_files_are_one_line_errors(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "mysqld"
    path.write_bytes(content)
    with pytest.raises(NotAnExecutable) as caught:
        open_executable(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


def test_missing_and_32_bit_files(tmp_path: Path) -> None:
    with pytest.raises(QjouleError, match="No such file"):
        open_executable(tmp_path / "nothing")
    path = toy_server(tmp_path / "toy", [])
    content = bytearray(path.read_bytes())
    content[4] = 1  # EI_CLASS: 32 bit
    path.write_bytes(content)
    with pytest.raises(NotAnExecutable):
        open_executable(path)


def test_no_damage_gets_past_the_error(tmp_path: Path) -> None:
    """Truncated anywhere, or with changed header bytes: parsed or refused with that error."""
    whole = pack_symbols(toy_server(tmp_path / "toy", [MARIADB_10_11])).read_bytes()
    chance = random.Random(20)
    path = tmp_path / "damaged"
    refused = 0
    for round_number in range(300):
        damaged = bytearray(whole)
        if round_number % 3 == 0:
            del damaged[chance.randrange(len(damaged)) :]
        else:
            # The section headers are at the end of the file, the program headers at its start.
            start = 0 if round_number % 3 == 1 else len(damaged) - 2048
            for _ in range(chance.randrange(1, 12)):
                damaged[start + chance.randrange(2048)] = chance.randrange(256)
        path.write_bytes(damaged)
        try:
            executable = open_executable(path)
            executable.functions(MARIADB_10_11)
            executable.constants()
        except QjouleError:
            refused += 1
    assert refused > 100
