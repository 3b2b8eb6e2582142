# SPDX-License-Identifier: Apache-2.0
"""What an application shares with the recorder: its ring's records, and definitions of numbers."""

from __future__ import annotations

import json
import mmap
import os
import socket
import struct
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qjoule.tags.definitions import MAX_DEFINITIONS, Definitions
from qjoule.tags.ring import PATIENCE_NS, NotARing, RingReader
from tag_ring import empty_ring, header, memfd

SLOTS = bytes(2048 * 64)


@pytest.mark.parametrize(
    "make",
    [
        lambda: memfd(header() + SLOTS, seal=False),
        lambda: memfd(b""),
        lambda: memfd(header()),
        lambda: memfd(header(3000) + SLOTS * 2),
        lambda: memfd(header(1024) + SLOTS),
        lambda: memfd(header(1 << 31) + SLOTS),
        lambda: memfd(header(size=32) + SLOTS),
        lambda: memfd(header(magic=b"QJTAGS\x00\x02") + SLOTS),
        lambda: memfd(bytes(4096 + (1 << 17) * 64)),
        lambda: os.open("/dev/null", os.O_RDWR),
        lambda: os.pipe()[0],
        lambda: socket.socket().detach(),
    ],
)
def test_other_descriptors_are_no_ring_and_are_closed(make: Callable[[], int]) -> None:
    fd = make()
    with pytest.raises(NotARing):
        RingReader(fd)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def test_memory_in_huge_pages_is_no_ring(monkeypatch: pytest.MonkeyPatch) -> None:
    """There may be no page left for a hole in it when it is read: that would kill the reader."""
    monkeypatch.setattr(os, "fstatvfs", lambda _: SimpleNamespace(f_bsize=2 << 20))
    with pytest.raises(NotARing, match="huge pages"):
        RingReader(empty_ring())


def _shared_ring() -> tuple[mmap.mmap, RingReader]:
    fd = empty_ring()
    return mmap.mmap(fd, 0), RingReader(fd)


def _numbers(reader: RingReader, now_ns: int) -> list[int]:
    return [int(number) for batch in reader.take(now_ns) for number in batch["number"]]


def _write(memory: mmap.mmap, *numbers: int) -> None:
    for number in numbers:
        struct.pack_into("=Q", memory, 4096 + ((number - 1) & 2047) * 64 + 56, number)


def test_a_slot_that_is_not_whole_keeps_no_other_from_being_taken() -> None:
    memory, reader = _shared_ring()
    _write(memory, 1, 2, 4, 5)  # the third is read; its writer was stopped
    assert _numbers(reader, 1) == [1, 2, 4, 5]
    _write(memory, 6)
    assert _numbers(reader, 2) == [6]
    assert struct.unpack_from("=Q", memory, 64) == (2,)  # it may still be being written
    _write(memory, 3)
    assert (_numbers(reader, 3), reader.taken, reader.lost) == ([3], 6, 0)
    _write(memory, 9)  # and the writers of these two have died
    assert _numbers(reader, 4) == [9]
    assert _numbers(reader, 4 + PATIENCE_NS) == []
    assert (reader.taken, reader.lost) == (9, 2)
    reader.close()


@given(st.permutations(range(2031, 2071)), st.sets(st.integers(0, 39)))
def test_records_that_become_whole_in_any_order_are_taken_once(
    order: list[int], stops: set[int]
) -> None:
    """At the point where the ring wraps, with a reader that comes in between."""
    memory, reader = _shared_ring()
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


# ---- definitions ------------------------------------------------------------------------------

_KEYS = st.sampled_from(["tags", "connection", "of", "db.system.name", "client.inode", "x"])
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=4),
    max_leaves=9,
)


@given(st.binary(max_size=200) | _VALUES.map(lambda value: json.dumps(value).encode()))
def test_definitions_of_any_content_give_texts_or_nothing(message: bytes) -> None:
    definitions = Definitions()
    definitions.add(message)
    definitions.connection(1)
    for key, value in definitions.tags(1) or ():
        assert isinstance(key, str)
        assert isinstance(value, str)


def test_deep_and_many_definitions_are_bounded() -> None:
    definitions = Definitions()
    definitions.add(b'{"tags":1,"of":' + b"[" * 5000 + b"]" * 2999)
    definitions.add(b"x" * 9000)
    definitions.add(b'{"connection":1,"of":{"db.system.name":"\\ud800"}}')
    assert (definitions.refused, definitions.connection(1)) == (3, None)
    for number in range(1, MAX_DEFINITIONS + 1):
        assert not definitions.is_full
        definitions.add(json.dumps({"tags": number, "of": {"a": "b"}}).encode())
    assert definitions.is_full
    assert definitions.tags(0) == ()
    assert definitions.tags(MAX_DEFINITIONS) == (("a", "b"),)


def test_the_number_of_a_connection_is_given_once() -> None:
    definitions = Definitions()
    of = {"db.system.name": "x", "network.transport": "unix", "client.inode": 1}
    assert definitions.add(json.dumps({"connection": 1, "of": of}).encode()) is not None
    of["client.inode"] = 2
    assert definitions.add(json.dumps({"connection": 1, "of": of}).encode()) is None
    known = definitions.connection(1)
    assert known is not None and known.client == "unix 1"
    assert definitions.refused == 1
