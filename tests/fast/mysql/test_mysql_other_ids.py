# SPDX-License-Identifier: Apache-2.0
"""Ids of MySQL's tools: never a wrong one. Equal to real servers' in tests/nightly/mysql."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qjoule.servers.decoding_types import Build
from qjoule.servers.mysql.other_ids import CHECKSUM, DIGEST, ids_of
from qjoule.servers.mysql.vocabulary import BEGINS_EXPRESSION
from qjoule.shapes.reserved_words import RESERVED
from qjoule.shapes.rules import COUNTS, PLAIN_MODES, Charset, Lexis, Quoting, backtick_rules
from qjoule.shapes.shape import OtherId

_DIGESTS = ("?", "?, ...", "(?)", "(?) /* , ... */", "(...)", "(...) /* , ... */", "(tok_id)")
_WORDS = [*map(chr, range(33, 127)), *sorted(RESERVED), "COUNT(", "IN (...)", *_DIGESTS]
#: Not the numbers of any server.
VOCABULARY = {word: number for number, word in enumerate(_WORDS, start=1)}
VOCABULARY["("] |= BEGINS_EXPRESSION
BUILD = Build("mysql", "9.7.4", VOCABULARY)


DEFAULT = backtick_rules(Quoting.STRINGS, Charset.SAFE) | PLAIN_MODES
OTHER_MODES = backtick_rules(Quoting.STRINGS, Charset.SAFE)
SJIS = backtick_rules(Quoting.STRINGS, Charset.SJIS) | PLAIN_MODES


def ids(
    statement: bytes, build: Build = BUILD, *, truncated: bool = False, rules: int = DEFAULT
) -> dict[str, OtherId]:
    return {other_id.name: other_id for other_id in ids_of(statement, truncated, rules, build)}


def digest(statement: str, rules: int = DEFAULT) -> str | None:
    return ids(statement.encode(), rules=rules)[DIGEST].id


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("select a from t where b = 1", "SELECT a FROM t\nWHERE b='x' -- note"),
        ("select a from t where b in (1)", "select a from t where b in (1, 2, 'x')"),
        ("insert into t values (1, 2)  ,  (3, 4)", "insert into t values (1,2),(3,4),(5,6)"),
    ],
)
def test_equal_digests(first: str, second: str) -> None:
    assert digest(first) == digest(second) is not None


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("select a from t", "select A from t"),
        ("select count(a)", "select count (a)"),
        ("insert into t values (1)", "insert into t values (1, 2)"),
    ],
)
def test_different_digests(first: str, second: str) -> None:
    assert digest(first) != digest(second)
    assert None not in (digest(first), digest(second))


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("select a || b", "sql_mode"),
        ("select /*+ x */ a", "hints"),
        ("select 1; select 2", "several statements"),
        ("select " + "a, " * 400 + "b", "max_digest_length"),
    ],
)
def test_no_digest(statement: str, why: str) -> None:
    no_id = ids(statement.encode())[DIGEST]
    assert no_id.id is None
    assert why in no_id.why


@pytest.mark.parametrize(
    "statement",
    [
        "select 'it''s'",
        "select 0x1F",
        "select 'a),(b', 1",
        "É = É",
    ],
)
def test_no_checksum_where_the_tool_is_derailed(statement: str) -> None:
    no_id = ids(f"insert into t values ({statement}), (2)".encode())[CHECKSUM]
    assert no_id.id is None
    assert no_id.why


@pytest.mark.parametrize(
    ("rules", "statement", "why"),
    [
        (0, b'select "a" from t', "a setting that is not known"),
        (OTHER_MODES, b"select count (a) from t", "sql_mode"),
        (SJIS, b"select \x95\x5c from t", "two bytes"),
    ],
)
def test_no_digest_where_the_session_decides(rules: int, statement: bytes, why: str) -> None:
    no_id = ids(statement, rules=rules)[DIGEST]
    assert no_id.id is None
    assert why in no_id.why


@given(st.binary(max_size=300), st.booleans(), st.integers(0, COUNTS[Lexis.BACKTICK].rules - 1))
def test_any_bytes_have_ids_or_reasons(statement: bytes, truncated: bool, rules: int) -> None:
    for other_id in ids(statement, truncated=truncated, rules=rules).values():
        assert (other_id.id is None) == bool(other_id.why)


#: So that many statements have quotes, and characters of two bytes.
_PIECES = [b"a", b" ", b"'", b'"', b"`", b"\\", b"\x95", b"\x5c", b"\x60", b"1", b",", b"("]


@given(st.lists(st.sampled_from(_PIECES), max_size=12).map(b"".join))
def test_an_id_without_known_settings_is_that_of_every_session(text: bytes) -> None:
    statement = b"select " + text
    common = ids(statement, rules=0)[DIGEST]
    if common.id is None:
        return
    for quoting in (Quoting.STRINGS, Quoting.NAMES, Quoting.PLAIN_NAMES):
        for charset in (Charset.SAFE, Charset.SJIS, Charset.GBK, Charset.BIG5):
            of_session = ids(statement, rules=backtick_rules(quoting, charset))[DIGEST]
            assert of_session.id in (common.id, None)


@given(st.text("zq", min_size=8, max_size=12), st.sampled_from(["select '{}'", 'select "{}"']))
def test_no_id_depends_on_a_literal(literal: str, template: str) -> None:
    assert ids(template.format(literal).encode()) == ids(template.format("x").encode())
