# SPDX-License-Identifier: Apache-2.0
"""Field offsets in a JVM, read from a small program that looks like one."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from qjoule.servers.elf import Executable, open_executable
from qjoule.servers.jvm.hotspot import CannotRead, HotSpot, Memory
from qjoule.servers.maps import Mapping, mapped_files
from qjoule.servers.voltdb.find import HeapLayout, layout_of

SOURCE = Path(__file__).parents[2] / "support/servers" / "toy_jvm.c"
ENGINE, STRING = "org/voltdb/jni/ExecutionEngine", "java/lang/String"


@contextmanager
def memory_of(process: int) -> Iterator[Memory]:
    descriptor = os.open(f"/proc/{process}/mem", os.O_RDONLY)
    try:
        yield Memory(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def toy(directory: Path, *options: str) -> Iterator[tuple[Memory, Executable]]:
    """The running program; its addresses are those of its file."""
    path = directory / "toy"
    flags = ["-no-pie", "-rdynamic", "-Wno-override-init"]
    subprocess.run(["gcc", *flags, *options, "-o", path, SOURCE], check=True)
    with subprocess.Popen([path], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            process.stdout.read(1)  # it is there
            with memory_of(process.pid) as memory:
                yield memory, open_executable(path)
        finally:
            process.kill()


def test_the_layout_of_a_heap(tmp_path: Path) -> None:
    with toy(tmp_path) as (memory, library):
        layout = layout_of(HotSpot(memory, library, 0), memory)
    assert layout == HeapLayout(
        oop_base=0x800000000,
        oop_shift=3,
        oop_bytes=4,
        procedure=104,
        statements=70000,
        string_value=20,
        string_coder=16,
        array_length=12,
        array_data=16,
    )


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("-DTWICE", "two classes are named java/lang/String"),
        ("-DWILD", "memory at 0x8"),
        ("-DUNSET", "value has no offset"),
        ("-DFEWER", "no field coder"),
        ("-DNO_LOADERS", "does not show ClassLoaderDataGraph::_head"),
        ("-DNO_TYPES", "no gHotSpotVMTypes"),
        ("-DCONCURRENT", "ZGC moves objects"),
    ],
)
def test_what_is_not_as_expected_is_said(option: str, words: str, tmp_path: Path) -> None:
    with toy(tmp_path, option) as (memory, library), pytest.raises(CannotRead, match=words):
        layout_of(HotSpot(memory, library, 0), memory)


def test_a_class_that_is_not_loaded(tmp_path: Path) -> None:
    with toy(tmp_path) as (memory, library), pytest.raises(CannotRead, match="not loaded no/Such"):
        HotSpot(memory, library, 0).classes({"no/Such", STRING})


def test_memory_that_is_not_there() -> None:
    with memory_of(os.getpid()) as memory:
        assert memory.string(0) == ""
        for address in (1, 1 << 47, 1 << 63, (1 << 64) - 1):
            with pytest.raises(CannotRead):
                memory.read(address, 8)


MAPS = """\
7f0000000000-7f0000010000 r--p 00000000 fe:00 11 /tmp/a-libx.so (deleted)
7f0000010000-7f0000020000 r-xp 00010000 fe:00 11 /tmp/a-libx.so (deleted)
0f0000000000-0f0000010000 r-xp 00000000 fe:00 12 /tmp/with a space/b-libx.so
7f0000030000-7f0000040000 r--p 00000000 fe:00 13 /tmp/libxy.so
7f0000040000-7f0000050000 rw-p 00000000 00:00 0
7f0000060000-7f0000070000 rw-p 00000000 00:00 0 [heap]
not a line
"""


def test_mapped_files_by_their_last_name() -> None:
    found = mapped_files(MAPS.encode(), r"[ab]-libx\.so")
    assert found == [
        Mapping("/tmp/a-libx.so", 0x7F0000000000, 0x7F0000010000),
        Mapping("/tmp/with a space/b-libx.so", 0xF0000000000, 0xF0000010000),
    ]
    assert [mapping.area for mapping in found] == [
        "7f0000000000-7f0000010000",
        "f0000000000-f0000010000",
    ]
    assert mapped_files(b"", ".*") == []
