# SPDX-License-Identifier: Apache-2.0
"""Names that programs make up for one use: savepoints, temporary tables, cursors, prepared
statements, variables. Each new name must not make a new shape.

A name counts as made up if it has a digit. In a shape it is `?`; of a temporary table's name, which
other statements use too, the parts with digits become `n`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from qjoule.shapes.tokens import Kind, Token

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
