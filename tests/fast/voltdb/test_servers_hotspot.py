# SPDX-License-Identifier: Apache-2.0
"""A JVM's heap: its layout, and names that are right or missing while objects move."""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from host_library import compiled
from qjoule.servers import registry
from qjoule.servers.elf import Executable, open_executable
from qjoule.servers.jvm.hotspot import CannotRead, HotSpot, Memory
from qjoule.servers.voltdb.find import HeapLayout, layout_of

SOURCE = Path(__file__).parents[2] / "support/servers" / "toy_jvm.c"


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
        ("-DNO_LOADERS", "does not show ClassLoaderDataGraph::_head"),
        ("-DCONCURRENT", "ZGC moves objects"),
    ],
)
def test_what_is_not_as_expected_is_said(option: str, words: str, tmp_path: Path) -> None:
    with toy(tmp_path, option) as (memory, library), pytest.raises(CannotRead, match=words):
        layout_of(HotSpot(memory, library, 0), memory)


SLOT = 256  #: bytes of an object, in hotspot_host.c
MOVES_ALL = 0b1111
READS_MAX = 24  #: more than one text needs


FACTS = registry.servers()["voltdb"].facts


Layout = ctypes.c_uint64 * len(FACTS)  #: the facts in order


def layout(base: int, shift: int, size: int, *offsets: int) -> ctypes.Array[ctypes.c_uint64]:
    """A heap's base, shift and bytes of a reference, and the fields' offsets."""
    return Layout(base, shift, size, *offsets)


@cache
def _library() -> ctypes.CDLL:
    return compiled("tests/support/fuzz/hotspot_host.c")


def read(
    jvm: ctypes.Array[ctypes.c_uint64],
    text: bytes,
    *,
    in_list: bool,
    reads: int,
    moved: int,
    garbage: bytes,
) -> bytes | None:
    """The text as the probe reads it, None if the probe does not trust what it read."""
    out = ctypes.create_string_buffer(SLOT)
    got = _library().hotspot_host(jvm, text, len(text), int(in_list), reads, moved, garbage, out)
    return None if got < 0 else out.raw[:got]


LAYOUTS = st.one_of(
    # Compressed, with the base below the heap.
    st.builds(
        lambda base, shift: layout(base, shift, 4, 104, 108, 20, 16, 12, 16),
        st.sampled_from([0, 256]),
        st.integers(0, 3),
    ),
    st.just(layout(0, 0, 8, 112, 120, 24, 16, 16, 24)),
)
texts = st.binary(min_size=1, max_size=128)
garbage = st.one_of(
    st.binary(min_size=SLOT, max_size=SLOT), st.just(b"\0" * SLOT), st.just(b"\xff" * SLOT)
)


@given(LAYOUTS, texts, st.booleans(), garbage)
def test_a_text_is_read_unless_the_collector_runs_meanwhile(
    jvm: ctypes.Array[ctypes.c_uint64], text: bytes, in_list: bool, garbage: bytes
) -> None:
    for reads, moved in ((-1, 0), (0, MOVES_ALL), (READS_MAX, MOVES_ALL)):
        assert read(jvm, text, in_list=in_list, reads=reads, moved=moved, garbage=garbage) == text


@given(LAYOUTS, texts, st.booleans(), garbage)
def test_what_moves_while_it_is_read_is_right_or_not_told(
    jvm: ctypes.Array[ctypes.c_uint64], text: bytes, in_list: bool, garbage: bytes
) -> None:
    """Before each of the reads, any of the objects on the path may move."""
    for reads in range(READS_MAX):
        for moved in range(1, MOVES_ALL + 1):
            found = read(jvm, text, in_list=in_list, reads=reads, moved=moved, garbage=garbage)
            assert found in (text, None), (reads, moved)
