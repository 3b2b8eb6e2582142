# SPDX-License-Identifier: Apache-2.0
"""Tokens of a reduced statement: words, names, values, operators."""

from __future__ import annotations

import re

from qjoule.shapes.automaton import DIGITS_OF_NAME, NUMBER, PARAMETER, SECOND, STRING
from qjoule.shapes.lexis import Lexis
from qjoule.shapes.safe_text import text_of
from qjoule.shapes.tokens import Kind, Token
from shape_referee.reduction import reduce_statement

# Possessive only on single characters: on groups, Python before 3.11.5 matches wrongly
# (gh-106052). The groups here are followed by what may be empty, so they never backtrack.
_WORD = r"[A-Za-z0-9_$\x80-\xff\x00-\x08\x0e-\x1f\x7f]++"
#: Of two bytes a character, the second may be any sign.
_WIDE_WORD = rf"{_WORD}(?:{SECOND}.(?:{_WORD})?)*"
_VALUE = rf"[{NUMBER}{STRING}{PARAMETER}]|\?(?:\+(?=[)\]]|\Z))?"
_SHARED_SIGNS = r"<=|>=|<>|!=|:=|->>|->|\|\||&&|<<|>>"
_NAME_IN = r"{0}[^{0}]*+(?:{0}{0}[^{0}]*+)*(?:{0})?"

_BACKTICK = re.compile(
    rf"""(?P<space>[ ]++)
    |(?P<numbered>{NUMBER}{DIGITS_OF_NAME}{_WIDE_WORD})
    |(?P<value>(?:[nNxXbB]|_[A-Za-z0-9]++){STRING}|{_VALUE})
    |(?P<name>{_NAME_IN.format("`")}|{_NAME_IN.format('"')})
    |(?P<hint>/\*\+[^*]*+(?:\*(?!/)[^*]*+)*(?:\*/)?)
    |(?P<version>/\*M?![0-9]*+)
    |(?P<word>{_WIDE_WORD})
    |(?P<sign><=>|{_SHARED_SIGNS}|.)""",
    re.VERBOSE | re.DOTALL,
)
_STANDARD = re.compile(
    rf"""(?P<space>[ ]++)
    |(?P<value>(?:[eEbBxXnN]|[uU]&){STRING}|{_VALUE})
    |(?P<name>{_NAME_IN.format('"')})
    |(?P<word>{_WORD})
    |(?P<sign>::|{_SHARED_SIGNS}|=>|\#>>|\#>|@>|<@|@@|~\*|!~\*|!~|.)""",
    re.VERBOSE | re.DOTALL,
)


def tokens(reduced: str, lexis: Lexis, *, in_hint: bool = False) -> list[Token]:
    """Split a reduced statement; inside a hint, further hints are left out."""
    out: list[Token] = []
    spaced, version_open, skip_to = False, False, 0
    pattern = _BACKTICK if lexis is Lexis.BACKTICK else _STANDARD
    for match in pattern.finditer(reduced):
        if match.start() < skip_to:
            continue
        group, found = match.lastgroup, match[0]
        if group == "space":
            spaced = True
            continue
        if group == "word":
            out.append(_word(found, spaced))
        elif group == "numbered":
            out.append(_word(found[2:], spaced))
        elif group == "value":
            out.append(Token(Kind.VALUE, "?", spaced))
        elif group == "name":
            out.append(_name(found, spaced))
        elif group == "hint":
            if not in_hint:
                closed = len(found) > 4 and found.endswith("*/")
                inner = found[3:-2] if closed else found[3:]
                out.append(Token(Kind.HINT if closed else Kind.OPEN_HINT, inner, spaced))
        elif group == "version":
            version_open = True
            out.append(Token(Kind.SIGN, found, spaced))
        elif version_open and found == "*" and reduced.startswith("/", match.end()):
            version_open, skip_to = False, match.end() + 1
            out.append(Token(Kind.SIGN, "*/", spaced))
        else:
            out.append(Token(Kind.SIGN, found, spaced))
        spaced = False
    return out


def hint_tokens(inner: str) -> list[Token]:
    """Tokens of a hint's inner text, its literals taken out."""
    reduced, _ = reduce_statement(inner.encode("latin-1"), Lexis.BACKTICK)
    return tokens(reduced, Lexis.BACKTICK, in_hint=True)


_UPPER_TO_LOWER = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}


def _word(found: str, spaced: bool) -> Token:
    """Lower case of ASCII only: case folding of the rest differs between servers."""
    return Token(Kind.WORD, text_of(found.replace(SECOND, "")).translate(_UPPER_TO_LOWER), spaced)


def _name(found: str, spaced: bool) -> Token:
    quote = found[0]
    inner = found[1:].replace(quote * 2, "")
    if not inner.endswith(quote):
        return Token(Kind.OPEN_NAME, quote + text_of(found[1:]), spaced)
    return Token(Kind.NAME, text_of(found[1:-1]).replace(quote * 2, quote), spaced)
