# SPDX-License-Identifier: Apache-2.0
"""Stacks through libraries that are mapped after their server was looked at: each process has them
elsewhere, and may map what it likes, as often as it likes.
"""

from __future__ import annotations

import os
import platform
import shutil
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from qjoule.servers.stack_tables import HEAD, MODULES_MAX, ModuleFile
from tracer_parts.unwinding import Followed, Place, Waiting, built, follow, waiting

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="stacks are followed on x86-64 only"
)
MOST = 1024  #: MAPPED_MOST of tracer/mapped.h
PAGE, HUGE = 4096, 1 << 40
WHOLE = ["main", "below_library", "through", "back", "deeper", "here"]


class Late:
    """A process that has mapped a library since it was looked at."""

    def __init__(self, process: Waiting, library: Path, libraries: str) -> None:
        self.place = process.place(library)
        self._sample = process.sample()
        self.tables, self.modules = process.tables([libraries], str(library))

    def follow(self, *places: Place, asked: int = 0, mutations: int = 0) -> Followed:
        tables = self.tables, self.modules
        return follow(self._sample, *tables, places=places, asked=asked, mutations=mutations)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory in which a server is installed: bin/unwound, lib/through.so."""
    top = tmp_path_factory.mktemp("installed")
    for name, file in (("bin", "unwound"), ("lib", "through.so")):
        (top / name).mkdir()
        shutil.copy(built() / file, top / name / file)
    return top


@pytest.fixture
def late(directory: Path) -> Iterator[Late]:
    library = directory / "lib" / "through.so"
    with waiting(directory / "bin" / "unwound", "0", str(library)) as process:
        yield Late(process, library, "../lib")


def is_whole(stack: Followed) -> bool:
    assert not stack.whole or stack.names[-len(WHOLE) :] == WHOLE
    return stack.whole


def test_a_library_that_is_mapped_later_is_passed(late: Late) -> None:
    assert is_whole(late.follow(late.place))
    unknown = late.follow()
    assert unknown.names == ["back", "deeper", "here"]
    assert late.place.start <= unknown.asked < late.place.end
    assert not late.follow(late.place).asked


def test_what_is_known_is_asked_for_no_more(late: Late) -> None:
    """A process that maps code all the time needs an answer in each sample."""
    inside, place = late.follow().asked, late.place
    assert not late.follow(place, place, asked=inside).asked
    assert late.follow(replace(place, code_pages=1), place, asked=inside).asked == inside
    assert late.follow(place, place, asked=HUGE).asked == HUGE
    nothing = replace(place, start=HUGE, end=HUGE + 1, offset=0, inode=0, file_bytes=0)
    assert not late.follow(nothing, place, asked=HUGE).asked
    for other in (replace(nothing, tgid=1), replace(nothing, start=HUGE + 1, end=HUGE + 2)):
        assert late.follow(other, place, asked=HUGE).asked == HUGE


@pytest.mark.parametrize(
    "other",
    [
        {"tgid": 1},
        {"process_ns": 1},
        {"code_pages": 1},
        {"inode": 1},
        {"inode": 0},
        {"file_bytes": 1},
        {"offset": HUGE},
        {"end": 0},
    ],
    ids=str,
)
def test_what_is_of_another_process_or_file_tells_nothing(
    other: dict[str, int], late: Late
) -> None:
    """Numbers of processes are used again, also by another user's; and who maps other code may
    have it where a library was."""
    stack = late.follow(replace(late.place, **other))
    assert not is_whole(stack)
    assert stack.asked
    assert is_whole(late.follow(late.place, replace(late.place, tgid=1, inode=1)))


def test_what_is_mapped_over_a_library_takes_its_place(late: Late) -> None:
    over = replace(late.place, start=late.place.start + PAGE, end=late.place.end + PAGE, inode=0)
    touching = replace(over, start=late.place.end)
    assert not is_whole(late.follow(late.place, replace(over, start=late.place.end - 1)))
    assert is_whole(late.follow(late.place, touching))


def test_a_library_that_is_mapped_in_a_loop_costs_its_own_server_alone(late: Late) -> None:
    size = late.place.end - late.place.start
    elsewhere = [
        replace(late.place, start=HUGE + n * size, end=HUGE + (n + 1) * size, tgid=1)
        for n in range(10000)
    ]
    assert is_whole(late.follow(*elsewhere, late.place))
    assert is_whole(late.follow(late.place, *elsewhere[: MOST - 1]))
    assert not is_whole(late.follow(late.place, *elsewhere[:MOST])), "the newest count"
    there_again = [late.place, replace(late.place, inode=1)] * MOST
    assert is_whole(late.follow(*there_again, late.place))
    assert not is_whole(late.follow(late.place, *there_again))


def test_damaged_tables_of_a_library_are_survived(late: Late) -> None:
    nowhere = replace(late.place, start=0, end=2**64 - 1, offset=2**64 - 1)
    assert late.follow(late.place, nowhere, late.place, mutations=1000).mutated_frames > 1000


@pytest.mark.parametrize(("count", "libraries"), [(2**32 - 1, 1), (1, 2**32 - 1), (511, 2)])
def test_a_damaged_number_of_libraries_is_survived(count: int, libraries: int, late: Late) -> None:
    numbers = struct.pack("<2I", count, libraries)
    late.tables = late.tables[:4] + numbers + late.tables[12:]
    assert late.follow(late.place).names == []


def huge_table(library: bytes) -> bytes:
    """Whose sections have no end: each size in its headers is that of no file."""
    at, size, count = (struct.unpack_from("<Q", library, 40)[0], 64, library[60])
    headers = bytearray(library)
    for number in range(1, count):
        struct.pack_into("<Q", headers, at + number * size + 32, HUGE)
    return bytes(headers)


def test_files_that_are_no_libraries_cost_nothing_but_themselves(
    directory: Path, tmp_path: Path
) -> None:
    shutil.copytree(directory, tmp_path, dirs_exist_ok=True)
    lib, library = tmp_path / "lib", (tmp_path / "lib" / "through.so").read_bytes()
    (lib / "a_forged.so").write_bytes(b"\x7fELF" + os.urandom(5000))
    (lib / "b_huge.so").write_bytes(huge_table(library))
    (lib / "c_cut.so").write_bytes(library[:2000])
    (lib / "d_large.so").write_bytes(library + bytes(1 << 20))
    (lib / "e_link.so").symlink_to("e_link.so")
    (lib / "f_empty.so").touch()
    (lib / "no_library").write_bytes(library)
    os.mkfifo(lib / "g_waits.so")
    assert libraries_of(tmp_path, "../none", "../lib") == [str(lib / "through.so")]


def test_the_number_of_libraries_is_bounded(directory: Path, tmp_path: Path) -> None:
    shutil.copytree(directory, tmp_path, dirs_exist_ok=True)
    for number in range(300):
        shutil.copy(directory / "lib" / "through.so", tmp_path / "lib" / f"x{number}.so")
    assert len(libraries_of(tmp_path, "../lib")) == 256 < MODULES_MAX
    for number in range(1024):
        (tmp_path / "lib" / f"y{number}").touch()
    assert libraries_of(tmp_path, "../lib") == []


def libraries_of(top: Path, *directories: str) -> list[str]:
    with waiting(top / "bin" / "unwound", "0") as process:
        tables, modules = process.tables(directories)
    count = HEAD.unpack_from(tables)[2]
    listed: list[ModuleFile] = modules[len(modules) - count :] if count else []
    return [module.path for module in listed]
