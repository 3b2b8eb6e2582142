# SPDX-License-Identifier: Apache-2.0
"""The alphabet and the states of SQL's lexical automaton, shared by the kernel side and Python.

The automaton decides, byte by byte, what of a statement is structure and what is a literal or a
comment. :mod:`qjoule.shapes.transitions` defines what each byte does; :mod:`qjoule.shapes.tables`
flattens that to a transition table. The kernel side walks the table and hashes the emitted text
(``bpf/core/shape_hash.h``). :mod:`qjoule.shapes.sql` walks the same table and keeps the
emitted text. A shape is computed from that text alone, so equal hash implies equal shape.

Text that may still turn out to be a comment or part of a number (``-``, ``/``, ``1e-``) is *held*
in the state and emitted by a later byte, so one transition per byte suffices. What a finite
in the state and emitted by a later byte, so one transition per byte suffices. Constructs that a
finite automaton cannot follow (dollar-quote tags, deeply nested comments, ``*/*`` where ``*/`` may
close code) lead to RAW, where every byte is emitted: the hash is then finer than the shape, never
coarser.
"""

from __future__ import annotations

from enum import Enum, IntEnum, auto
from typing import NamedTuple

#: Marks in emitted text, above every byte value, so that no input can forge one.
NUMBER, STRING, PARAMETER = "\ue000", "\ue001", "\ue002"
RAW_TAG, RAW_COMMENT, RAW_STAR = "\ue003", "\ue004", "\ue005"
#: The rest may be a literal or not, depending on an unknown setting.
UNSURE = "\ue006"
#: The digits before belong to a name; the last digits follow.
DIGITS_OF_NAME = "\ue007"
NAME_DIGITS_MAX = 8
SECOND = "\ue008"  #: the next byte is the second of a two-byte character in a word

COMMENT_DEPTH_MAX = 3  #: nested deeper, a comment is emitted raw


class C(IntEnum):
    """Classes of bytes that the automaton distinguishes."""

    OTHER = 0
    NUL = auto()
    CONTROL = auto()
    BLANK = auto()
    CR = auto()
    LF = auto()
    SINGLE = auto()
    DOUBLE = auto()
    BACKTICK = auto()
    BACKSLASH = auto()
    HASH = auto()
    DOLLAR = auto()
    AT = auto()
    AND = auto()
    BANG = auto()
    STAR = auto()
    SLASH = auto()
    PLUS = auto()
    MINUS = auto()
    DOT = auto()
    ZERO = auto()
    LOW = auto()  #: 1 to 4
    FIVE = auto()
    SIX = auto()
    DIGIT = auto()  #: 7 to 9
    E = auto()
    X = auto()
    B = auto()
    O = auto()  # noqa: E741
    HEX = auto()
    M = auto()
    U = auto()
    UNDERSCORE = auto()
    LETTER = auto()
    TRAIL = auto()  #: like OTHER, but may also be the second byte of a character
    # The next classes depend on settings of the session: qjoule.shapes.rules.
    BACKSLASH_ALWAYS = auto()  #: STANDARD: escapes in every string
    BACKSLASH_MAYBE = auto()  #: escapes in every string, or only in escape strings
    DOUBLE_NAME = auto()  #: BACKTICK: a double quote around names
    DOUBLE_MAYBE = auto()  #: BACKTICK: a double quote around names or strings
    LEAD = auto()  #: first byte of a character of two
    LEAD_MAYBE = auto()  #: like HIGH_MAYBE, or the first byte of a character of two
    HIGH_MAYBE = auto()  #: BACKTICK: a letter, a blank, a control character or a sign
    # CQL: qjoule.servers.cassandra.wire.
    SLASHES = auto()  #: two of them begin a comment; comments do not nest
    DOLLARS = auto()  #: two of them quote, one is a sign
    E_ALONE = auto()  #: introduces no escape string


_LISTED = {
    C.NUL: "\0",
    C.BLANK: " \t\v\f",
    C.CR: "\r",
    C.LF: "\n",
    C.SINGLE: "'",
    C.DOUBLE: '"',
    C.BACKTICK: "`",
    C.BACKSLASH: "\\",
    C.HASH: "#",
    C.DOLLAR: "$",
    C.AT: "@",
    C.AND: "&",
    C.BANG: "!",
    C.STAR: "*",
    C.SLASH: "/",
    C.PLUS: "+",
    C.MINUS: "-",
    C.DOT: ".",
    C.ZERO: "0",
    C.LOW: "1234",
    C.FIVE: "5",
    C.SIX: "6",
    C.DIGIT: "789",
    C.E: "eE",
    C.X: "xX",
    C.B: "bB",
    C.O: "oO",
    C.HEX: "acdfACDF",
    C.M: "M",
    C.U: "uU",
    C.TRAIL: "[]^{|}~",
    C.UNDERSCORE: "_",
}
_CLASS_OF_CHARACTER = {c: cls for cls, characters in _LISTED.items() for c in characters}

SPACES = {C.BLANK, C.CR, C.LF}
DIGITS = {C.ZERO, C.LOW, C.FIVE, C.SIX, C.DIGIT}
EXPONENT_MARKS = {C.E, C.E_ALONE}
HEX_DIGITS = DIGITS | EXPONENT_MARKS | {C.B, C.HEX}
WORD_START = EXPONENT_MARKS | {C.X, C.B, C.O, C.HEX, C.M, C.U, C.UNDERSCORE, C.LETTER}
WORD_START |= {C.LEAD, C.LEAD_MAYBE, C.HIGH_MAYBE}
WORD = WORD_START | DIGITS | {C.DOLLAR}


