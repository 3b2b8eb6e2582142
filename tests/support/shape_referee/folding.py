# SPDX-License-Identifier: Apache-2.0
"""Literals that consist of several tokens become one value: signed numbers, NULL, introducers."""

from __future__ import annotations

from collections.abc import Sequence

from qjoule.shapes.lexis import Lexis
from qjoule.shapes.tokens import Kind, Token

CONSTANTS = frozenset({"null", "true", "false"})
#: After these words, NULL, TRUE and FALSE belong to the structure: IS NULL, NOT NULL, SET NULL.
_STRUCTURAL = frozenset({"is", "not", "set"})
#: After these words an expression begins, so a sign there belongs to the number. Words that may
#: also be columns (value, offset, top, set) are left out: no operator must be lost.
_SHARED_WORDS = """
select distinct all where and or not between in like ilike is by limit when then else case on having
any some default using from as except intersect union
"""
_BEGIN_SHARED = frozenset(_SHARED_WORDS.split())
#: Reserved in MySQL, names in PostgreSQL.
_BACKTICK_WORDS = "xor rlike regexp div mod interval return values"
BEGIN_EXPRESSION = {
    Lexis.BACKTICK: _BEGIN_SHARED | frozenset(_BACKTICK_WORDS.split()),
    Lexis.STANDARD: _BEGIN_SHARED,
}
_CLOSERS = frozenset({")", "]", "*/"})  #: after these a sign is an operator between two operands
#: MySQL Reference Manual, "Supported Character Sets and Collations"; MariaDB has a subset.
_SETS = """
armscii8 ascii big5 binary cp1250 cp1251 cp1256 cp1257 cp850 cp852 cp866 cp932 dec8 eucjpms euckr
gb18030 gb2312 gbk geostd8 greek hebrew hp8 keybcs2 koi8r koi8u latin1 latin2 latin5 latin7 macce
macroman sjis swe7 tis620 ucs2 ujis utf16 utf16le utf32 utf8 utf8mb3 utf8mb4
"""
_CHARACTER_SETS = frozenset(_SETS.split())


def values_folded(
    tokens: Sequence[Token], lexis: Lexis, constants: frozenset[str] = CONSTANTS
) -> list[Token]:
    """Signed numbers, constants and strings with a character set as plain values; a trailing
    semicolon left out.
    """
    out: list[Token] = []
    value, word, sign = Kind.VALUE, Kind.WORD, Kind.SIGN
    begins = BEGIN_EXPRESSION[lexis]
    last = len(tokens) - 1
    for at, token in enumerate(tokens):
        if token.kind is word and token.text in constants:
            following = tokens[at + 1] if at < last else None
            if not _is_structural(out, following):
                token = Token(value, "?", token.spaced)  # noqa: PLW2901
        if token.kind is value and out and out[-1].kind is not value:
            while out and out[-1].kind is sign and out[-1].text in "-+":
                if not begins_expression(out, len(out) - 2, begins):
                    break
                token = Token(value, token.text, out.pop().spaced)  # noqa: PLW2901
            if lexis is Lexis.BACKTICK and out and _is_introducer(out[-1]):
                token = Token(value, token.text, out.pop().spaced)  # noqa: PLW2901
        out.append(token)
    while out and out[-1].kind is sign and out[-1].text == ";":
        out.pop()
    return out


def begins_expression(tokens: Sequence[Token], at: int, begins: frozenset[str]) -> bool:
    """Whether an operand follows the token at this place, so that a sign after it is part of it."""
    if at < 0:
        return True
    token = tokens[at]
    if token.kind is Kind.SIGN:
        return token.text not in _CLOSERS
    if token.kind is not Kind.WORD or token.text not in begins:
        return False
    return not (at and tokens[at - 1].kind is Kind.SIGN and tokens[at - 1].text == ".")


def _is_structural(before: Sequence[Token], following: Token | None) -> bool:
    """Whether NULL, TRUE or FALSE here belongs to the statement's structure, or is a name."""
    last = before[-1] if before else None
    if last is not None and last.kind is Kind.WORD and last.text in _STRUCTURAL:
        return True
    return any(
        token is not None and token.kind is Kind.SIGN and token.text == "."
        for token in (last, following)
    )


def _is_introducer(token: Token) -> bool:
    return token.kind is Kind.WORD and token.text[:1] == "_" and token.text[1:] in _CHARACTER_SETS
