# SPDX-License-Identifier: Apache-2.0
"""Quoted text in the automaton: where it ends, by every reading that the session's settings allow.

A setting that is not known has several readings: a backslash escapes or does not, a byte is a
letter or the first of two. The state follows all of them at once. Where they disagree on whether a
quote ends the text, the rest of the statement is swallowed: no reading of it may show a literal.
"""

from __future__ import annotations

from qjoule.shapes.automaton import DIGITS, SWALLOW, UNSURE, WORD, C, Inside, Mode, Move, State
from qjoule.shapes.rules import Lexis

#: By mode of a quoted text: the mode after its quote.
STRINGS = {
    Mode.SINGLE: Mode.SINGLE_END,
    Mode.DOUBLE: Mode.DOUBLE_END,
    Mode.EITHER: Mode.EITHER_END,
    Mode.ESCAPE: Mode.ESCAPE_END,
    Mode.BITS: Mode.BITS_END,
}
NAMES = {Mode.NAME: Mode.NAME_END, Mode.DOUBLE_NAME: Mode.DOUBLE_NAME_END}
LEADS = {C.LEAD: Inside.LEAD, C.LEAD_MAYBE: Inside.LEAD_OR_PLAIN}
#: In words.
AFTER_LETTER = {**LEADS, C.HIGH_MAYBE: Inside.MAYBE}
_QUOTES = {
    Mode.SINGLE: {C.SINGLE},
    Mode.ESCAPE: {C.SINGLE},
    Mode.BITS: {C.SINGLE},
    Mode.DOUBLE: {C.DOUBLE},
    Mode.EITHER: {C.DOUBLE_MAYBE},
    Mode.DOUBLE_NAME: {C.DOUBLE_NAME},
}
_BACKSLASHES = {C.BACKSLASH, C.BACKSLASH_ALWAYS, C.BACKSLASH_MAYBE}
#: What the second byte of a character may be.
TRAILS = {
    *(C.TRAIL, C.AT, C.BACKTICK, *_BACKSLASHES),
    *(WORD - DIGITS - {C.DOLLAR}),
}


def quotes_of(lexis: Lexis, mode: Mode) -> set[C]:
    """The bytes that end a quoted text, and stand for themselves in it if doubled."""
    if mode is Mode.NAME:
        return {C.BACKTICK if lexis is Lexis.BACKTICK else C.DOUBLE}
    return _QUOTES[mode]


def quoted(lexis: Lexis, state: State, c: C) -> Move:
    """What a byte does within a quoted text: strings are swallowed, names are emitted."""
    mode, inside = state.mode, state.inside
    emitted = mode in NAMES
    if mode is Mode.BITS:
        return _bits(lexis, c)
    if c in quotes_of(lexis, mode):
        if c is C.BACKTICK and inside is not Inside.PLAIN:
            # A backtick may be the second byte of a character, other quotes may not. It is doubled,
            # like one that stands for itself.
            certain = inside is Inside.LEAD
            return Move("`", True, State(mode)) if certain else Move(UNSURE, False, SWALLOW)
        if inside is Inside.ESCAPED:
            return Move("", emitted, State(mode))
        if inside in (Inside.ESCAPED_OR_PLAIN, Inside.EITHER):
            return Move(UNSURE, False, SWALLOW)
        return Move("", emitted, State({**STRINGS, **NAMES}[mode]))
    return Move("", emitted, State(mode, inside=_inside(lexis, mode, inside, c)))


def _bits(lexis: Lexis, c: C) -> Move:
    """A string that has no escapes. Where others have them, a backslash in it is a mistake, and
    what the client meant by it is not known.
    """
    if c is C.SINGLE:
        return Move("", False, State(Mode.BITS_END))
    escapes = c in _BACKSLASHES and not (lexis is Lexis.STANDARD and c is C.BACKSLASH)
    return Move(UNSURE, False, SWALLOW) if escapes else Move("", False, State(Mode.BITS))


def _escapes(lexis: Lexis, mode: Mode, c: C) -> Inside:
    """Where a backslash leaves off that is not itself escaped."""
    if mode in NAMES or (lexis is Lexis.STANDARD and mode is Mode.SINGLE and c is C.BACKSLASH):
        return Inside.PLAIN
    if mode is Mode.EITHER or (c is C.BACKSLASH_MAYBE and mode is not Mode.ESCAPE):
        return Inside.ESCAPED_OR_PLAIN
    return Inside.ESCAPED


def _inside(lexis: Lexis, mode: Mode, inside: Inside, c: C) -> Inside:
    """Where a byte leaves off that is no quote of this text."""
    if inside in (Inside.ESCAPED, Inside.LEAD):
        return Inside.PLAIN
    if c not in _BACKSLASHES:
        return LEADS.get(c, Inside.PLAIN)
    if inside is Inside.ESCAPED_OR_PLAIN:
        return Inside.PLAIN
    plain = _escapes(lexis, mode, c)
    if plain is Inside.PLAIN or inside is Inside.PLAIN:
        return plain
    return Inside.EITHER
