# SPDX-License-Identifier: Apache-2.0
"""Session settings that decide what a statement's bytes mean, and the end of quoted text under all
possible readings.

The kernel side tracks the settings where it sees them, and stores their number beside each text.
Zero: none is known, and a text is read so that no possible reading shows a literal.

An unknown setting has several readings: a backslash escapes or does not, a byte is a letter or the
first of two. The automaton's state covers all of them at once. If they disagree on whether a quote
ends the text, the rest of the statement is swallowed: under no reading may it show a literal.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum

from qjoule.shapes.automaton import (
    DIGITS,
    SWALLOW,
    UNSURE,
    WORD,
    C,
    Inside,
    Mode,
    Move,
    State,
    class_of,
)

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
#: The position after a byte of a word.
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
#: Possible second bytes of a character.
TRAILS = {
    *(C.TRAIL, C.AT, C.BACKTICK, *_BACKSLASHES),
    *(WORD - DIGITS - {C.DOLLAR}),
}


class Lexis(Enum):
    """Where names, strings, numbers and comments begin and end. The value selects the half of the
    kernel's transition table.

    ``BACKTICK``: names stand in backticks, strings in either quote with backslash escapes; ``#``
    begins a comment; ``/*! … */`` is code and ``/*+ … */`` a hint. ``STANDARD``: names stand in
    double quotes, strings in single quotes or between ``$tag$``; a backslash escapes in ``E'…'``
    alone; comments nest.
    """

    BACKTICK = 0
    STANDARD = 1


#: BACKTICK, added to the number: no other setting of the session changes how words are read
#: (QJ_SHAPE_PLAIN_MODES). Shapes do not depend on it, but ids do.
PLAIN_MODES = 0x40


class Quoting(IntEnum):
    """BACKTICK: whether a backslash escapes, and what double quotes enclose."""

    UNKNOWN = 0
    STRINGS = 1  #: the default: backslashes escape, double quotes enclose strings
    NAMES = 2  #: double quotes enclose names
    ESCAPES = 3  #: backslashes escape, double quotes are unknown
    PLAIN = 4  #: backslashes do not escape; double quotes enclose strings, or are unknown
    PLAIN_NAMES = 5


class Charset(IntEnum):
    """BACKTICK: which bytes begin a character whose second byte may be a quote or a backslash, and
    which bytes are not letters."""

    UNKNOWN = 0
    SAFE = 1  #: no byte begins such a character, and all from 0x80 on belong to letters
    SJIS = 2
    GBK = 3
    BIG5 = 4
    LATIN1 = 5
    CYRILLIC = 6  #: cp1251, koi8r, koi8u
    EIGHT_BITS = 7  #: another charset with a byte per character


class Backslash(IntEnum):
    """STANDARD: whether a backslash escapes in strings without E."""

    UNKNOWN = 0
    ESCAPES = 1
    PLAIN = 2  #: the default


#: STANDARD: the number of the rules of CQL, which no setting changes.
SLASHED_RULES = 2 * len(Backslash)


@dataclass(frozen=True)
class Count:
    """The number of a family's rules, and the default of servers."""

    rules: int
    default: int


def backtick_rules(quoting: Quoting, charset: Charset) -> int:
    """Encodes the settings as the number of their rules."""
    return quoting * len(Charset) + charset


def backtick_settings(rules: int) -> tuple[Quoting, Charset]:
    """Decodes the number of rules into settings."""
    quoting, charset = divmod(without_plain_modes(rules), len(Charset))
    return Quoting(quoting), Charset(charset)


def without_plain_modes(rules: int) -> int:
    """Removes `PLAIN_MODES` from the number."""
    return rules & ~PLAIN_MODES


def standard_rules(backslash: Backslash, *, safe: bool) -> int:
    """Encodes the settings; `safe`: no second byte of a character is a backslash."""
    return backslash * 2 + safe


COUNTS = {
    Lexis.BACKTICK: Count(
        len(Quoting) * len(Charset), backtick_rules(Quoting.STRINGS, Charset.SAFE)
    ),
    Lexis.STANDARD: Count(SLASHED_RULES + 1, standard_rules(Backslash.PLAIN, safe=True)),
}


def known_rules(lexis: Lexis, rules: int | None) -> int:
    """The number of the rules for a statement; None: a server's default."""
    return COUNTS[lexis].default if rules is None else without_plain_modes(rules)


_HIGH = range(0x80, 0x100)
#: First bytes of two: MySQL strings/ctype-sjis.c, ctype-gbk.c, ctype-gb18030.c, ctype-big5.c. Big5
#: does not define all of them; clients may use the undefined ones or not.
_LEADS = {
    Charset.SJIS: {*range(0x81, 0xA0), *range(0xE0, 0xFD)},
    Charset.GBK: set(range(0x81, 0xFF)),
    Charset.BIG5: set(range(0xA1, 0xFA)),
}
#: Bytes that are neither letter nor blank in MySQL's strings/ctype-latin1.c.
_LATIN1_SIGNS = {*range(0x80, 0x9E), *range(0xA1, 0xC0), 0xD7, 0xF7} - {0x83, 0x8A, 0x8C, 0x8E}
_LATIN1_SIGNS -= {0x9A, 0x9C}
_NO_BREAK_SPACE = 0xA0
_DELETE = 0x7F  #: not a control character in every charset
_SLASHED = {C.SLASH: C.SLASHES, C.DOLLAR: C.DOLLARS, C.E: C.E_ALONE}
#: TRAIL: a sign like any other.
_BACKSLASH = {
    Quoting.UNKNOWN: C.BACKSLASH_MAYBE,
    Quoting.PLAIN: C.TRAIL,
    Quoting.PLAIN_NAMES: C.TRAIL,
}
_DOUBLE = {
    Quoting.UNKNOWN: C.DOUBLE_MAYBE,
    Quoting.ESCAPES: C.DOUBLE_MAYBE,
    Quoting.NAMES: C.DOUBLE_NAME,
    Quoting.PLAIN_NAMES: C.DOUBLE_NAME,
}


