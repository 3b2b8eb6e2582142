# SPDX-License-Identifier: Apache-2.0
"""Tables of /proc with lines that no kernel writes, or with more lines than any machine has."""

from __future__ import annotations

import time

import pytest

from qjoule.servers.listening import socket_ports, unix_listeners
from qjoule.servers.maps import Mapping, mapped_files

PREFIX = b"7f00-7f10 r-xp 00000000 fe:00 11 /tmp/"


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\0",
        b"\xff" * 100,
        b"7f00-7f10 r-xp 00000000 fe:00 11 ",
        b"7" * 100 + b"-7f10 r-xp 00000000 fe:00 11 /a",
        b"7f00-7f10 r-xp " + b"0" * 100 + b" fe:00 11 /a",
        b"7f00-7f10 r-xp 00000000 fe:00 " + b"1" * 5000 + b" /a",
        b"7f00-7f10 r-xp 00000000 fe:00 11 /" + b"a" * 100_000 + b"b",
    ],
)
def test_lines_of_maps_that_make_no_sense(line: bytes) -> None:
    assert mapped_files(line, "a") == []
    assert mapped_files(line + b"\n" + PREFIX + b"a\n", "a") == [Mapping("/tmp/a", 0x7F00, 0x7F10)]


def test_names_with_line_feeds_are_one_name() -> None:
    """The kernel writes line feeds as \012 (mangle_path); other line separators stay in a name."""
    (found,) = mapped_files(PREFIX + "a\u2028b\x0bc".encode() + b"\n", ".*")
    assert found.name == "/tmp/a\u2028b\x0bc"


@pytest.mark.parametrize(
    "row",
    [
        b"",
        b"\xff\0",
        b"0: 0100007F:0050 0:0 0A",
        b"0: 0100007F:FFFFF 00000000:0000 0A 0:0 0:0 0 0 0 77 1 0",
        b"0: 0100007F:-1 00000000:0000 0A 0:0 0:0 0 0 0 77 1 0",
        b"0: 0100007F:" + b"F" * 10_000 + b" 00000000:0000 0A 0:0 0:0 0 0 0 77 1 0",
        b"0: 0100007F:0050 00000000:0000 0A 0:0 0:0 0 0 0 " + b"7" * 10_000 + b" 1 0",
    ],
)
def test_rows_of_sockets_that_make_no_sense(row: bytes) -> None:
    assert socket_ports(b"title\n" + row + b"\n", "0A") == {}
    assert list(unix_listeners(b"title\n" + row + b"\n")) == []


def test_tables_of_four_megabytes() -> None:
    before = time.process_time()
    for line in (b"\n", b" \n", b"0: a:1 b 0A\n", PREFIX + b"a" * 4000 + b"\n", b"f" * 4000 + b"-"):
        table = line * ((4 << 20) // len(line))
        mapped_files(table, "[a-f]+-.*")
        socket_ports(table, "0A")
        list(unix_listeners(table))
    assert time.process_time() - before < 60  # CPU time: an unbounded loop takes hours
