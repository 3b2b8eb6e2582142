# SPDX-License-Identifier: Apache-2.0
"""Laws of shapes: equal hashes mean equal shapes, no literal is shown, all is stable and safe."""

from __future__ import annotations

from collections import defaultdict
from itertools import product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fuzz.shape_library import SQL_DIALECTS, c_hash, python_hash
from fuzz.shape_mutations import PIECES
from qjoule.servers import registry
from qjoule.servers.decoding import LANGUAGES, fingerprint, summary
from qjoule.servers.mysql.other_ids import percona_fingerprint
from qjoule.servers.mysql.wire import LEXIS
from qjoule.shapes.rules import (
    COUNTS,
    Backslash,
    Charset,
    Lexis,
    Quoting,
    backtick_rules,
    class_by_rules,
    standard_rules,
)
from qjoule.shapes.safe_text import sanitise
from qjoule.shapes.shape import TEXT_LENGTH
from qjoule.shapes.sql import reduced_sql

MYSQL, POSTGRES = registry.dialect("mysql"), registry.dialect("postgres")
dialects = st.sampled_from(SQL_DIALECTS)
hostile = st.lists(st.sampled_from(PIECES), max_size=40).map(b"".join)
texts = st.one_of(hostile, st.binary(max_size=200))
#: Settings of a session; 0: none is known.
any_rules = st.integers(0, 63)


def rules_in(dialect: int, number: int) -> int:
    """The rules that the kernel side takes for this number."""
    lexis = LANGUAGES[dialect].lexis
    assert lexis is not None
    count = COUNTS[lexis].rules
    number %= 1 << (count - 1).bit_length()
    return number if number < count else 0


def ids(
    text: bytes, dialect: int, truncated: bool = False, rules: int | None = None
) -> tuple[object, ...]:
    """Everything that is derived from a statement."""
    shape = fingerprint(text, dialect, truncated, rules=rules)
    return shape.fingerprint, shape.text, summary(shape)


def shown_texts(text: bytes, dialect: int, truncated: bool, length: int = TEXT_LENGTH) -> list[str]:
    """Everything that is shown, except for summaries."""
    shown = [fingerprint(text, dialect, truncated, length).text]
    if dialect == MYSQL:
        shown.append(percona_fingerprint(reduced_sql(text, truncated, LEXIS)[0])[:length])
    return shown


@given(texts, dialects, st.integers(0, 2**64 - 1), st.booleans(), any_rules)
@example(b"select a from 2020_sales, x" + b" " * 37 + b"12345678901_t", 1, 0, False, 6)
def test_the_kernels_hash_is_the_hash_of_what_the_python_automaton_emits(
    text: bytes, dialect: int, seed: int, truncated: bool, number: int
) -> None:
    rules = rules_in(dialect, number)
    expected = python_hash(text, dialect, seed=seed, truncated=truncated, rules=rules)
    assert c_hash(text, dialect, seed=seed, truncated=truncated, rules=number) == expected


@given(texts, dialects, st.integers(1, 64))
def test_the_hash_does_not_depend_on_the_split(text: bytes, dialect: int, step: int) -> None:
    assert c_hash(text, dialect, step=step) == c_hash(text, dialect)


#: So small that many statements share a hash.
_SIGNS = [b"'", b"\\", b"1", b"0", b"e", b"-", b" ", b"/*", b"*/", b"a", b".", b"$", b'"', b"`"]
_SIGNS += [b"\x95", b"\xa5", b"_", b"\n", b"--"]
colliding = st.lists(
    st.lists(st.sampled_from(_SIGNS), max_size=7).map(b"".join), min_size=50, max_size=200
)