def class_by_rules(lexis: Lexis, rules: int, byte: int) -> C:  # noqa: PLR0911
    """The class of a byte under the rules with this number."""
    cls = class_of(byte)
    if lexis is Lexis.STANDARD:
        if rules == SLASHED_RULES:
            return C.OTHER if byte in _HIGH else _SLASHED.get(cls, cls)
        backslash, safe = Backslash(rules // 2), rules % 2
        if cls is C.BACKSLASH:
            always, maybe = C.BACKSLASH_ALWAYS, C.BACKSLASH_MAYBE
            return {Backslash.ESCAPES: always, Backslash.UNKNOWN: maybe}.get(backslash, cls)
        return C.LEAD_MAYBE if byte in _HIGH and not safe else cls
    quoting, charset = backtick_settings(rules)
    if cls is C.BACKSLASH:
        return _BACKSLASH.get(quoting, cls)
    if cls is C.DOUBLE:
        return _DOUBLE.get(quoting, cls)
    if byte in _HIGH:
        return _high(charset, byte)
    several = (Charset.UNKNOWN, Charset.CYRILLIC, Charset.EIGHT_BITS)
    return C.HIGH_MAYBE if byte == _DELETE and charset in several else cls


def _high(charset: Charset, byte: int) -> C:  # noqa: PLR0911
    """The class of a byte from 0x80 on. As MariaDB 10.11 reads it after SET NAMES."""
    if charset is Charset.SAFE:
        return C.LETTER
    if charset is Charset.UNKNOWN:
        return C.LEAD_MAYBE
    if charset is Charset.LATIN1:
        if byte == _NO_BREAK_SPACE:
            return C.BLANK
        return C.OTHER if byte in _LATIN1_SIGNS else C.LETTER
    if charset is Charset.CYRILLIC:
        return C.LETTER if byte >= 0xC0 else C.HIGH_MAYBE
    if charset is Charset.EIGHT_BITS:
        return C.HIGH_MAYBE
    if byte in _LEADS[charset]:
        return C.LEAD
    return C.LEAD_MAYBE if charset is Charset.BIG5 else C.LETTER


def quotes_of(lexis: Lexis, mode: Mode) -> set[C]:
    """The bytes that end a quoted text; doubled, they stand for themselves."""
    if mode is Mode.NAME:
        return {C.BACKTICK if lexis is Lexis.BACKTICK else C.DOUBLE}
    return _QUOTES[mode]


def quoted(lexis: Lexis, state: State, c: C) -> Move:
    """The move for a byte within a quoted text: strings are swallowed, names are emitted."""
    mode, inside = state.mode, state.inside
    emitted = mode in NAMES
    if mode is Mode.BITS:
        return _bits(lexis, c)
    if c in quotes_of(lexis, mode):
        if c is C.BACKTICK and inside is not Inside.PLAIN:
            # A backtick may be the second byte of a character, other quotes may not. It is doubled
            # in the shape, like a backtick that stands for itself.
            certain = inside is Inside.LEAD
            return Move("`", True, State(mode)) if certain else Move(UNSURE, False, SWALLOW)
        if inside is Inside.ESCAPED:
            return Move("", emitted, State(mode))
        if inside in (Inside.ESCAPED_OR_PLAIN, Inside.EITHER):
            return Move(UNSURE, False, SWALLOW)
        return Move("", emitted, State({**STRINGS, **NAMES}[mode]))
    return Move("", emitted, State(mode, inside=_next_inside(lexis, mode, inside, c)))


def _bits(lexis: Lexis, c: C) -> Move:
    """The move in a string without escapes. If other strings have escapes, a backslash here is a
    mistake whose meaning is unknown."""
    if c is C.SINGLE:
        return Move("", False, State(Mode.BITS_END))
    escapes = c in _BACKSLASHES and not (lexis is Lexis.STANDARD and c is C.BACKSLASH)
    return Move(UNSURE, False, SWALLOW) if escapes else Move("", False, State(Mode.BITS))


def _after_backslash(lexis: Lexis, mode: Mode, c: C) -> Inside:
    """The position after a backslash that is not itself escaped."""
    if mode in NAMES or (lexis is Lexis.STANDARD and mode is Mode.SINGLE and c is C.BACKSLASH):
        return Inside.PLAIN
    if mode is Mode.EITHER or (c is C.BACKSLASH_MAYBE and mode is not Mode.ESCAPE):
        return Inside.ESCAPED_OR_PLAIN
    return Inside.ESCAPED


def _next_inside(lexis: Lexis, mode: Mode, inside: Inside, c: C) -> Inside:
    """The position after a byte that is not a quote of this text."""
    if inside in (Inside.ESCAPED, Inside.LEAD):
        return Inside.PLAIN
    if c not in _BACKSLASHES:
        return LEADS.get(c, Inside.PLAIN)
    if inside is Inside.ESCAPED_OR_PLAIN:
        return Inside.PLAIN
    plain = _after_backslash(lexis, mode, c)
    if plain is Inside.PLAIN or inside is Inside.PLAIN:
        return plain
    return Inside.EITHER
