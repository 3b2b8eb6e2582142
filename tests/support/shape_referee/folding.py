# SPDX-License-Identifier: Apache-2.0
"""Several tokens that are one value; names that programs make up, which make no new shape."""

from __future__ import annotations

import re
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


# ---- names that programs make up --------------------------------------------------------------
# Savepoints, temporary tables, cursors, prepared statements, variables: a name counts as made up if
# it has a digit. In a shape it is `?`; of a temporary table's name, which other statements use too,
# the parts with digits become `n`.

_NAMED = frozenset({Kind.WORD, Kind.NAME})
_DIGIT = re.compile(r"[0-9]")
_TEMPORARY = frozenset({"temporary", "temp"})
_TEMPORARY_PART = re.compile(r"(?:^|_)(?:tmp|temp)(?=_|[0-9]|$)")
_NUMBERED_PART = re.compile(r"(?<![A-Za-z])[0-9A-Fa-f]*[0-9][0-9A-Fa-f]*(?![A-Za-z])|[0-9]+")
_TABLE_WORDS = "from join into update table exists truncate analyze vacuum copy"
_TABLE_FOLLOWS = frozenset(_TABLE_WORDS.split())
_FETCH_WORDS = "next prior first last absolute relative all forward backward from in"
#: Words between the statement's first word and the name.
_FILLERS = {
    "savepoint": frozenset[str](),
    "release": frozenset({"savepoint"}),
    "rollback": frozenset({"work", "transaction", "to", "savepoint"}),
    "prepare": frozenset[str](),
    "execute": frozenset[str](),
    "deallocate": frozenset({"prepare"}),
    "declare": frozenset[str](),
    "open": frozenset[str](),
    "close": frozenset[str](),
    "fetch": frozenset(_FETCH_WORDS.split()),
}
_FILLERS["move"] = _FILLERS["fetch"]
_VALUE = Token(Kind.VALUE, "?", True)


def generated_names_masked(tokens: list[Token]) -> list[Token]:
    """The tokens of one or several statements, with names that programs made up masked."""
    start = 0
    masked = tokens
    for end, token in enumerate(tokens):
        if token.kind is Kind.SIGN and token.text == ";":
            masked = _statement(tokens, masked, start, end)
            start = end + 1
    masked = _statement(tokens, masked, start, len(tokens))
    return _tables(masked)


def _statement(tokens: list[Token], masked: list[Token], start: int, end: int) -> list[Token]:
    first = tokens[start].text if start < end and tokens[start].kind is Kind.WORD else ""
    at = -1
    if (fillers := _FILLERS.get(first)) is not None:
        at = _after(tokens, start + 1, end, fillers)
    elif first == "drop" and start + 1 < end and tokens[start + 1].text == "prepare":
        at = start + 2
    found = [at] if 0 <= at < end and _is_generated(tokens[at]) else []
    if first in ("set", "execute"):
        found += _variables(tokens, start, end)
    if not found:
        return masked
    masked = list(masked)
    for place in found:
        masked[place] = _VALUE._replace(spaced=tokens[place].spaced)
    return masked


def _after(tokens: Sequence[Token], at: int, end: int, fillers: frozenset[str]) -> int:
    while at < end and (
        (tokens[at].kind is Kind.WORD and tokens[at].text in fillers)
        or (fillers and tokens[at].kind is Kind.VALUE)
    ):
        at += 1
    return at


def _is_generated(token: Token) -> bool:
    return token.kind in _NAMED and _DIGIT.search(token.text) is not None


def _variables(tokens: Sequence[Token], start: int, end: int) -> list[int]:
    """Where the user variables' names are; system variables have two signs."""
    return [
        at
        for at in range(start + 2, end)
        if tokens[at - 1].text == "@" and tokens[at - 2].text != "@" and _is_generated(tokens[at])
    ]


def _tables(tokens: list[Token]) -> list[Token]:
    """Temporary tables' names: those in a statement that creates or drops one, and those that say
    so (`tmp_…`, `…_temp_…`) where a table is expected.
    """
    names: dict[str, str] = {}
    made = len(tokens) > 1 and tokens[0].text in ("create", "drop")
    made = made and tokens[1].kind is Kind.WORD and tokens[1].text in _TEMPORARY
    before = Token(Kind.SIGN, "")
    for token in tokens:
        if (
            before.text in _TABLE_FOLLOWS
            and _is_generated(token)
            and (made or _TEMPORARY_PART.search(token.text))
        ):
            names[token.text] = _NUMBERED_PART.sub("n", token.text)
        before = token
    if not names:
        return tokens
    return [
        token._replace(text=names[token.text])
        if token.kind in _NAMED and token.text in names
        else token
        for token in tokens
    ]
