# SPDX-License-Identifier: Apache-2.0
"""Computes MySQL's DIGEST of a statement, as in performance_schema's tables and in its logs.

It is the SHA-256 of the numbers of the statement's tokens and of its identifiers, after values and
lists of values have become one token (Reference Manual, "Performance Schema Statement Digests and
Sampling"). The numbers are the server's own, see `vocabulary`. If the digest depends on the session
or the grammar and not only on the text, the statement has no digest here, rather than one
that may be wrong. ANSI_QUOTES and NO_BACKSLASH_ESCAPES were applied when literals were removed.
IGNORE_SPACE and HIGH_NOT_PRECEDENCE change tokens: if a session has one of them, or its modes are
unknown, statements that they could change have no digest.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterator, Mapping

from qjoule.lazy_import import hashlib
from qjoule.servers.mysql.vocabulary import (
    BEGINS_EXPRESSION,
    CHARSET,
    IN_VALUES,
    LONG_ROW,
    LONG_ROWS,
    NAME,
    NUMBERED_COLUMN,
    ROW,
    ROWS,
    VALUE,
    VALUES,
    WITH_ROLLUP,
)
from qjoule.shapes.automaton import DIGITS_OF_NAME, NUMBER, PARAMETER, STRING

#: Default `max_digest_length`; a longer digest covers only the statement's start.
MAX_BYTES = 1024
_TOKEN_BYTES = 2
_IDENTIFIER_BYTES_MAX = 0xFFFF
_USER_NAME = "".join(sorted(set(string.ascii_letters + string.digits + "._$")))
_LETTER = r"[A-Za-z0-9_$\x80-\xff]"
_QUOTED = "{0}[^{0}]*+(?:{0}{0}[^{0}]*+)*{0}(?!{0})"
_LEXER = re.compile(
    rf"""(?P<space>[ ]++)
    |(?P<value>[nNxXbB]{STRING}|[{NUMBER}{STRING}{PARAMETER}]|\?)
    |(?P<charset>_[A-Za-z0-9]++(?=[ ]?[{STRING}{NUMBER}]))
    |(?P<quoted>{_QUOTED.format("`")}|{_QUOTED.format('"')})
    |(?P<hidden>/\*|\|\|)
    |(?P<variable>@@)
    |(?P<user>@[{_USER_NAME}]*+)
    |(?P<word>{_LETTER}++)
    |(?P<sign><=>|->>|->|<=|>=|<>|!=|:=|<<|>>|&&|.)""",
    re.VERBOSE | re.DOTALL,
)
_STICKS = re.compile(rf"{_LETTER}|[{NUMBER}{DIGITS_OF_NAME}]")
_SPACED = re.compile(rf"({_LETTER}++)[ ]++\(")
_NOT = re.compile(rf"(?<![`\".@A-Za-z0-9_$\x80-\xff])NOT(?!{_LETTER})", re.IGNORECASE)
_DOTTED = re.compile(rf"\.{_LETTER}")
_DEFINITIONS = frozenset(("CREATE", "ALTER"))
#: Tokens that follow ORDER BY or GROUP BY and its list.
_ENDS_LIST = frozenset(
    ("HAVING", "LIMIT", "WINDOW", "ROWS", "RANGE", "FOR", "INTO", "UNION", "SEPARATOR", "ON")
)
#: Tokens before a NULL that is no value: IS NULL, IS NOT NULL.
_NULL_AFTER = frozenset(("IS", "NOT"))


class NoDigest(Exception):
    """The digest cannot be computed; the text gives the reason."""


def digest(reduced: str, vocabulary: Mapping[str, int], *, plain_modes: bool = True) -> str:
    """Returns the DIGEST of a reduced statement: 64 hex digits. `plain_modes`: its session is known
    to have neither IGNORE_SPACE nor HIGH_NOT_PRECEDENCE.

    Raises:
        NoDigest: the text does not determine it.
    """
    if not plain_modes:
        _check_modes(reduced, vocabulary)
    tokens = _Tokens(vocabulary)
    for text, name in _lexed(reduced, vocabulary):
        tokens.add(text, name)
    return hashlib.sha256(tokens.content()).hexdigest()


def _check_modes(reduced: str, vocabulary: Mapping[str, int]) -> None:
    """Refuses `COUNT (`, which IGNORE_SPACE makes the function, and `NOT`, which becomes another
    token with HIGH_NOT_PRECEDENCE (find_keyword(), sql/sql_lex.cc).
    """
    if _NOT.search(reduced):
        raise NoDigest("sql_mode decides what NOT is")
    for match in _SPACED.finditer(reduced):
        if match[1].upper() + "(" in vocabulary:
            raise NoDigest("sql_mode decides what a word in front of a blank and ( is")


def _lexed(reduced: str, vocabulary: Mapping[str, int]) -> Iterator[tuple[str, str | None]]:
    """Yields tokens as the vocabulary writes them, and the text of identifiers."""
    columns = _NumberedColumns(NUMBERED_COLUMN in vocabulary)
    before, waiting, defines = "", "", False
    for match in _LEXER.finditer(reduced, 0, len(reduced.rstrip("; "))):
        kind, text = str(match.lastgroup), match[0]
        if kind == "space":
            continue
        if kind == "hidden" or text == ";":
            raise NoDigest(_why_hidden(reduced, match.start()))
        if kind in ("variable", "user"):
            for sign in text[: len("@@")].rstrip(_USER_NAME):
                yield sign, None
            before = text
            if kind == "variable" or len(text) == 1:
                continue
        token, name = _token(kind, reduced, match, vocabulary, before)
        if waiting:
            if token == "ROLLUP":
                token = WITH_ROLLUP
            else:
                yield waiting, None
            waiting = ""
        if token == "WITH":
            before = waiting = token
            continue
        defines |= not before and token in _DEFINITIONS
        if token == "NULL":
            token = _null(before, defines)
        columns.check(token, before, is_number=text == NUMBER)
        yield token, name
        before = token if name is None else NAME
    if waiting:
        yield waiting, None


def _token(
    kind: str, reduced: str, match: re.Match[str], vocabulary: Mapping[str, int], before: str
) -> tuple[str, str | None]:
    """Returns a token as the vocabulary writes it, and its name if it is an identifier."""
    if kind in ("value", "user"):
        if match[0] == NUMBER and _STICKS.match(reduced, match.end()):
            raise NoDigest("a name begins with a digit")
        return VALUE, None
    if kind == "charset":
        return CHARSET, None
    if kind == "quoted":
        quote = match[0][0]
        return NAME, match[0][1:-1].replace(quote * 2, quote)
    if kind == "word":
        return _word(reduced, match, vocabulary, before)
    return match[0], None


class _NumberedColumns:
    """Refuses `ORDER BY 1` for versions that keep that number in the digest."""

    def __init__(self, are_kept: bool) -> None:
        self._are_kept = are_kept
        self._depth = 0
        self._lists: set[int] = set()  #: depths of the open lists

    def check(self, token: str, before: str, *, is_number: bool) -> None:
        """Checks a token; `before`: the token before it."""
        if token == "(":
            self._depth += 1
        elif token == ")":
            self._depth -= 1
            self._lists.discard(self._depth + 1)
        elif token == "BY":
            self._lists.add(self._depth)
        elif token in _ENDS_LIST:
            self._lists.discard(self._depth)
        elif is_number and self._are_kept and before in ("BY", ",") and self._depth in self._lists:
            raise NoDigest("it keeps the number of a column in ORDER BY or GROUP BY")


def _word(
    reduced: str, match: re.Match[str], vocabulary: Mapping[str, int], before: str
) -> tuple[str, str | None]:
    """A word is an identifier after a dot, or in front of a dot and a letter."""
    text, end = match[0], match.end()
    upper = text.upper()
    if before != "@@":
        if before == "." or _DOTTED.match(reduced, end):
            return NAME, text
        if reduced.startswith("(", end) and upper + "(" in vocabulary:
            return upper + "(", None
    if upper in vocabulary and len(text) > 1:
        return upper, None
    return NAME, text


def _null(before: str, defines: bool) -> str:
    if before in _NULL_AFTER:
        return "NULL"
    if defines:
        raise NoDigest("the grammar decides what NULL is in a definition")
    return VALUE


def _why_hidden(reduced: str, at: int) -> str:
    if reduced[at] == ";":
        return "several statements in one"
    if reduced.startswith("||", at):
        return "sql_mode decides what || is"
    if reduced.startswith("/*+", at):
        return "it has optimizer hints"
    return "it has code in a comment, which the version decides on"


class _Tokens:
    """The token array: each new token is reduced with those before it (sql/sql_digest.cc)."""

    def __init__(self, vocabulary: Mapping[str, int]) -> None:
        self._vocabulary = vocabulary
        self._bytes = 0
        self._out: list[tuple[str, bytes | None]] = []

    def add(self, text: str, name: str | None) -> None:
        if name is not None:
            identifier = name.encode("latin-1", "replace")
            if len(identifier) > _IDENTIFIER_BYTES_MAX:
                raise NoDigest("it has a long identifier")
            self._push(NAME, identifier)
        elif text == VALUE:
            self._value()
        elif text == ")":
            self._closed()
        else:
            self._push(text)

    def content(self) -> bytes:
        """Returns the bytes that are hashed."""
        parts = []
        for text, identifier in self._out:
            number = self._number(text)
            parts.append((number & 0xFFFF).to_bytes(_TOKEN_BYTES, "little"))
            if identifier is not None:
                parts.append(len(identifier).to_bytes(_TOKEN_BYTES, "little") + identifier)
        return b"".join(parts)

    def _number(self, text: str) -> int:
        try:
            return self._vocabulary[text]
        except KeyError:
            raise NoDigest(f"no token for {text[:16]!r}") from None

    def _last(self, back: int) -> str:
        """Returns the token `back` tokens ago; "": none, or one of them is an identifier."""
        if back > len(self._out):
            return ""
        if any(identifier is not None for _, identifier in self._out[-back:]):
            return ""
        return self._out[-back][0]

    def _value(self) -> None:
        while self._last(1) in ("-", "+") and self._begins_expression():
            self._pop(1)
        if self._last(1) == "," and self._last(2) in (VALUE, VALUES):
            self._pop(2)
            self._push(VALUES)
        else:
            self._push(VALUE)

    def _begins_expression(self) -> bool:
        before = self._last(2)
        return bool(before) and bool(self._number(before) & BEGINS_EXPRESSION)

    def _closed(self) -> None:
        if self._last(2) != "(" or self._last(1) not in (VALUE, VALUES):
            self._push(")")
            return
        one, many = (ROW, ROWS) if self._last(1) == VALUE else (LONG_ROW, LONG_ROWS)
        self._pop(2)
        if self._last(1) == "," and self._last(2) in (one, many):
            self._pop(2)
            self._push(many)
        elif self._last(1) == "IN" and IN_VALUES in self._vocabulary:
            self._pop(1)
            self._push(IN_VALUES)
        else:
            self._push(one)

    def _pop(self, count: int) -> None:
        del self._out[-count:]
        self._bytes -= count * _TOKEN_BYTES

    def _push(self, text: str, identifier: bytes | None = None) -> None:
        self._bytes += _TOKEN_BYTES + (0 if identifier is None else _TOKEN_BYTES + len(identifier))
        if self._bytes > MAX_BYTES:
            raise NoDigest("it is longer than max_digest_length's default")
        self._out.append((text, identifier))
