# SPDX-License-Identifier: Apache-2.0
"""Names read from a JVM's heap are right or missing, whenever the collector runs."""

from __future__ import annotations

import ctypes
from functools import cache

from hypothesis import given
from hypothesis import strategies as st

from host_library import compiled
from qjoule.servers import registry

SLOT = 256  #: bytes of an object, in hotspot_host.c
MOVES_ALL = 0b1111
READS_MAX = 24  #: more than one text needs


FACTS = registry.servers()["voltdb"].facts
Layout = ctypes.c_uint64 * len(FACTS)  #: the facts in order


def layout(**numbers: int) -> ctypes.Array[ctypes.c_uint64]:
    assert len(numbers) == len(FACTS)
    return Layout(*(numbers[fact.replace("-", "_")] for fact in FACTS))


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


layouts = st.one_of(
    st.builds(  # compressed, with the base below the heap
        lambda base, shift: layout(
            oop_base=base,
            oop_shift=shift,
            oop_bytes=4,
            procedure=104,
            statements=108,
            string_value=20,
            string_coder=16,
            array_length=12,
            array_data=16,
        ),
        st.sampled_from([0, 256]),
        st.integers(0, 3),
    ),
    st.just(
        layout(
            oop_base=0,
            oop_shift=0,
            oop_bytes=8,
            procedure=112,
            statements=120,
            string_value=24,
            string_coder=16,
            array_length=16,
            array_data=24,
        )
    ),
)
texts = st.binary(min_size=1, max_size=128)
garbage = st.one_of(
    st.binary(min_size=SLOT, max_size=SLOT), st.just(b"\0" * SLOT), st.just(b"\xff" * SLOT)
)


@given(layouts, texts, st.booleans(), garbage)
def test_a_text_is_read_unless_the_collector_runs_meanwhile(
    jvm: ctypes.Array[ctypes.c_uint64], text: bytes, in_list: bool, garbage: bytes
) -> None:
    for reads, moved in ((-1, 0), (0, MOVES_ALL), (READS_MAX, MOVES_ALL)):
        assert read(jvm, text, in_list=in_list, reads=reads, moved=moved, garbage=garbage) == text


@given(layouts, texts, st.booleans(), garbage)
def test_what_moves_while_it_is_read_is_right_or_not_told(
    jvm: ctypes.Array[ctypes.c_uint64], text: bytes, in_list: bool, garbage: bytes
) -> None:
    """Before each of the reads, any of the objects on the path may move."""
    for reads in range(READS_MAX):
        for moved in range(1, MOVES_ALL + 1):
            found = read(jvm, text, in_list=in_list, reads=reads, moved=moved, garbage=garbage)
            assert found in (text, None), (reads, moved)
