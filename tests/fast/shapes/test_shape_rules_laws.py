# SPDX-License-Identifier: Apache-2.0
"""Literals stay hidden whatever a session's settings are, and whether or not they are known."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from qjoule.servers import registry
from qjoule.servers.shapes import fingerprint
from qjoule.shapes.lexis import Lexis
from qjoule.shapes.rules import COUNTS, Backslash, Charset, Quoting, backtick_rules, standard_rules

MYSQL, POSTGRES = registry.dialect("mysql"), registry.dialect("postgres")
SECRET = b"zq7x"
#: What stands in a literal beside the secret: quotes are written as the mode wants them.
_SIGNS = [SECRET, b"\\", b"'", b'"', b"`", b"\x95", b"\x5c", b"\xa5", b" ", b",", b"-- "]
_INNER = st.lists(st.sampled_from(_SIGNS), min_size=1, max_size=8)
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
    one: list[bytes], two: list[bytes], quote: bytes, escapes: bool
) -> None:
    literals = [_string(pieces, quote, escapes=escapes) for pieces in (one, two)]
    text = b"select %s, %s from t where a = %s" % (*literals, literals[0])
    known = Quoting.STRINGS if escapes else Quoting.PLAIN
    for quoting in (known, Quoting.UNKNOWN):
        for charset in (Charset.SAFE, Charset.UNKNOWN):
            if charset is Charset.UNKNOWN and quoting is known and b"\x95" in text:
                continue  # by this mode and another character set, it is another statement
            shown = _shown(text, MYSQL, backtick_rules(quoting, charset))
            assert SECRET.decode() not in shown
    assert _shown(text, MYSQL, backtick_rules(known, Charset.SAFE)) == (
        "select ?, ? from t where a = ?"
    )


@given(_INNER, _INNER, st.booleans())
def test_no_mode_of_postgres_leaks(one: list[bytes], two: list[bytes], escapes: bool) -> None:
    literals = [_string(pieces, b"'", escapes=escapes) for pieces in (one, two)]
    text = b"select %s, %s from t" % (literals[0], literals[1])
    known = Backslash.ESCAPES if escapes else Backslash.PLAIN
    assert _shown(text, POSTGRES, standard_rules(known, safe=True)) == "select ?, ? from t"
    unknown = _shown(text, POSTGRES, standard_rules(Backslash.UNKNOWN, safe=False))
    assert SECRET.decode() not in unknown


@given(st.sampled_from(list(_CODECS)), st.data())
def test_no_character_set_leaks(charset: Charset, data: st.DataObject) -> None:
    words = st.lists(
        st.sampled_from([*_WIDE[charset], "zq7x", "'", "\\", " ", "a"]), min_size=1, max_size=8
    )
    literals = []
    for word in (data.draw(words), data.draw(words)):
        escaped = "".join({"'": "\\'", "\\": "\\\\"}.get(c, c) for c in word)
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
