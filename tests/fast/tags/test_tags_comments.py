# SPDX-License-Identifier: Apache-2.0
"""Tags in what clients send to servers: what is parsed, and how much of it. Also: what the kernel
side takes for a statement's tags.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fuzz.wire_library import READY, Connection, split
from qjoule.servers import registry
from qjoule.servers.cassandra.wire import tags_in_payload
from qjoule.servers.mysql.wire import tags_in_attributes, tags_of_attributes
from qjoule.tags.definitions import MAX_KEY, MAX_TAGS, MAX_VALUE, Tags, tags_in, tags_in_name
from qjoule_drivers import comments as carrier
from qjoule_drivers.comments import pairs_of
from tracing.postgres_client import SYNC, bind, execute, parse, query

_TRACING = {"traceparent", "tracestate"}  #: names that are not tags by themselves
_NAMES = st.text(min_size=1, max_size=20).filter(lambda name: name not in _TRACING)
_KEYS = st.text("abc_.-", min_size=1, max_size=20)
TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{SPAN}-01"


@pytest.mark.parametrize("parse", [tags_in, tags_in_attributes, tags_in_payload])
@given(block=st.binary(max_size=600))
def test_tags_in_arbitrary_bytes_are_bounded(parse: Callable[[bytes], Tags], block: bytes) -> None:
    for key, value in parse(block):
        assert 0 < len(key) <= MAX_KEY and len(value) <= MAX_VALUE


# ---- comments and names of connections --------------------------------------------------------


@given(st.dictionaries(_NAMES, st.text(max_size=20), min_size=1, max_size=5))
def test_a_comment_that_a_shim_writes_is_read(tags: dict[str, str]) -> None:
    assert tags_in(pairs_of(tags).encode()) == tuple(sorted(tags.items()))


def test_a_comment_has_escapes_and_a_traceparent() -> None:
    assert tags_in(rb"a='it\'s',b='%7B%7D'") == (("a", "it's"), ("b", "{}"))
    traced = f"a='1',traceparent='{TRACEPARENT}',tracestate='x%3D1'"
    assert tags_in(traced.encode()) == (("a", "1"), ("span", SPAN), ("trace", TRACE))
    assert tags_in(b"traceparent='00-what-ever-01'") == ()


@pytest.mark.parametrize(
    "comment",
    [
        b"",
        b"checkout",
        b"it is 'quoted'",
        b"a='1' b='2'",
        b"a='1',",
        b"='1'",
        b"a='1'x",
        b"a='1\n'",
        b"a='1\\'",
        b"a='\xff'",
        b"a b='1'",
        b"a='*/ from b where c='",
        b"k" * (MAX_KEY + 1) + b"='1'",
        b"a='" + b"v" * (MAX_VALUE + 1) + b"'",
        b",".join(b"k%d='1'" % number for number in range(MAX_TAGS + 1)),
    ],
)
def test_any_other_comment_has_no_tags(comment: bytes) -> None:
    assert tags_in(comment) == ()


def test_names_of_connections() -> None:
    assert tags_in_name("release=1.4,job=a%20b") == (("job", "a b"), ("release", "1.4"))
    assert tags_in_name("release=") == (("release", ""),)
    for name in ("psql", "a=b=c", "a=b,", ",a=b", "a = b", "a=ü", "", "=b", "a=b, c=d", "a='b'"):
        assert tags_in_name(name) == (), name


# ---- MySQL's attributes -----------------------------------------------------------------------


def _attributes(tags: dict[str, str]) -> bytes:
    return carrier._encoded(tuple(tags.items()), "utf-8")


@given(st.dictionaries(_KEYS, st.text(max_size=MAX_VALUE), min_size=1, max_size=MAX_TAGS))
@example({"a": "v" * 250, "b": "v" * 251})
@example({f"k{n}": "" for n in range(8)})
def test_attributes_that_a_shim_sends_are_read(tags: dict[str, str]) -> None:
    assert tags_in_attributes(_attributes(tags)) == tuple(sorted(tags.items()))


def test_attributes_that_are_cut_or_longer_have_no_tags() -> None:
    encoded = _attributes({"endpoint": "x" * 200, "tenant": "7"})
    assert tags_in_attributes(encoded)
    for size in range(len(encoded)):
        assert tags_in_attributes(encoded[:size]) == ()
    assert tags_in_attributes(encoded + b"x") == ()


def test_attributes_of_other_names_and_kinds_are_left_out() -> None:
    string = b"\xfe\0"
    names = b"\x01" + string + b"\x05other" + string + b"\x08qjoule.k"
    assert tags_in_attributes(b"\x02\x01\0" + names + b"\x01a\x01b") == (("k", "b"),)
    assert tags_in_attributes(b"\x02\x01\x01" + names + b"\x01b") == (("k", "b"),)  # a NULL
    double = b"\x01\x01\0\x01" + b"\x05\0" + b"\x08qjoule.k" + bytes(8)
    assert tags_in_attributes(double) == ()
    many = bytes([MAX_TAGS + 1, 1]) + bytes(5) + b"\x01"
    assert tags_in_attributes(many + (string + b"\x01a") * (MAX_TAGS + 1) + b"\0" * 33) == ()
    of_connection = [(b"program_name", b"mysql"), (b"qjoule.release", b"1.4"), (b"qjoule.", b"x")]
    assert tags_of_attributes(of_connection[:2]) == (("release", "1.4"),)
    assert tags_of_attributes(of_connection) == ()


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (b"\x08\0", b"\xff" * 8, "-1"),
        (b"\x08\x80", b"\xff" * 8, "18446744073709551615"),
        (b"\x03\0", b"\x07\0\0\0", "7"),
        (b"\x09\0", b"\xfe\xff\xff\xff", "-2"),
        (b"\x02\x80", b"\xff\xff", "65535"),
        (b"\x0d\0", b"\xe8\x07", "2024"),
        (b"\x01\0", b"\x80", "-128"),
    ],
)
def test_attributes_that_are_numbers(kind: bytes, value: bytes, text: str) -> None:
    block = b"\x02\x01\0\x01" + kind + b"\x08qjoule.k" + b"\xfe\0\x08qjoule.l" + value + b"\x01x"
    assert tags_in_attributes(block) == (("k", text), ("l", "x"))
    assert tags_in_attributes(block[:-3]) == ()


# ---- CQL's payload ----------------------------------------------------------------------------


def _entry(key: bytes, value: bytes | None) -> bytes:
    size = -1 if value is None else len(value)
    return struct.pack(">H", len(key)) + key + struct.pack(">i", size) + (value or b"")


PAYLOAD = _entry(b"qjoule.endpoint", b"/shop") + _entry(b"qjoule.k", "\N{BATTERY}".encode())


def test_entries_of_a_payload() -> None:
    assert tags_in_payload(PAYLOAD) == (("endpoint", "/shop"), ("k", "\N{BATTERY}"))
    again = PAYLOAD + _entry(b"qjoule.k", b"") + _entry(b"theirs", b"x")
    assert tags_in_payload(again) == (("endpoint", "/shop"), ("k", ""))
    assert tags_in_payload(_entry(b"qjoule.k", None)) == ()
    traced = _entry(b"qjoule.traceparent", TRACEPARENT.encode())
    assert tags_in_payload(traced) == (("span", SPAN), ("trace", TRACE))
    for end in range(1, len(PAYLOAD)):
        assert tags_in_payload(PAYLOAD[:end]) in ((), (("endpoint", "/shop"),)), end


@pytest.mark.parametrize(
    "more",
    [
        _entry(b"qjoule.", b"x"),
        _entry(b"qjoule." + b"k" * (MAX_KEY + 1), b"x"),
        _entry(b"qjoule.x", b"v" * (MAX_VALUE + 1)),
        b"".join(_entry(b"qjoule.%d" % number, b"") for number in range(MAX_TAGS)),
        b"\0",
        b"\xff\xffqjoule.x",
        b"\0\x08qjoule.x\x7f\xff\xff\xffx",
    ],
)
def test_a_payload_with_an_invalid_entry_has_no_tags(more: bytes) -> None:
    assert tags_in_payload(PAYLOAD + more) == ()


# --------------------------------------------------------------------------------------------------
#
# What the kernel side takes for a statement's tags: a comment at its end or its beginning.
#
# It takes all of it or nothing, and nothing of the statement, in whatever pieces the bytes come.

MOST = 480  #: bytes of a comment (TAGS_BYTES of bpf/core/tags.bpf.h)
BLANKS = b" \t\r\n;"
_SIGNS = (b"/*", b"*/", b"'", b"'*/", b"/*a='b'*/", b"select 1", b";", b" ", b"-- ", b"#")
PARTS = st.one_of(
    st.sampled_from((*_SIGNS, b"/c='d'*/")),
    st.dictionaries(st.text("ab_", min_size=1, max_size=3), st.text(max_size=9), max_size=9).map(
        lambda tags: f"/*{pairs_of(tags)}*/".encode()
    ),
    st.integers(1, 600).map(lambda size: b"x" * size),
)
TEXTS = (
    st.lists(PARTS, min_size=1, max_size=12).map(b"".join).filter(lambda text: b"\0" not in text)
)
SIZES = st.lists(st.integers(1, 90), max_size=4)


def tags_sent(text: bytes) -> bytes | None:
    """The reference: the tags of a statement. Several statements with their own comments
    have none.
    """
    tail = text[-8:].rstrip(BLANKS)
    at_end = len(text) >= 8 and tail.endswith(b"'*/")
    end = len(text) - (8 - len(tail)) - 2 if at_end else len(text) - 1
    several = b";" in text[:end] and text.count(b"'*/") > 1
    return None if several else _comment(text)


def _comment(text: bytes) -> bytes | None:
    tail = text[-8:].rstrip(BLANKS)
    if len(text) >= 8 and tail.endswith(b"'*/"):
        end = len(text) - (8 - len(tail)) - 2
        begin = text.rfind(b"/*", 0, end)
        return text[begin + 2 : end] if begin >= 0 and end - begin - 2 <= MOST else None
    end = text.find(b"*/", 2)
    if text.startswith(b"/*") and 2 < end <= MOST + 2 and text[end - 1 : end] == b"'":
        return text[2:end]
    return None


def _mysql(packets: list[bytes], sizes: list[int]) -> list[bytes | None]:
    connection = Connection(registry.kind_of("mysql"), READY)
    for body in packets:
        for part in (len(body).to_bytes(3, "little") + b"\0", body):
            at = 0
            for piece in split(part, sizes, len(part)):
                connection.receive(piece, at)
                at += len(piece)
        connection.reply(b"\1\0\0\1\1" + b"\xee" * 16)
        connection.wait()
    return [query_.tags for query_ in connection.close()]


@given(st.lists(TEXTS, min_size=1, max_size=4), SIZES)
@example([b"select 1/*a='b'*/", b"select 1"], [1])
@example([b"select 1/*a='b'*/;select 2/*a='c'*/"], [])
@example([b"/*a='b'*/select 1;/*a='c'*/select 2", b"select 1;select 2/*a='b'*/;"], [])
@example([b"/*a='" + b"x" * (MOST - 4) + b"'*/select 1/*b='" + b"y" * (MOST - 4) + b"'*/"], [])
@example([b"/*a='" + b"x" * (MOST - 3) + b"'*/select 1", b"select/*b='" + b"y" * MOST + b"'*/"], [])
def test_mysql_s_comments_in_any_pieces(texts: list[bytes], sizes: list[int]) -> None:
    assert _mysql([b"\x03" + text for text in texts], sizes) == [tags_sent(text) for text in texts]


@given(TEXTS, st.integers(0, 2000))
def test_of_a_truncated_statement_only_the_beginning_counts(text: bytes, more: int) -> None:
    cut = text + b"x" * (4097 - len(text) + more)
    for sent in (cut, cut + b"/*a='b'*/"):
        reported = sent[:4096]
        several = b";" in reported[:4095] and reported.count(b"'*/") > 1
        assert _mysql([b"\x03" + sent], []) == [None if several else _comment(reported + b"x")]


@given(
    st.lists(
        st.dictionaries(st.text("ab_", min_size=1, max_size=3), st.text(max_size=99), max_size=5),
        min_size=1,
        max_size=4,
    ),
    SIZES,
)
def test_mysql_s_attributes(sets: list[dict[str, str]], sizes: list[int]) -> None:
    """A comment counts if there are no attributes. Attributes that are too long are left
    out whole.
    """
    blocks = [carrier._encoded(tuple(of.items()), "utf-8") if of else carrier.NONE for of in sets]
    reported = _mysql([b"\x03" + block + b"select 1/*c='d'*/" for block in blocks], sizes)
    for of, block, tags in zip(sets, blocks, reported, strict=True):
        if of and len(block) <= MOST:
            assert tags == block
            assert tags_in_attributes(tags) == tuple(sorted(of.items()))
        else:
            assert tags == b"c='d'"


@given(st.lists(st.tuples(TEXTS, st.booleans()), min_size=1, max_size=4), SIZES)
def test_postgres_comments_in_any_pieces(texts: list[tuple[bytes, bool]], sizes: list[int]) -> None:
    """Sent whole: exact. In pieces: exact or not at all."""
    requests = [
        b"".join([parse(text, b"n"), bind(b"n"), execute(), SYNC]) if extended else query(text)
        for text, extended in texts
    ]
    expected = [tags_sent(text) for text, _ in texts]
    for pieces in (requests, split(b"".join(requests), sizes, 8192)):
        connection = Connection(registry.kind_of("postgres"), READY)
        for piece in pieces:
            connection.receive(piece)
            connection.wait()
        reported = [query_.tags for query_ in connection.close()]
        if pieces is requests:
            assert reported == expected
        else:
            assert set(reported) <= {None, *expected}


@given(TEXTS, TEXTS)
def test_a_pipeline_has_the_tags_of_all_or_none(first: bytes, second: bytes) -> None:
    connection = Connection(registry.kind_of("postgres"), READY)
    connection.receive(
        b"".join([parse(first), bind(), execute(), parse(second), bind(), execute(), SYNC])
    )
    connection.wait()
    (pipeline,) = connection.close()
    assert pipeline.tags == (tags_sent(first) if tags_sent(first) == tags_sent(second) else None)