def class_of(byte: int) -> C:
    character = chr(byte)
    if character in _CLASS_OF_CHARACTER:
        return _CLASS_OF_CHARACTER[character]
    if byte < 0x20 or byte == 0x7F:
        return C.CONTROL
    return C.LETTER if byte >= 0x80 or character.isalpha() else C.OTHER


class Mode(Enum):
    START = auto()  #: between tokens
    SPACE = auto()  #: whitespace or a comment is held as one blank
    HELD = auto()  #: the start of what may be a comment, a number, a dollar quote
    WORD = auto()
    WORD_E = auto()  #: STANDARD: the word so far is E, which may introduce an escape string
    WORD_BITS = auto()  #: the word so far is B or X, which may introduce a string without escapes
    WORD_U = auto()  #: STANDARD: the word so far is U; with & it may introduce such a string too
    WORD_U_AND = auto()
    WORD_DOT = auto()  #: BACKTICK: after `word.`: digits belong to a name
    AT = auto()  #: BACKTICK: after @, digits belong to a name
    ZERO = auto()
    NUMBER = auto()
    FRACTION = auto()
    EXPONENT_MARK = auto()
    EXPONENT_SIGN = auto()
    EXPONENT = auto()
    RADIX_MARK = auto()
    HEX = auto()
    DIGITS = auto()  #: of a binary or octal number
    PARAMETER = auto()  #: $1
    SINGLE = auto()
    SINGLE_END = auto()
    DOUBLE = auto()
    DOUBLE_END = auto()
    EITHER = auto()  #: "...", a string or a name
    EITHER_END = auto()
    ESCAPE = auto()  #: E'...'
    ESCAPE_END = auto()
    BITS = auto()  #: a string without escapes, whatever the session's settings
    BITS_END = auto()
    # STANDARD: after an escape string or a bit string, by `State.goes_on`.
    AFTER = auto()
    AFTER_LINE = auto()  #: ... and a line break: a quote that follows continues the string
    AFTER_DASH = auto()
    AFTER_COMMENT = auto()  #: to the end of the line
    DOLLAR = auto()  #: $$...$$
    DOLLAR_DOLLAR = auto()
    TAG = auto()  #: $tag
    NAME = auto()  #: quoted identifier
    NAME_END = auto()
    DOUBLE_NAME = auto()  #: BACKTICK: quoted identifier in double quotes
    DOUBLE_NAME_END = auto()
    LINE = auto()  #: comment to the end of the line
    BLOCK_OPEN = auto()  #: BACKTICK: after /*, which may still turn out to begin code
    BLOCK_OPEN_M = auto()
    BLOCK = auto()
    BLOCK_STAR = auto()
    BLOCK_SLASH = auto()
    VERSION = auto()  #: BACKTICK: the digits after /*!; `State.depth` is a `Version`
    HINT = auto()
    HINT_STAR = auto()
    STAR = auto()  #: BACKTICK: a * that may close /*! ... */
    STAR_SLASH = auto()
    RAW = auto()
    SWALLOW = auto()  #: nothing more is emitted


class Version(IntEnum):
    """The number of a version comment, as far as read: up to 50699 it is code for every server."""

    NONE = 0
    ONE = 1  #: one digit of a number up to 50699, and so on
    TWO = 2
    THREE = 3
    FOUR = 4
    ALL = 5
    AFTER_5 = 6
    AFTER_50 = 7
    MAYBE = 8  #: the server may skip what follows


class Inside(Enum):
    """The position within a quoted text, a word or a hint, under all possible readings."""

    PLAIN = auto()
    ESCAPED = auto()  #: after a backslash that escapes
    LEAD = auto()  #: after the first byte of a character of two
    LEAD_OR_PLAIN = auto()
    ESCAPED_OR_PLAIN = auto()  #: after a backslash that may escape
    EITHER = auto()  #: likewise; and one more backslash leaves it undecided
    MAYBE = auto()  #: after a byte that may be a letter
    IN_SINGLE = auto()  #: in a hint, between these quotes
    IN_DOUBLE = auto()
    IN_BACKTICK = auto()


class State(NamedTuple):
    mode: Mode
    held: str = ""
    depth: int = 0  #: of nested comments
    inside: Inside = Inside.PLAIN
    skipped: bool = False  #: BACKTICK: within a version comment that the server may skip
    goes_on: Mode = Mode.ESCAPE  #: STANDARD: the string that may go on after a line break


class Move(NamedTuple):
    """Emit `text`, then the byte itself if `byte`, and go to `state`."""

    text: str
    byte: bool
    state: State


BEGIN = State(Mode.SPACE)
SPACE = State(Mode.SPACE, " ")
START = State(Mode.START)
RAW = State(Mode.RAW)
SWALLOW = State(Mode.SWALLOW)


def emit(mode: Mode, before: str = "") -> Move:
    return Move(before, True, State(mode))


def skip(mode: Mode, held: str = "", text: str = "", depth: int = 0) -> Move:
    return Move(text, False, State(mode, held, depth))
