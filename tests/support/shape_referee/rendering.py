# SPDX-License-Identifier: Apache-2.0
"""A statement's shape as text: one canonical spacing, so that layout makes no difference."""

from __future__ import annotations

import re
from collections.abc import Sequence

from qjoule.shapes.lexis import Lexis
from qjoule.shapes.reserved_words import RESERVED
from qjoule.shapes.tokens import Kind, Token
from shape_referee.folding import BEGIN_EXPRESSION, CONSTANTS, begins_expression
from shape_referee.tokens import hint_tokens

_SIMPLE_BACKTICK = re.compile(r"[A-Za-z_\x80-\U0010ffff][A-Za-z0-9_$\x80-\U0010ffff]*")
_SIMPLE_STANDARD = re.compile(r"[a-z_\x80-\U0010ffff][a-z0-9_$\x80-\U0010ffff]*")
_TIGHT_BEFORE = frozenset({")", "]", ",", ";", "::"})
_TIGHT_AFTER = frozenset({"(", "[", "::"})
_UNARY = frozenset({"-", "+", "~", "!", ":"})
_SPACED_WORDS = """
exists over join with within explain offset set value escape returning into top
"""
_SPACED_PARENTHESIS = BEGIN_EXPRESSION[Lexis.BACKTICK] | frozenset(_SPACED_WORDS.split())
#: A name that is one of these words keeps its quotes.
_KEYWORDS = (
    _SPACED_PARENTHESIS
    | CONSTANTS
    | {word.lower() for word in RESERVED}
    | {"array", "e", "x", "b", "n", "u"}
)


def render(tokens: Sequence[Token], lexis: Lexis) -> str:
    """The shape text of a statement's tokens, unbounded."""
    out: list[str] = []
    signs = False  # the token before is a sign
    for at, token in enumerate(tokens):
        kind = token.kind
        is_sign = kind is Kind.SIGN
        if at and (_blank(tokens, at, lexis) if is_sign or signs else True):
            out.append(" ")
        plain = is_sign or kind is Kind.WORD or kind is Kind.VALUE
        out.append(token.text if plain else _text(token, lexis))
        signs = is_sign
    return "".join(out)


def quoted(token: Token, lexis: Lexis) -> str:
    """A name, quoted only if it would mean another name without quotes."""
    simple = _SIMPLE_BACKTICK if lexis is Lexis.BACKTICK else _SIMPLE_STANDARD
    plain = _ascii_lower(token.text)
    if simple.fullmatch(token.text) and plain not in _KEYWORDS:
        return plain
    quote = "`" if lexis is Lexis.BACKTICK else '"'
    return quote + token.text.replace(quote, quote * 2) + quote


def _ascii_lower(text: str) -> str:
    return "".join(c.lower() if c.isascii() else c for c in text)


def _text(token: Token, lexis: Lexis) -> str:
    if token.kind is Kind.NAME:
        return quoted(token, lexis)
    if token.kind in (Kind.HINT, Kind.OPEN_HINT):
        inner = render(hint_tokens(token.text), lexis).rstrip(" ")
        return f"/*+ {inner} */" if token.kind is Kind.HINT else f"/*+ {inner}"
    return token.text


def _blank(tokens: Sequence[Token], at: int, lexis: Lexis) -> bool:  # noqa: PLR0911
    """Whether a blank stands before the token at this place; it or the one before it is a sign."""
    last, token = tokens[at - 1], tokens[at]
    sign = token.text if token.kind is Kind.SIGN else ""
    last_sign = last.text if last.kind is Kind.SIGN else ""
    if last_sign == "." or last_sign in _TIGHT_AFTER or sign in _TIGHT_BEFORE:
        return (last_sign, sign) in {("::", "::"), (".", "::")}
    if lexis is Lexis.BACKTICK:
        if sign == "@":
            return token.spaced or (last.kind is Kind.SIGN and last_sign not in {"@", ")"})
        if last_sign == "@":
            return False
    if sign in {".", "["}:
        return last.kind is Kind.SIGN and last_sign not in {")", "]"}
    if sign == "(":
        if last.kind is Kind.WORD:
            return last.text in _SPACED_PARENTHESIS
        return last.kind is not Kind.NAME
    if sign or last_sign not in _UNARY:
        return True
    return not begins_expression(tokens, at - 2, BEGIN_EXPRESSION[lexis])
