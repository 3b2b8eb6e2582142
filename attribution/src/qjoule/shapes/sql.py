# SPDX-License-Identifier: Apache-2.0
"""The shape of a statement in any SQL dialect, and its tokens: words, names, values, operators.

No SQL parser (sqlglot, sqlparse) is used. Both need a complete statement and build trees or token
lists of unbounded size. Neither handles a cut statement in time linear in its length. Neither could
guarantee that it takes the same bytes for literals as the kernel side's hash. Shapes are computed
from the output of the shared automaton (:mod:`qjoule.shapes.automaton`), which guarantees that.

The lexer that reduces a statement is the automaton in C (attribution/shapes). Its tables come from
`transitions`, like the kernel side's.
"""

from __future__ import annotations

import os
import re
from array import array
from collections.abc import Callable
from enum import IntEnum, auto
from functools import cache
from typing import NamedTuple

from qjoule.shapes._shapes import Lexer
from qjoule.shapes.automaton import (
    BEGIN,
    DIGITS_OF_NAME,
    NAME_DIGITS_MAX,
    SPACE,
    START,
    STRING,
    UNSURE,
    Mode,
    State,
)
from qjoule.shapes.reserved_words import RESERVED
from qjoule.shapes.rules import COUNTS, Lexis, known_rules
from qjoule.shapes.safe_text import ELLIPSIS, ended, text_of
from qjoule.shapes.tables import STATES_MAX, classes, tables, transition_entries

#: `enum state_mode` of attribution/shapes/lexer.h; all other modes: 0.
_MODES = {Mode.VERSION: 1, Mode.STAR_SLASH: 2, Mode.RAW: 3, Mode.TAG: 4}
#: `enum resumed`. States that a family does not have are never resumed.
_RESUMED = (
    START,
    SPACE,
    State(Mode.BLOCK, depth=1),
    State(Mode.STAR),
    State(Mode.BLOCK_OPEN, "/*"),
)
_LAST_DIGITS = re.compile(rb"[0-9]*\Z")


def lexer(lexis: Lexis, rules: int | None = None) -> Lexer:
    """The lexer for a session's settings; None: a server's default."""
    return _lexer(lexis, known_rules(lexis, rules))


@cache
def _lexer(lexis: Lexis, rules: int) -> Lexer:
    table = tables(lexis)
    default = COUNTS[Lexis.BACKTICK].default
    within_hints = lexis is Lexis.BACKTICK and rules == default
    return Lexer(
        backtick=lexis is Lexis.BACKTICK,
        moves=array("H", transition_entries(lexis)).tobytes(),
        columns=classes(lexis, rules),
        finals=bytes(table.final).ljust(STATES_MAX, b"\0"),
        modes=bytes(_MODES.get(state.mode, 0) for state in table.states).ljust(STATES_MAX, b"\0"),
        resumed=bytes(
            table.states.index(state if state in table.states else BEGIN) for state in _RESUMED
        ),
        emissions=table.emissions,
        safe_text=text_of,
        reserved=" ".join(sorted(word.lower() for word in RESERVED)),
        seed=int.from_bytes(os.urandom(8), "little"),
        hints=None if within_hints else _lexer(Lexis.BACKTICK, default),
    )


class Kind(IntEnum):
    """`enum kind` of attribution/shapes/statement.h."""

    WORD = auto()  #: keyword or unquoted identifier, lower case
    NAME = auto()  #: quoted identifier, without its quotes
    OPEN_NAME = auto()  #: quoted identifier without its closing quote
    VALUE = auto()  #: a literal or a placeholder
    SIGN = auto()  #: operator or punctuation
    HINT = auto()  #: /*+ ... */: the inner text
    OPEN_HINT = auto()


class Token(NamedTuple):
    kind: Kind
    text: str
    spaced: bool = False  #: true if a blank precedes the token


#: A quoted name, or a separator of statements.
_SEMICOLON = re.compile(r"`[^`]*+(?:``[^`]*+)*`?|\"[^\"]*+(?:\"\"[^\"]*+)*\"?|;")
_CHANGES = re.compile(
    r"[ ]*+(?:/\*M?![0-9]*+[ ]*+)*(?:execute\b|set\b.*(?:sql_mode|names|char))",
    re.IGNORECASE | re.DOTALL,
)

_ELLIPSIS_BYTES = ELLIPSIS.encode().decode("latin-1")


