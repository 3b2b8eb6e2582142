# SPDX-License-Identifier: Apache-2.0
"""Runs a statement through the lexical automaton and keeps the structure.

The kernel side hashes the emitted text; shapes are computed from the same text, so equal hash
implies equal shape. What the automaton can only emit raw (see :mod:`qjoule.shapes.automaton`) is
resolved exactly (attribution/shapes/reduction.c), since all raw bytes are present.
"""

from __future__ import annotations

import re

from qjoule.shapes.automaton import DIGITS_OF_NAME, NAME_DIGITS_MAX
from qjoule.shapes.lexers import lexer
from qjoule.shapes.lexis import Lexis
from qjoule.shapes.rules import known_rules
from qjoule.shapes.tables import classes, tables

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
    found = _LAST_DIGITS.search(text[max(at - NAME_DIGITS_MAX, 0) : at])
    return found[0] if found else b""


def reduce_statement(text: bytes, lexis: Lexis, rules: int | None = None) -> tuple[str, bool]:
    """The statement without literals and comments, and whether it was cut: at 32,768
    characters, eight times what the kernel side reads.

    Characters below U+0100 are the statement's bytes, literals are the marks of
    :mod:`qjoule.shapes.automaton`; runs of whitespace and comments are one blank, or nothing at
    either end. `rules`: number of the session's rules (:mod:`qjoule.shapes.rules`); None: those of
    a server by default.
    """
    return lexer(lexis, rules).reduce(text)
