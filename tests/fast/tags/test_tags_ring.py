# SPDX-License-Identifier: Apache-2.0
"""The recorder's side of a ring: what is read, when, and what it may contain."""

from __future__ import annotations

import fcntl
import mmap
import os
import socket
import struct
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qjoule.tags.ring import PATIENCE_NS, NotARing, RingReader
from tag_ring import header, memfd


@pytest.mark.parametrize(
    "make",
    [
        lambda: memfd(header() + bytes(2048 * 64), seal=False),
        lambda: memfd(b""),
        lambda: memfd(header()),
        lambda: memfd(header(2047) + bytes(2048 * 64)),
        lambda: memfd(header(1024) + bytes(2048 * 64)),
        lambda: memfd(header(1 << 31) + bytes(2048 * 64)),
        lambda: memfd(header(size=32) + bytes(2048 * 64)),
        lambda: memfd(header(magic=b"QJTAGS\x00\x02") + bytes(2048 * 64)),
        lambda: memfd(bytes(4096 + (1 << 17) * 64)),
        lambda: os.open("/dev/null", os.O_RDWR),
        lambda: os.pipe()[0],
        lambda: socket.socket().detach(),
    ],
)
def test_what_is_no_ring(make: Callable[[], int]) -> None:
    fd = make()
    with pytest.raises(NotARing):
        RingReader(fd)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def _numbers(reader: RingReader, now_ns: int) -> list[int]:
    return [int(number) for batch in reader.take(now_ns) for number in batch["number"]]


def _write(memory: mmap.mmap, *numbers: int) -> None:
    for number in numbers:
        struct.pack_into("=Q", memory, 4096 + ((number - 1) & 2047) * 64 + 56, number)


def test_a_slot_that_is_not_whole_keeps_no_other_from_being_taken() -> None:
    fd = memfd(header() + bytes(2048 * 64))
    memory = mmap.mmap(fd, 0)
    reader = RingReader(fd)
    _write(memory, 1, 2, 4, 5)  # the third is read; its writer was stopped
    assert _numbers(reader, 1) == [1, 2, 4, 5]
    _write(memory, 6)
    assert _numbers(reader, 2) == [6]
    assert struct.unpack_from("=Q", memory, 64) == (2,)  # it may still be being written
    _write(memory, 3)
    assert (_numbers(reader, 3), reader.taken, reader.lost) == ([3], 6, 0)
    _write(memory, 8)  # and this one's writer has died
    assert _numbers(reader, 4) == [8]
    assert _numbers(reader, 4 + PATIENCE_NS) == []
    assert (reader.taken, reader.lost) == (8, 1)
    reader.close()


@given(st.permutations(range(2031, 2071)), st.sets(st.integers(0, 39)))
def test_records_that_become_whole_in_any_order_are_taken_once(
    order: list[int], stops: set[int]
) -> None:
    """At the point where the ring wraps, with a reader that comes in between."""
    fd = memfd(header() + bytes(2048 * 64))
    memory = mmap.mmap(fd, 0)
    reader = RingReader(fd)
    _write(memory, *range(1, 2031))
    assert _numbers(reader, 1) == list(range(1, 2031))
    taken = []
    for at, number in enumerate(order):
        _write(memory, number)
        if at in stops:
            taken += _numbers(reader, 1)
    taken += _numbers(reader, 1)
    assert sorted(taken) == list(range(2031, 2071))
    assert (reader.taken, reader.lost) == (2070, 0)
    reader.close()
    memory.close()


@given(st.lists(st.tuples(st.integers(0, 2047), st.binary(min_size=64, max_size=64)), max_size=40))
def test_a_ring_of_anything(slots: list[tuple[int, bytes]]) -> None:
    fd = memfd(header() + bytes(2048 * 64))
    memory = mmap.mmap(fd, 0)
    reader = RingReader(fd)
    now_ns = 1
    try:
        for at, content in slots:
            memory[4096 + at * 64 : 4096 + at * 64 + 64] = content
            now_ns += PATIENCE_NS
            for batch in reader.take(now_ns):
                assert batch.size <= 2048
                reader.ends(batch["number"].astype(np.int64))
    except NotARing:
        pass
    reader.close()


def test_memory_in_huge_pages_is_no_ring() -> None:
    """There may be no page left for a hole in it when it is read: that would kill the reader."""
    try:
        fd = os.memfd_create("huge", os.MFD_ALLOW_SEALING | os.MFD_HUGETLB)
    except OSError as error:
        pytest.skip(f"no huge pages here: {error}")
    os.ftruncate(fd, 2 << 20)
    fcntl.fcntl(fd, 1033, 0x2)  # F_ADD_SEALS, F_SEAL_SHRINK
    with pytest.raises(NotARing, match="huge pages"):
        RingReader(fd)
