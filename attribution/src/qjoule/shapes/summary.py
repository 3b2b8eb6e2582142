# SPDX-License-Identifier: Apache-2.0
"""A short name for a statement: its operations and their targets, in order.

As OpenTelemetry's semantic conventions define `db.query.summary`: `SELECT orders users`, at most
255 characters, cut between words.
"""

from __future__ import annotations

from qjoule.shapes.rules import Lexis
from qjoule.shapes.sql import Kind, Token, lexer, reduce_statement, strip_ellipsis, tokens

LENGTH_MAX = 255

_OPERATIONS = frozenset(
    ["select", "insert", "update", "delete", "replace", "merge", "call", "copy", "load"]
)
_DEFINITIONS = frozenset(["create", "alter", "drop", "truncate", "rename"])
_OBJECTS = frozenset(
    [
        "table",
        "view",
        "index",
        "database",
        "schema",
        "sequence",
        "function",
        "procedure",
        "trigger",
        "user",
        "role",
        "type",
    ]
)
_TARGET_FOLLOWS = (
    frozenset(["from", "join", "into", "update", "table", "call", "copy", "using"]) | _OBJECTS
)
_FILLERS = frozenset(
    ["if", "not", "exists", "only", "lateral", "ignore", "low_priority", "concurrently"]
)
#: Words that end the search for a target, because they are never a target's name.
_NO_TARGET = _OPERATIONS | frozenset(["set", "values", "value", "where", "on", "unnest"])


def sql_summary(text: str, lexis: Lexis) -> str:
    """The summary of an SQL statement's shape."""
    reduced, _ = strip_ellipsis(reduce_statement(text.encode(), lexis)[0])
    stream = [t for t in tokens(reduced, lexis) if t.kind is not Kind.HINT]
    parts: list[str] = []
    at = 0
    while at < len(stream):
        word = stream[at].text if stream[at].kind is Kind.WORD else ""
        at += 1
        if not parts and word and word not in _OPERATIONS and word not in _DEFINITIONS:
            parts.append(word.upper())  # BEGIN, SET, SHOW, WITH
        elif word in _DEFINITIONS and len(parts) == 0:
            parts.append(word.upper())
        elif word in _OBJECTS and len(parts) == 1 and parts[0].lower() in _DEFINITIONS:
            parts[0] += " " + word.upper()
        elif word in _OPERATIONS and _starts_statement(stream, at - 1):
            parts.append(word.upper())
        if word in _TARGET_FOLLOWS and (word != "update" or _starts_statement(stream, at - 1)):
            at = _targets(stream, at, parts, lexis)
        if sum(map(len, parts)) > LENGTH_MAX:
            break
    return bounded(parts)


def _starts_statement(stream: list[Token], at: int) -> bool:
    """False for functions such as REPLACE(...), and the UPDATE of ON DUPLICATE KEY or FOR
    UPDATE."""
    if at + 1 < len(stream) and stream[at + 1].text == "(" and stream[at].text != "select":
        return False
    return not (at and stream[at - 1].text in {"key", "for", "on", "do", "."})


def _targets(stream: list[Token], at: int, parts: list[str], lexis: Lexis) -> int:
    """Adds the dotted names from `at`, separated by commas, and returns the position after them."""
    while True:
        while at < len(stream) and stream[at].kind is Kind.WORD and stream[at].text in _FILLERS:
            at += 1
        name, end = _dotted_name(stream, at, lexis)
        if not name:
            return at
        at = end
        if at < len(stream) and stream[at].text == "(" and parts[:1] == ["SELECT"]:
            return at  # a function such as generate_series(...)
        parts.append(name)
        after = _alias_end(stream, at)
        if not (after < len(stream) and stream[after].text == "," and parts[0] != "INSERT"):
            return at
        at = after + 1


def _dotted_name(stream: list[Token], at: int, lexis: Lexis) -> tuple[str, int]:
    """The name that begins at `at`, or '', and the position after it."""
    parts: list[str] = []
    while at < len(stream):
        token = stream[at]
        if parts and parts[-1] != "." and token.text != ".":
            break
        if token.kind is Kind.NAME:
            parts.append(lexer(lexis).quoted(token.text))
        elif token.kind is Kind.WORD and (parts or token.text not in _NO_TARGET):
            parts.append(token.text)
        elif parts and token.text == ".":
            parts.append(".")
        else:
            break
        at += 1
    return "".join(parts), at


def _alias_end(stream: list[Token], at: int) -> int:
    """The end of `AS alias` or `alias` at `at`, if a comma follows it; else `at`."""
    end = at + 1 if at < len(stream) and stream[at].text == "as" else at
    if end + 1 < len(stream) and stream[end].kind in (Kind.WORD, Kind.NAME):
        return end + 1 if stream[end + 1].text == "," else at
    return at


def bounded(parts: list[str]) -> str:
    """Joins as many of the words as fit, separated by blanks."""
    out = ""
    for word in parts:
        longer = f"{out} {word}" if out else word
        if len(longer) > LENGTH_MAX:
            return out or longer[:LENGTH_MAX]
        out = longer
    return out
