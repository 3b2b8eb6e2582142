# SPDX-License-Identifier: Apache-2.0
"""What the kernel side takes for a statement's tags: a comment at its end or its beginning.

It takes all of it or nothing, and nothing of the statement, in whatever pieces the bytes come.
"""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from fuzz.wire_library import READY, Connection, split
from qjoule.servers import registry
from qjoule.servers.mysql.wire import tags_in_attributes
from qjoule_drivers import attributes as carrier
from qjoule_drivers.comments import pairs_of
from tracing.postgres_client import SYNC, bind, execute, parse, query

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
    return [one.said for one in connection.close()]


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
    for whole in (cut, cut + b"/*a='b'*/"):
        seen = whole[:4096]
        several = b";" in seen[:4095] and seen.count(b"'*/") > 1
        assert _mysql([b"\x03" + whole], []) == [None if several else _comment(seen + b"x")]


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
    told = _mysql([b"\x03" + block + b"select 1/*c='d'*/" for block in blocks], sizes)
    for of, block, one in zip(sets, blocks, told, strict=True):
        if of and len(block) <= MOST:
            assert one == block
            assert tags_in_attributes(one) == tuple(sorted(of.items()))
        else:
            assert one == b"c='d'"


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
        told = [one.said for one in connection.close()]
        if pieces is requests:
            assert told == expected
        else:
            assert set(told) <= {None, *expected}


@given(TEXTS, TEXTS)
def test_a_pipeline_has_the_tags_of_all_or_none(first: bytes, second: bytes) -> None:
    connection = Connection(registry.kind_of("postgres"), READY)
    connection.receive(
        b"".join([parse(first), bind(), execute(), parse(second), bind(), execute(), SYNC])
    )
    connection.wait()
    (one,) = connection.close()
    assert one.said == (tags_sent(first) if tags_sent(first) == tags_sent(second) else None)
