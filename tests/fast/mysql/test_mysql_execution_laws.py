# SPDX-License-Identifier: Apache-2.0
"""Laws of attributes in COM_STMT_EXECUTE as the socket rung reads them.

What it takes for tags was sent as tags, in any pieces, or nothing is taken.
"""

from __future__ import annotations

import struct

from hypothesis import example, given
from hypothesis import strategies as st

from fuzz.wire_library import READY, UNKNOWN, Connection, Query, split
from qjoule.servers import registry
from qjoule.servers.mysql.tags import tags_in_attributes
from tracing.mysql_values import Parameter, counted, number, parameters, string

MOST = 480  #: bytes of tags (TAGS_BYTES of bpf/core/tags.bpf.h)
PASSED_OVER, ATTRIBUTES = 128, 32  #: parameters of an execution, of which so many are attributes
COUNT_AVAILABLE = 8
IDENTITY = 3
SIZES = st.lists(st.integers(1, 90), max_size=4)


def _of(
    type_: int, values: st.SearchStrategy[bytes], names: st.SearchStrategy[bytes]
) -> st.SearchStrategy[Parameter]:
    return st.tuples(st.just(type_), names, st.none() | values)


def _every(names: st.SearchStrategy[bytes]) -> st.SearchStrategy[Parameter]:
    sized = {0: (6,), 1: (1,), 2: (2, 13), 4: (3, 4, 9), 8: (5, 8)}
    return st.one_of(
        *(_of(kind, st.binary(max_size=300).map(counted), names) for kind in (0, 15, 245, 252)),
        _of(254, st.just(counted(b"\x0fqjoule.endpoint\1x")), names),
        *(
            _of(kind, st.binary(min_size=size, max_size=size), names)
            for size, kinds in sized.items()
            for kind in kinds
        ),
        *(_of(kind, st.binary(max_size=12).map(counted), names) for kind in (7, 10, 11, 12)),
    )


OWN = st.lists(_every(st.just(b"") | st.binary(max_size=300)), max_size=40)
OURS = st.lists(
    _every(st.sampled_from([b"qjoule.a", b"qjoule.endpoint", b"other", b"", b"qjoule"])),
    max_size=34,
)


def expected(every: list[Parameter]) -> bytes | None:
    """The reference: the block that COM_QUERY would have for the attributes."""
    first = next((at for at, one in enumerate(every) if one[1].startswith(b"qjoule.")), None)
    if first is None or len(every) > PASSED_OVER or len(every) - first > ATTRIBUTES:
        return None
    block = bytes([len(every) - first, 1]) + parameters(every[first:])
    return block if len(block) <= MOST else None


def _packet(every: list[Parameter], flags: int = COUNT_AVAILABLE) -> bytes:
    head = b"\x17" + struct.pack("<IBI", IDENTITY, flags, 1)
    return head + bytes([len(every)]) + (parameters(every) if every else b"")


def _told(packets: list[bytes], sizes: list[int], phase: int = READY) -> list[Query]:
    connection = Connection(registry.kind_of("mysql"), phase)
    for body in packets:
        for part in (len(body).to_bytes(3, "little") + b"\0", body):
            at = 0
            for piece in split(part, sizes, len(part)):
                connection.receive(piece, at)
                at += len(piece)
                connection.wait()
        connection.reply(b"\1\0\0\1\1" + b"\xee" * 16)
        connection.wait()
    return connection.close()


@given(st.lists(st.tuples(OWN, OURS), min_size=1, max_size=3), SIZES)
@example([([number(7)], [string(b"qjoule.a", b"x")])], [1])
@example([([number(7)] * 127, [string(b"qjoule.a", b"x")])], [1])
@example([([number(7)] * 128, [string(b"qjoule.a", b"x")])], [])
@example([([], [string(b"qjoule.a", b"x" * 300)])], [])
@example([([(8, b"", b"qjoule.a")], [])], [])
def test_executions_have_what_they_say(
    executions: list[tuple[list[Parameter], list[Parameter]]], sizes: list[int]
) -> None:
    sent = [[*own, *ours] for own, ours in executions]
    told = _told([_packet(every) for every in sent], sizes)
    assert [one.executions for one in told] == [1] * len(sent)
    assert [one.said for one in told] == [expected(every) for every in sent]


@given(OWN, OURS, st.data())
def test_of_a_packet_that_is_cut_or_longer_nothing(
    own: list[Parameter], ours: list[Parameter], data: st.DataObject
) -> None:
    whole = _packet([*own, *ours])
    cut = data.draw(st.integers(8, len(whole)))
    more = data.draw(st.binary(min_size=1, max_size=9))
    for one in (whole[:cut], whole + more):
        if one != whole:
            assert [query.said for query in _told([one], [])] == [None]


@given(OWN, OURS, SIZES)
def test_who_does_not_say_that_there_are_any_has_none(
    own: list[Parameter], ours: list[Parameter], sizes: list[int]
) -> None:
    assert [query.said for query in _told([_packet([*own, *ours], 0)], sizes)] == [None]


@given(OWN, OURS, st.integers(0, 9))
def test_values_that_came_before_hide_the_others(
    own: list[Parameter], ours: list[Parameter], other: int
) -> None:
    """Until that statement has been executed; those of another statement do not."""
    every = [*own, *ours]
    long_data = b"\x18" + struct.pack("<IH", other, 0) + b"x"
    before, first, second = _told([long_data, _packet(every), _packet(every)], [])
    assert before.said is None
    assert first.said == (None if other == IDENTITY else expected(every))
    assert second.said == expected(every)


@given(OWN, OURS)
def test_a_connection_that_was_open_is_joined(own: list[Parameter], ours: list[Parameter]) -> None:
    every = [*own, *ours]
    (one,) = _told([_packet(every)], [], UNKNOWN)
    assert one.said == expected(every)


@given(st.binary(max_size=600), SIZES)
def test_whatever_is_sent_is_bounded(body: bytes, sizes: list[int]) -> None:
    packet = b"\x17" + struct.pack("<IBI", IDENTITY, COUNT_AVAILABLE, 1) + body
    (one,) = _told([packet], sizes)
    said = one.said or b""
    assert len(said) <= MOST
    assert len(tags_in_attributes(said)) <= ATTRIBUTES