@given(colliding, dialects, st.booleans(), any_rules, any_rules)
def test_equal_hash_implies_equal_shape(
    statements: list[bytes], dialect: int, truncated: bool, even_rules: int, odd_rules: int
) -> None:
    """This holds also between statements that are read by different rules."""
    shapes_by_hash: dict[int, set[tuple[object, ...]]] = defaultdict(set)
    for number, text in enumerate(statements):
        rules = rules_in(dialect, odd_rules if number % 2 else even_rules)
        shape = fingerprint(text, dialect, truncated, rules=rules)
        key = c_hash(text, dialect, truncated=truncated, rules=rules)
        shapes_by_hash[key].add((shape.fingerprint, shape.text))
    assert all(len(shapes) == 1 for shapes in shapes_by_hash.values())


#: Statements by dialect with `{}` for a literal, to be replaced by any of LITERALS.
STATEMENTS = {
    MYSQL: [
        "select a, {} from t1 where b = {} and c<{} limit {}",
        "insert into t (a, b) values ({}, {}), ({},{})",
        "update `t` set a={}, b = {} where c in ({}, {}) # {}",
        "delete from t where a between {} and {} -- {}\n and b like {}",
        "select /*! straight_join */ f({},{}) from t /* {} */ where x is not null",
    ],
    POSTGRES: [
        'select "A", {} from s.t where b = {}::int and c@>{} limit {}',
        "insert into t (a, b) values ({}, {}), ({},{}) returning id",
        "select * from t where a = any(array[{}, {}]) /* {} /* {} */ */ and b ->> {} = {}",
        "select {} -- {}\n, {} from t",
    ],
}
_PLAIN = st.text(st.characters(codec="utf-8", exclude_characters="'\"\\/*-$\n\r\0"), max_size=12)
_QUOTED = _PLAIN.map("'zq{}'".format)
_DOUBLED = _PLAIN.map("'zq''{}'".format)
_INTEGERS = st.integers(0, 10**30).map(str)
_DECIMALS = st.decimals(0, 10**9, allow_nan=False, places=3).map("{:f}".format)
_COMMON = st.one_of(_QUOTED, _DOUBLED, _INTEGERS, _DECIMALS)
LITERALS = {
    MYSQL: st.one_of(
        _COMMON,
        _PLAIN.map('"zq{}"'.format),
        _PLAIN.map("'zq\\'{}'".format),
        st.integers(0).map(hex),
        st.integers(0).map(bin),
    ),
    POSTGRES: st.one_of(_COMMON, _PLAIN.map("$${}zq$$".format)),
}


@st.composite
def statement_pairs(draw: st.DrawFn) -> tuple[int, str, str]:
    """Two statements that differ only in their literals' values, all of the kernel's own kind."""
    dialect = draw(dialects)
    template = draw(st.sampled_from(STATEMENTS[dialect]))
    count = template.count("{}")
    numbers = st.one_of(_INTEGERS, _DECIMALS)
    strings = st.one_of(_QUOTED, _DOUBLED)
    kinds = [draw(st.sampled_from([numbers, strings])) for _ in range(count)]
    first, second = ([draw(kind) for kind in kinds] for _ in range(2))
    return dialect, template.format(*first), template.format(*second)


@given(statement_pairs())
def test_the_value_of_a_literal_changes_neither_hash_nor_shape(pair: tuple[int, str, str]) -> None:
    dialect, first, second = pair
    assert c_hash(first.encode(), dialect) == c_hash(second.encode(), dialect)
    assert ids(first.encode(), dialect) == ids(second.encode(), dialect)


@given(dialects, st.data())
def test_the_kind_of_a_literal_does_not_change_the_shape(dialect: int, data: st.DataObject) -> None:
    template = data.draw(st.sampled_from(STATEMENTS[dialect]))
    count = template.count("{}")
    literals = [data.draw(LITERALS[dialect]) for _ in range(count)]
    shape = fingerprint(template.format(*literals).encode(), dialect)
    assert shape.text == fingerprint(template.format(*["?"] * count).encode(), dialect).text


