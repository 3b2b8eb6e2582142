# SPDX-License-Identifier: Apache-2.0
"""Tokens of a reduced statement: words, names, values, operators."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto

from qjoule.shapes.automaton import NUMBER, PARAMETER, STRING
from qjoule.shapes.lexis import Lexis
from qjoule.shapes.reduction import reduce_statement
from qjoule.shapes.safe_text import ELLIPSIS, sanitise


class Kind(Enum):
    WORD = auto()  #: keyword or unquoted identifier, lower case
    NAME = auto()  #: quoted identifier, without its quotes
    OPEN_NAME = auto()  #: quoted identifier that the statement does not close
    VALUE = auto()  #: a literal or a placeholder
    SIGN = auto()  #: operator or punctuation
    HINT = auto()  #: /*+ ... */: the inner text
    OPEN_HINT = auto()


@dataclass(frozen=True, slots=True)
class Token:
    kind: Kind
    text: str
    spaced: bool = False  #: a blank stands before it in the statement


# Possessive only on single characters: on groups, Python before 3.11.5 matches wrongly
# (gh-106052). The groups here are followed by what may be empty, so they never backtrack.
_WORD = r"[A-Za-z0-9_$\x80-\xff\x00-\x08\x0e-\x1f\x7f]++"
_VALUE = rf"[{NUMBER}{STRING}{PARAMETER}]|\?(?:\+(?=[)\]]|\Z))?"
_SHARED_SIGNS = r"<=|>=|<>|!=|:=|->>|->|\|\||&&|<<|>>"

_BACKTICK = re.compile(
    rf"""(?P<space>[ ]++)
    |(?P<value>(?:[nNxXbB]|_[A-Za-z0-9]++){STRING}|{_VALUE})
    |(?P<name>`[^`]*+(?:``[^`]*+)*(?P<end>`)?)
    |(?P<hint>/\*\+[^*]*+(?:\*(?!/)[^*]*+)*(?:\*/)?)
    |(?P<version>/\*M?![0-9]*+)
    |(?P<word>{_WORD})
    |(?P<sign><=>|{_SHARED_SIGNS}|.)""",
    re.VERBOSE | re.DOTALL,
)
_STANDARD = re.compile(
    rf"""(?P<space>[ ]++)
    |(?P<value>(?:[eEbBxXnN]|[uU]&){STRING}|{_VALUE})
    |(?P<name>"[^"]*+(?:""[^"]*+)*(?P<end>")?)
    |(?P<word>{_WORD})
    |(?P<sign>::|{_SHARED_SIGNS}|=>|\#>>|\#>|@>|<@|@@|~\*|!~\*|!~|.)""",
    re.VERBOSE | re.DOTALL,
)

_ELLIPSIS_BYTES = ELLIPSIS.encode().decode("latin-1")


def strip_ellipsis(reduced: str) -> tuple[str, bool]:
    """Takes off the ellipsis that ends a shape of a truncated statement, so shapes are stable."""
    end, found = len(reduced), False
    while True:
        while end and reduced[end - 1] == " ":
            end -= 1
        if not reduced.endswith(_ELLIPSIS_BYTES, 0, end):
            return (reduced[:end] if found else reduced), found
        end, found = end - len(_ELLIPSIS_BYTES), True


def text_of(characters: str) -> str:
    """Safe text from characters that are bytes; what is not UTF-8 becomes U+FFFD."""
    if characters.isascii():
        return sanitise(characters)
    return sanitise(characters.encode("latin-1").decode("utf-8", "replace"))


def tokens(reduced: str, lexis: Lexis, *, in_hint: bool = False) -> Iterator[Token]:
    """Split a reduced statement; inside a hint, further hints are left out."""
    spaced, version_open, skip_to = False, False, 0
    pattern = _BACKTICK if lexis is Lexis.BACKTICK else _STANDARD
    for match in pattern.finditer(reduced):
        if match.start() < skip_to:
            continue
        group, found = match.lastgroup, match[0]
        if group == "space":
            spaced = True
            continue
        if group == "value":
            yield Token(Kind.VALUE, "?", spaced)
        elif group == "word":
            yield Token(Kind.WORD, _lower(text_of(found)), spaced)
        elif group == "name":
            yield _name(found, match["end"] is not None, spaced)
        elif group == "hint":
            if not in_hint:
                closed = len(found) > 4 and found.endswith("*/")
                inner = found[3:-2] if closed else found[3:]
                yield Token(Kind.HINT if closed else Kind.OPEN_HINT, inner, spaced)
        elif group == "version":
            version_open = True
            yield Token(Kind.SIGN, found, spaced)
        elif version_open and found == "*" and reduced.startswith("/", match.end()):
            version_open, skip_to = False, match.end() + 1
            yield Token(Kind.SIGN, "*/", spaced)
        else:
            yield Token(Kind.SIGN, found, spaced)
        spaced = False


def hint_tokens(inner: str) -> Iterator[Token]:
    """Tokens of a hint's inner text, its literals taken out."""
    reduced, _ = reduce_statement(inner.encode("latin-1"), Lexis.BACKTICK)
    return tokens(reduced, Lexis.BACKTICK, in_hint=True)


_UPPER_TO_LOWER = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}


def _lower(text: str) -> str:
    """Lower case of ASCII only: case folding of the rest differs between servers."""
    return text.translate(_UPPER_TO_LOWER)


def _name(found: str, closed: bool, spaced: bool) -> Token:
    quote = found[0]
    if not closed:
        return Token(Kind.OPEN_NAME, quote + text_of(found[1:]), spaced)
    return Token(Kind.NAME, text_of(found[1:-1]).replace(quote * 2, quote), spaced)
