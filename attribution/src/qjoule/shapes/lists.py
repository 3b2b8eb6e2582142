# SPDX-License-Identifier: Apache-2.0
"""Token rules that merge many shapes into one: signs, NULL, IN lists, rows of VALUES."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from qjoule.shapes.tokens import Kind, Token

MANY = Token(Kind.VALUE, "?+")
_END = Token(Kind.SIGN, "")

CONSTANTS = frozenset({"null", "true", "false"})
#: After these words, NULL, TRUE and FALSE belong to the structure: IS NULL, NOT NULL, SET NULL.
_STRUCTURAL = frozenset({"is", "not", "set"})
#: After these words an expression begins, so a sign there belongs to the number.
EXPRESSION_FOLLOWS = frozenset(
    [
        "select",
        "distinct",
        "all",
        "where",
        "and",
        "or",
        "xor",
        "not",
        "between",
        "in",
        "like",
        "ilike",
        "rlike",
        "regexp",
        "is",
        "by",
        "limit",
        "offset",
        "when",
        "then",
        "else",
        "case",
        "set",
        "values",
        "value",
        "on",
        "having",
        "return",
        "returning",
        "div",
        "mod",
        "any",
        "some",
        "escape",
        "interval",
        "default",
        "using",
        "from",
        "into",
        "as",
        "union",
        "except",
        "intersect",
        "top",
    ]
)
_OPENERS = frozenset({")", "]"})  #: after these a sign is an operator between two operands


def values_folded(tokens: Iterable[Token], constants: frozenset[str] = CONSTANTS) -> list[Token]:
    """Signed numbers and constants as plain values; a trailing semicolon left out."""
    out: list[Token] = []
    for token, following in pairwise((*tokens, _END)):
        constant = token.kind is Kind.WORD and token.text in constants
        if constant and not _is_structural(out[-1] if out else _END, following):
            token = Token(Kind.VALUE, "?", token.spaced)  # noqa: PLW2901
        if token.kind is Kind.VALUE:
            while out and _is_sign(out[-1]) and _expression_begins(out[:-1][-1:]):
                token = Token(Kind.VALUE, token.text, out.pop().spaced)  # noqa: PLW2901
        out.append(token)
    while out and out[-1].kind is Kind.SIGN and out[-1].text == ";":
        out.pop()
    return out


def _is_structural(before: Token, following: Token) -> bool:
    """Whether NULL, TRUE or FALSE here belongs to the statement's structure, or is a name."""
    if before.kind is Kind.WORD and before.text in _STRUCTURAL:
        return True
    return any(token.kind is Kind.SIGN and token.text == "." for token in (before, following))


def _is_sign(token: Token) -> bool:
    return token.kind is Kind.SIGN and token.text in {"-", "+"}


def _expression_begins(before: list[Token]) -> bool:
    if not before:
        return True
    token = before[0]
    if token.kind is Kind.SIGN:
        return token.text not in _OPENERS
    return token.kind is Kind.WORD and token.text in EXPRESSION_FOLLOWS


def lists_collapsed(tokens: list[Token], truncated: bool) -> list[Token]:
    """IN (?, ?) and VALUES (?), (?) as `(?+)`; equal rows of VALUES as one row.

    A list cut by the end of a truncated statement is collapsed as if it were complete, so that all
    cuts of a long list have the same shape.
    """
    out: list[Token] = []
    at = 0
    while at < len(tokens):
        token = tokens[at]
        out.append(token)
        at += 1
        if token.kind is Kind.WORD and token.text == "in" and _sign(tokens, at, "("):
            at = _row(tokens, at, out, ")", truncated, only_plain=True)
        elif token.kind is Kind.WORD and token.text in {"values", "value"}:
            at = _rows(tokens, at, out, truncated)
        elif token.kind is Kind.WORD and token.text == "array" and _sign(tokens, at, "["):
            at = _row(tokens, at, out, "]", truncated, only_plain=True)
    return out


def _sign(tokens: list[Token], at: int, text: str) -> bool:
    return at < len(tokens) and tokens[at].kind is Kind.SIGN and tokens[at].text == text


def _row(
    tokens: list[Token],
    at: int,
    out: list[Token],
    close: str,
    truncated: bool,
    *,
    only_plain: bool = False,
) -> int:
    """Copies one bracketed group from `at`; only values and commas in it become `?+`.

    With `only_plain`, a group of anything else is left to the caller (IN with a subquery).
    """
    end, plain = _group(tokens, at, close, only_plain)
    if only_plain and not plain:
        return at
    whole = _sign(tokens, end - 1, close) and end - at > 1
    if plain and (whole or truncated) and end - at > (2 if whole else 1):
        out += [tokens[at], MANY]
        if whole:
            out.append(tokens[end - 1])
    else:
        out += tokens[at:end]
    return end


def _group(tokens: list[Token], at: int, close: str, only_plain: bool) -> tuple[int, bool]:
    """The end of the group that opens at `at`, and whether it holds only values (and rows).

    With `only_plain`, it stops at the first other token, which keeps nested groups linear.
    """
    depth, plain = 0, True
    opening = tokens[at].text
    for end in range(at, len(tokens)):
        token = tokens[end]
        if token.kind is Kind.SIGN and token.text == opening:
            depth += 1
        elif token.kind is Kind.SIGN and token.text == close:
            depth -= 1
            if not depth:
                return end + 1, plain
        elif token.kind is not Kind.VALUE and not (token.kind is Kind.SIGN and token.text == ","):
            plain = False
            if only_plain:
                return at, False
    return len(tokens), plain


def _rows(tokens: list[Token], at: int, out: list[Token], truncated: bool) -> int:
    """Copies the groups after IN or VALUES, each one that equals the first left out."""
    first: list[Token] = []
    while _sign(tokens, at, "("):
        row: list[Token] = []
        end = _row(tokens, at, row, ")", truncated)
        cut = end == len(tokens) and truncated and not _sign(tokens, end - 1, ")")
        if not first:
            out += row
            first = row
        elif not _same(row, first) and not (cut and _same(row, first[: len(row)])):
            return at - 1 if _sign(tokens, at - 1, ",") else at
        at = end
        if not _sign(tokens, at, ","):
            break
        if not (_sign(tokens, at + 1, "(") or (truncated and at + 1 == len(tokens))):
            break
        at += 1
    return at


def _same(one: list[Token], other: list[Token]) -> bool:
    return [(t.kind, t.text) for t in one] == [(t.kind, t.text) for t in other]