def strip_ellipsis(reduced: str) -> tuple[str, bool]:
    """Removes the ellipsis at the end of a truncated statement's shape, so that shapes are stable.
    Returns whether there was one."""
    end, cut = len(reduced), False
    while True:
        while end and reduced[end - 1] == " ":
            end -= 1
        if not reduced.endswith(_ELLIPSIS_BYTES, 0, end):
            return (reduced[:end] if cut else reduced), cut
        end, cut = end - len(_ELLIPSIS_BYTES), True


def closed_early(reduced: str, truncated: bool) -> tuple[str, bool]:
    """Cuts a statement at its first string if it is truncated or has bytes that may be literals.

    How much follows the string before the cut depends on the lengths of strings, and a statement
    must not have a shape per length. Returns the statement, and whether it is truncated.
    """
    unsure = reduced.find(UNSURE)
    if unsure >= 0:
        reduced, truncated = reduced[:unsure], True
    if truncated and STRING in reduced:
        reduced = reduced[: reduced.index(STRING) + 1]
    return reduced, truncated


def known_part(reduced: str) -> str:
    """Cuts a statement after a part that changes the session's settings: the server reads the rest
    of the text by the new settings, which are unknown.

    An EXECUTE may run any statement. A CALL changes nothing, since the server resets what a
    procedure sets.
    """
    if ";" not in reduced:
        return reduced
    begins = 0
    for sign in _SEMICOLON.finditer(reduced):
        if sign[0] == ";":
            if _CHANGES.match(reduced, begins, sign.start()):
                return reduced[: sign.end()]
            begins = sign.end()
    return reduced


def tokens(reduced: str, lexis: Lexis) -> list[Token]:
    """Splits a reduced statement into tokens."""
    pieces = lexer(lexis).tokens(reduced)
    return [Token(Kind(kind), text, spaced) for kind, text, spaced in pieces]


def symbols(text: bytes, lexis: Lexis, rules: int | None = None) -> list[tuple[int, int | None]]:
    """The symbols that the kernel side hashes: (emission, byte or None) per emitting byte, then the
    final one.

    If a name's first byte follows its digits, (-1, the digits' bytes as one number) precedes it.
    For tests that compare the two sides; :func:`reduce_statement` is the fast way.
    """
    table, column = tables(lexis), classes(lexis, known_rules(lexis, rules))
    state, out = 0, list[tuple[int, int | None]]()
    for at, byte in enumerate(text):
        emission, emits_byte, state = table.rows[state][column[byte]]
        if table.emissions[emission] == DIGITS_OF_NAME:
            out.append((-1, int.from_bytes(_digits_before(text, at))))
        if emission or emits_byte:
            out.append((emission, byte if emits_byte else None))
    return [*out, (table.final[state], None)]


def _digits_before(text: bytes, at: int) -> bytes:
    """The digits before a position that the kernel side still has."""
    match = _LAST_DIGITS.search(text[max(at - NAME_DIGITS_MAX, 0) : at])
    return match[0] if match else b""


def reduce_statement(text: bytes, lexis: Lexis, rules: int | None = None) -> tuple[str, bool]:
    """The statement without literals and comments, and whether it was cut at 32,768 characters,
    eight times what the kernel side reads.

    Characters below U+0100 are the statement's bytes, literals are the marks of
    :mod:`qjoule.shapes.automaton`; runs of whitespace and comments become one blank, and are
    removed at both ends. `rules`: number of the session's rules (:mod:`qjoule.shapes.rules`);
    None: a server's default.
    """
    return lexer(lexis, rules).reduce(text)


def sql_shape(
    text: bytes,
    truncated: bool,
    lexis: Lexis,
    fold: Callable[[str], str] = str,
    rules: int | None = None,
) -> tuple[str, bool]:
    """The whole shape of a statement, and whether it is truncated.

    Args:
        text: any bytes.
        truncated: true if the statement continued after `text`.
        lexis: the lexical rules.
        fold: replaces further literals of the language in the reduced statement.
        rules: number of the session's rules; None: a server's default.
    """
    reduced, truncated = reduced_sql(text, truncated, lexis, fold, rules)
    return ended(lexer(lexis).shape(reduced, truncated), truncated), truncated


def reduced_sql(
    text: bytes,
    truncated: bool,
    lexis: Lexis,
    fold: Callable[[str], str] = str,
    rules: int | None = None,
) -> tuple[str, bool]:
    """The statement without literals and comments, and whether it is truncated: see `sql_shape`."""
    reduced, cut = reduce_statement(text, lexis, rules)
    reduced, stripped = strip_ellipsis(fold(reduced))
    reduced, truncated = closed_early(reduced, truncated or cut or stripped)
    certain = known_part(reduced) if lexis is Lexis.BACKTICK else reduced
    return certain, truncated or len(certain) < len(reduced)
