# SPDX-License-Identifier: Apache-2.0
"""The shape of a statement in any SQL dialect.

No SQL parser (sqlglot, sqlparse) is used. Both need a complete statement and build trees or token
lists of unbounded size. Neither handles a cut statement in time linear in its length. Neither could
guarantee that it takes the same bytes for literals as the kernel side's hash. Shapes are computed
from what the shared automaton emits (:mod:`qjoule.shapes.automaton`), which gives that guarantee.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from qjoule.shapes.automaton import DIGITS_OF_NAME, NAME_DIGITS_MAX
from qjoule.shapes.rules import Lexis, known_rules
from qjoule.shapes.safe_text import ended
from qjoule.shapes.tables import classes, tables
from qjoule.shapes.tokens import closed_early, known_part, lexer, strip_ellipsis

_LAST_DIGITS = re.compile(rb"[0-9]*\Z")


def symbols(text: bytes, lexis: Lexis, rules: int | None = None) -> list[tuple[int, int | None]]:
    """What the kernel side hashes: (emission, byte or None) per emitting byte, then the final one.

    Before a name's first byte beyond its digits, the digits: (-1, their bytes as one number). For
    tests that compare the two sides; :func:`reduce_statement` is the fast way.
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
    """The digits before a place that the kernel side still has."""
    match = _LAST_DIGITS.search(text[max(at - NAME_DIGITS_MAX, 0) : at])
    return match[0] if match else b""


def reduce_statement(text: bytes, lexis: Lexis, rules: int | None = None) -> tuple[str, bool]:
    """The statement without literals and comments, and whether it was cut: at 32,768
    characters, eight times what the kernel side reads.

    Characters below U+0100 are the statement's bytes, literals are the marks of
    :mod:`qjoule.shapes.automaton`; runs of whitespace and comments are one blank, or nothing at
    either end. `rules`: number of the session's rules (:mod:`qjoule.shapes.rules`); None: those of
    a server by default.
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
        truncated: the statement went on after them.
        lexis: the lexical rules.
        fold: what else the language takes for literals, on the reduced statement.
        rules: number of the session's rules; None: those of a server by default.
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
    known = known_part(reduced) if lexis is Lexis.BACKTICK else reduced
    return known, truncated or len(known) < len(reduced)