@given(texts, dialects, st.booleans())
@example(b"- - 1", MYSQL, False)
@example(b"a - - b --", MYSQL, True)
@example(b"`a``", MYSQL, True)
def test_the_shape_of_a_shape_is_itself(text: bytes, dialect: int, truncated: bool) -> None:
    shape = fingerprint(text, dialect, truncated, length=10**6)
    again = fingerprint(shape.text.encode(), dialect, length=10**6)
    assert again.text == shape.text
    assert again.fingerprint == shape.fingerprint


@given(texts, dialects, st.booleans(), st.integers(1, 50))
def test_every_text_is_safe_and_bounded(
    text: bytes, dialect: int, truncated: bool, length: int
) -> None:
    shape = fingerprint(text, dialect, truncated, length)
    bounded = shown_texts(text, dialect, truncated, length)
    for shown in (*bounded, summary(shape)):
        assert sanitise(shown) == shown
        assert not any(ord(c) < 0x20 or 0x7F <= ord(c) < 0xA0 for c in shown)
    assert max(map(len, bounded)) <= length
    assert len(summary(shape)) <= 255
    if truncated:
        assert shape.text.endswith("…")


@given(st.text())
def test_sanitised_text_is_one_line_without_controls(text: str) -> None:
    safe = sanitise(text)
    assert sanitise(safe) == safe
    assert len(safe) == len(text)
    assert not set(safe) & {"\n", "\r", "\x1b", "\x9b", "\u202e", "\u2066", "\u2028"}


HOSTILE_RUNS = [
    *(b"'", b'"', b"`", b"\\", b"''\\", b"/*", b"*/", b"*/*", b"/*!", b"/*+", b"--", b"$", b"$a$"),
    *(b"$a", b"e'", b"1e", b"- ", b"-1,", b"(", b"in (", b"(1),", b"values (", b"union select "),
    *(b"select a union ", b"array[", b"@", b"\0", b"\xff", b"\xe2\x80\xa6", b" \xe2\x80\xa6"),
    *(b"order by asc ", b"from a,", b"/*+ in(", b"insert into values (", b"\xe2\x80"),
]


@pytest.mark.parametrize("dialect", sorted(LANGUAGES))
def test_hostile_statements_take_linear_time(dialect: int) -> None:
    """A quadratic step would take minutes for all of them, and hit any timeout."""
    starts, size = [b"get "], 10_000
    if dialect in SQL_DIALECTS:
        starts, size = [b"select 1 ", b"insert into t values ("], 50_000
    for start, run in product(starts, HOSTILE_RUNS):
        text = start + run * (size // len(run))
        shape = fingerprint(text, dialect, truncated=True)
        assert max(map(len, shown_texts(text, dialect, True))) <= 4096
        assert shape.text.endswith("…") or dialect not in SQL_DIALECTS


# ---- settings of a session: literals stay hidden whether or not they are known -----------------

SECRET = b"zq7x"
#: What stands in a literal beside the secret: quotes are written as the mode wants them.
_MARKS = [SECRET, b"\\", b"'", b'"', b"`", b"\x95", b"\x5c", b"\xa5", b" ", b",", b"-- "]
_INNER = st.lists(st.sampled_from(_MARKS), min_size=1, max_size=8)
_CODECS = {Charset.SJIS: "cp932", Charset.GBK: "gbk", Charset.BIG5: "big5"}
#: Characters whose second byte is a backslash, or other ASCII, in the character sets above.
_WIDE = {Charset.SJIS: "表ソ十", Charset.GBK: "乗誠運", Charset.BIG5: "許功蓋"}


def _string(pieces: list[bytes], quote: bytes, *, escapes: bool) -> bytes:
    """A literal with these pieces, as a server with this mode reads it."""
    out = b""
    for piece in pieces:
        if piece == b"\\" and escapes:
            out += b"\\\\"
        elif piece == quote:
            out += b"\\" + quote if escapes else quote * 2
        else:
            out += piece
    return quote + out + quote


def _shown(text: bytes, dialect: int, rules: int) -> str:
    return fingerprint(text, dialect, rules=rules).text


@given(_INNER, _INNER, st.sampled_from([b"'", b'"']), st.booleans())
@example([b"a", b"\\"], [SECRET], b"'", False)
@example([b"a", b"'", b","], [SECRET], b"'", True)
def test_no_mode_of_mysql_leaks(
    first: list[bytes], second: list[bytes], quote: bytes, escapes: bool
) -> None:
    literals = [_string(pieces, quote, escapes=escapes) for pieces in (first, second)]
    text = b"select %s, %s from t where a = %s" % (*literals, literals[0])
    actual = Quoting.STRINGS if escapes else Quoting.PLAIN
    for quoting in (actual, Quoting.UNKNOWN):
        for charset in (Charset.SAFE, Charset.UNKNOWN):
            if charset is Charset.UNKNOWN and quoting is actual and b"\x95" in text:
                continue  # by this mode and another character set, it is another statement
            shown = _shown(text, MYSQL, backtick_rules(quoting, charset))
            assert SECRET.decode() not in shown
    assert _shown(text, MYSQL, backtick_rules(actual, Charset.SAFE)) == (
        "select ?, ? from t where a = ?"
    )


@given(_INNER, _INNER, st.booleans())
def test_no_mode_of_postgres_leaks(first: list[bytes], second: list[bytes], escapes: bool) -> None:
    literals = [_string(pieces, b"'", escapes=escapes) for pieces in (first, second)]
    text = b"select %s, %s from t" % (literals[0], literals[1])
    actual = Backslash.ESCAPES if escapes else Backslash.PLAIN
    assert _shown(text, POSTGRES, standard_rules(actual, safe=True)) == "select ?, ? from t"
    unknown = _shown(text, POSTGRES, standard_rules(Backslash.UNKNOWN, safe=False))
    assert SECRET.decode() not in unknown


@given(st.sampled_from(list(_CODECS)), st.data())
def test_no_character_set_leaks(charset: Charset, data: st.DataObject) -> None:
    pieces = st.lists(
        st.sampled_from([*_WIDE[charset], "zq7x", "'", "\\", " ", "a"]), min_size=1, max_size=8
    )
    literals = []
    for pieces_of_literal in (data.draw(pieces), data.draw(pieces)):
        escaped = "".join({"'": "\\'", "\\": "\\\\"}.get(c, c) for c in pieces_of_literal)
        literals.append(b"'" + escaped.encode(_CODECS[charset]) + b"'")
    text = b"select %s, %s from t" % (literals[0], literals[1])
    rules = backtick_rules(Quoting.STRINGS, charset)
    assert _shown(text, MYSQL, rules) == "select ?, ? from t"
    for quoting in (Quoting.STRINGS, Quoting.ESCAPES, Quoting.UNKNOWN):
        unknown = _shown(text, MYSQL, backtick_rules(quoting, Charset.UNKNOWN))
        assert SECRET.decode() not in unknown


@given(st.text(max_size=30), st.integers(0, 29))
def test_text_in_utf_16_shows_nothing(value: str, number: int) -> None:
    """No server takes it, but a client may send it: a character may hold the byte of a quote."""
    text = f"select 'zq7x', '{value}', 'zq7x'".encode("utf-16-le")
    rules = number % COUNTS[Lexis.BACKTICK].rules
    assert "z" not in _shown(text, MYSQL, rules)
    assert "q" not in _shown(b"\xff\xfe" + text, MYSQL, rules)


def test_few_bytes_are_read_by_a_sessions_rules() -> None:
    """Only statements with these depend on the session's rules: mysql_follows_rules()."""
    lexis = Lexis.BACKTICK
    classes = [
        {class_by_rules(lexis, rules, byte) for rules in range(COUNTS[lexis].rules)}
        for byte in range(256)
    ]
    varying = {byte for byte, of_byte in enumerate(classes) if len(of_byte) > 1}
    assert varying == {ord('"'), ord("\\"), 0x7F, *range(0x80, 0x100)}
