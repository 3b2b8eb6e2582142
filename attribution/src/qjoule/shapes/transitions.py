# SPDX-License-Identifier: Apache-2.0
"""The transitions of the lexical automaton: for each mode, the move of each class of byte."""

from __future__ import annotations

from qjoule.shapes.automaton import (
    COMMENT_DEPTH_MAX,
    DIGITS,
    DIGITS_OF_NAME,
    EXPONENT_MARKS,
    HEX_DIGITS,
    NUMBER,
    PARAMETER,
    RAW,
    RAW_COMMENT,
    RAW_STAR,
    RAW_TAG,
    SECOND,
    SPACE,
    SPACES,
    STRING,
    SWALLOW,
    UNSURE,
    WORD,
    WORD_START,
    C,
    Inside,
    Mode,
    Move,
    State,
    Version,
    emit,
    skip,
)
from qjoule.shapes.rules import AFTER_LETTER, NAMES, STRINGS, TRAILS, Lexis, quoted, quotes_of

BACKTICK, STANDARD = Lexis.BACKTICK, Lexis.STANDARD

_BLANK_OR_CONTROL = SPACES | {C.CONTROL, C.NUL}
_HELD_START = {C.MINUS: "-", C.SLASH: "/", C.SLASHES: "/", C.DOT: "."}
_SIGN = {C.PLUS: "+", C.MINUS: "-"}
_NUMBER_MODES = {Mode.ZERO, Mode.NUMBER, Mode.FRACTION, Mode.EXPONENT, Mode.HEX, Mode.DIGITS}
_MARK_MODES = {Mode.EXPONENT_MARK, Mode.EXPONENT_SIGN, Mode.RADIX_MARK}
_COMMENT_MODES = {Mode.BLOCK, Mode.BLOCK_STAR, Mode.BLOCK_SLASH}
#: Bytes that occur between quotes only in UTF-16, which is not read further.
_NEVER = {BACKTICK: {C.NUL}, STANDARD: set[C]()}
_BETWEEN = {Mode.START, Mode.SPACE, Mode.WORD, Mode.WORD_BITS, Mode.WORD_DOT, Mode.AT}
_DOLLARS = {C.DOLLAR, C.DOLLARS}
#: Bytes that may be blanks or control characters.
_MAYBE_BLANK = {C.LEAD_MAYBE, C.HIGH_MAYBE}
#: Modes that mean the same within a version comment whether or not the server skips it.
_EITHER_WAY = _BETWEEN | _NUMBER_MODES | _MARK_MODES | {Mode.HELD, Mode.STAR, Mode.SWALLOW}
_LEAVES_NOTHING = {Mode.SPACE, Mode.BLOCK_OPEN, Mode.BLOCK_OPEN_M}
_LEAVES_NOTHING |= {Mode.AFTER, Mode.AFTER_LINE, Mode.AFTER_COMMENT}
_QUOTES_ALONE = 1  #: depth of a held dollar that begins no tag and no parameter
_LEAVE = Move(UNSURE, False, SWALLOW)


def step(lexis: Lexis, state: State, c: C) -> Move:  # noqa: PLR0911
    """The move for a byte of class `c` in `state`."""
    mode = state.mode
    if state.skipped:
        return _skippable(lexis, state, c)
    if mode is Mode.SWALLOW:
        return skip(Mode.SWALLOW)
    if c in _NEVER[lexis] and mode in _BETWEEN:
        return _LEAVE
    if mode in _NUMBER_MODES or mode in _MARK_MODES or mode is Mode.PARAMETER:
        return _number(lexis, state, c)
    if mode in STRINGS or mode in NAMES:
        return quoted(lexis, state, c)
    if mode in _ENDS:
        return _after_quotes(lexis, state, c)
    if mode in (Mode.SPACE, Mode.HELD, Mode.STAR_SLASH):
        return _held(lexis, state, c)
    if mode in _COMMENT_MODES or mode in (Mode.BLOCK_OPEN, Mode.BLOCK_OPEN_M, Mode.LINE):
        return _comment(lexis, state, c)
    return _word_or_sign(lexis, state, c)


def _skippable(lexis: Lexis, state: State, c: C) -> Move:
    """The move within a version comment that the server may skip. Under both readings the comment
    ends at `*/`, unless a quote or a comment begins in it: then the statement is read no further.
    """
    if state.mode is Mode.STAR and c is C.SLASH:
        return skip(Mode.STAR_SLASH, "/")
    move = step(lexis, state._replace(skipped=False), c)
    following = move.state
    if following.mode not in _EITHER_WAY or following.held.strip() == "--":
        return _LEAVE
    return move._replace(state=following._replace(skipped=following != SWALLOW))


def final_text(state: State) -> str:
    """The text to emit at the end of the statement: held text that introduced nothing."""
    if state.mode in _LEAVES_NOTHING:
        return ""
    if state.mode is Mode.AFTER_DASH:
        return state.held + "-"
    return "" if state.held.strip() == "--" else state.held


def _between_tokens(lexis: Lexis, c: C) -> Move:
    """The move for a byte between tokens."""
    if c in SPACES:
        return Move("", False, SPACE)
    if c in DIGITS:
        return skip(Mode.ZERO if c is C.ZERO else Mode.NUMBER, text=NUMBER)
    if c is C.SINGLE:
        return skip(Mode.SINGLE, text=STRING)
    if c in _HELD_START:
        return skip(Mode.HELD, _HELD_START[c])
    if lexis is BACKTICK:
        special = {
            C.DOUBLE: skip(Mode.DOUBLE, text=STRING),
            C.DOUBLE_MAYBE: skip(Mode.EITHER, text=STRING),
            C.DOUBLE_NAME: emit(Mode.DOUBLE_NAME),
            C.BACKTICK: emit(Mode.NAME),
            C.HASH: skip(Mode.LINE),
            C.DOLLAR: emit(Mode.WORD),
            C.STAR: emit(Mode.STAR),
            C.AT: emit(Mode.AT),
            **dict.fromkeys((C.B, C.X), emit(Mode.WORD_BITS)),
        }
    else:
        special = {
            C.DOUBLE: emit(Mode.NAME),
            C.DOLLAR: skip(Mode.HELD, "$"),
            C.DOLLARS: skip(Mode.HELD, "$", depth=_QUOTES_ALONE),
            **dict.fromkeys((C.B, C.X), emit(Mode.WORD_BITS)),
            C.E: emit(Mode.WORD_E),
            C.U: emit(Mode.WORD_U),
        }
    return special.get(c) or (_word(c) if c in WORD_START else emit(Mode.START))


def _word(c: C) -> Move:
    """The move for a byte of a word."""
    return Move("", True, State(Mode.WORD, inside=AFTER_LETTER.get(c, Inside.PLAIN)))


def _prepended(before: str, move: Move) -> Move:
    return move._replace(text=before + move.text)


def _word_or_sign(lexis: Lexis, state: State, c: C) -> Move:  # noqa: PLR0911, PLR0912
    mode = state.mode
    if mode is Mode.RAW:
        return Move("", True, RAW)
    if mode in (Mode.HINT, Mode.HINT_STAR):
        return _hint(state, c)
    if mode is Mode.VERSION:
        return _version(lexis, state, c)
    if mode is Mode.STAR and c is C.SLASH:
        return skip(Mode.STAR_SLASH, "/")
    if mode in (Mode.WORD_DOT, Mode.AT) and c in DIGITS:
        return emit(Mode.WORD)
    if mode is Mode.WORD_E and c is C.SINGLE:
        return skip(Mode.ESCAPE, text=STRING)
    if mode in (Mode.WORD_BITS, Mode.WORD_U_AND) and c is C.SINGLE:
        return skip(Mode.BITS, text=STRING)
    if mode is Mode.WORD_U and c is C.AND:
        return emit(Mode.WORD_U_AND)
    if mode is Mode.TAG and c is C.DOLLAR:
        return Move(RAW_TAG, True, RAW)
    if mode is Mode.TAG and c in (C.SINGLE, C.AND):
        return _LEAVE  # a lone `$` before the start of a string
    if mode in _WORDS:
        if state.inside is Inside.LEAD and c in TRAILS:
            return emit(Mode.WORD, "" if c in WORD else SECOND)
        if state.inside in (Inside.LEAD, Inside.LEAD_OR_PLAIN, Inside.MAYBE) and c in DIGITS:
            return _LEAVE  # belongs to a name if the byte before is a letter, else to a number
        if state.inside is Inside.LEAD_OR_PLAIN and c is C.BACKTICK and lexis is BACKTICK:
            return _LEAVE
        if c in WORD:
            return emit(Mode.TAG) if mode is Mode.TAG else _word(c)
        if c is C.DOT and lexis is BACKTICK:
            return emit(Mode.WORD_DOT)
    return _between_tokens(lexis, c)


_WORDS = {Mode.WORD, Mode.WORD_E, Mode.WORD_BITS, Mode.WORD_U, Mode.TAG}
_HINT_QUOTES = {
    C.SINGLE: Inside.IN_SINGLE,
    C.BACKTICK: Inside.IN_BACKTICK,
    **dict.fromkeys((C.DOUBLE, C.DOUBLE_NAME, C.DOUBLE_MAYBE), Inside.IN_DOUBLE),
}


def _hint(state: State, c: C) -> Move:
    """The move within a hint. Hints are emitted, and end at the first `*/` unless that is between
    quotes, which mean nothing where a server takes the hint for a comment."""
    if state.mode is Mode.HINT_STAR and c is C.SLASH:
        return emit(Mode.START) if state.inside is Inside.PLAIN else _LEAVE
    quote, inside = _HINT_QUOTES.get(c), state.inside
    if quote and inside in (quote, Inside.PLAIN):
        inside = Inside.PLAIN if inside is quote else quote
    mode = Mode.HINT_STAR if c is C.STAR else Mode.HINT
    return Move("", True, State(mode, inside=inside))


def _version(lexis: Lexis, state: State, c: C) -> Move:
    """The move after `/*!` and digits: five or six (MySQL and MariaDB sql/sql_lex.cc). MariaDB
    skips 50700 to 99999, and each server skips versions newer than itself."""
    seen = Version(state.depth)
    if c in DIGITS:
        return Move("", True, State(Mode.VERSION, depth=_next_version(seen, c)))
    return step(lexis, State(Mode.START, skipped=seen is Version.MAYBE), c)


def _next_version(seen: Version, c: C) -> Version:
    match seen:
        case Version.NONE if c is C.FIVE:
            return Version.AFTER_5
        case Version.NONE if c in (C.ZERO, C.LOW):
            return Version.ONE
        case Version.ONE | Version.TWO | Version.THREE | Version.FOUR:
            return Version(seen + 1)
        case Version.AFTER_5 if c is C.ZERO:
            return Version.AFTER_50
        case Version.AFTER_50 if c is not C.DIGIT:
            return Version.THREE
    return Version.MAYBE


def _number(lexis: Lexis, state: State, c: C) -> Move:  # noqa: PLR0911
    """The move within a number: its mark is emitted at the first digit; a name may still follow."""
    mode = state.mode
    if mode in _MARK_MODES:
        return _number_mark(lexis, state, c)
    digits = HEX_DIGITS if mode is Mode.HEX else DIGITS
    if c in digits or (c is C.UNDERSCORE and lexis is STANDARD and mode is not Mode.PARAMETER):
        return skip(Mode.NUMBER if mode is Mode.ZERO else mode)
    if mode is Mode.ZERO:
        if c is C.X:
            return skip(Mode.RADIX_MARK, "x")
        if c is C.B or (c is C.O and lexis is STANDARD):
            return skip(Mode.RADIX_MARK, "b" if c is C.B else "o")
    if mode in (Mode.ZERO, Mode.NUMBER) and c is C.DOT:
        return skip(Mode.FRACTION)
    if mode in (Mode.ZERO, Mode.NUMBER, Mode.FRACTION) and c in EXPONENT_MARKS:
        return skip(Mode.EXPONENT_MARK, "e")
    if lexis is BACKTICK and c is C.UNDERSCORE and mode in (Mode.ZERO, Mode.NUMBER):
        return emit(Mode.WORD, DIGITS_OF_NAME)
    return _word(c) if c in WORD and lexis is BACKTICK else _between_tokens(lexis, c)


def _number_mark(lexis: Lexis, state: State, c: C) -> Move:  # noqa: PLR0911
    """After `1e`, `1e-`, `0x`, `0b`: a digit completes the number, else the letter began a name."""
    mode, held = state.mode, state.held
    if c is C.SINGLE and lexis is STANDARD and mode is not Mode.EXPONENT_SIGN:
        return _LEAVE  # before PostgreSQL 15, the letter introduces a string
    if mode is Mode.RADIX_MARK:
        if c in (HEX_DIGITS if held == "x" else DIGITS) or (
            c is C.UNDERSCORE and lexis is STANDARD
        ):
            return skip(Mode.HEX if held == "x" else Mode.DIGITS)
    elif c in DIGITS:
        return skip(Mode.EXPONENT)
    if mode is Mode.EXPONENT_SIGN:
        if held == "e-":
            return _prepended("e", _held(lexis, State(Mode.HELD, "-"), c))
        return _prepended(held, _between_tokens(lexis, c))
    if mode is Mode.EXPONENT_MARK and c in _SIGN:
        return skip(Mode.EXPONENT_SIGN, held + _SIGN[c])
    if c is C.DOT and lexis is BACKTICK:
        return emit(Mode.WORD_DOT, held)
    if c in WORD:
        return _prepended(held, _word(c))
    return _prepended(held, _between_tokens(lexis, c))


def _held(lexis: Lexis, state: State, c: C) -> Move:  # noqa: PLR0911, PLR0912
    held = state.held
    if state.mode is Mode.STAR_SLASH and c is C.STAR:
        return Move(held + RAW_STAR, True, RAW)
    if state.mode is Mode.SPACE:
        return _space(lexis, state, c)
    blank = " " if held.startswith(" ") else ""
    match held.strip():
        case "-" if c is C.MINUS:
            return skip(Mode.HELD, held + "-") if lexis is BACKTICK else skip(Mode.LINE)
        case "--" if c in _BLANK_OR_CONTROL:
            return Move("", False, SPACE) if c in (C.LF, C.NUL) else skip(Mode.LINE)
        case "--" if c in _MAYBE_BLANK:
            return _LEAVE
        case "--" if c is C.MINUS:
            return skip(Mode.HELD, "--", blank + "-")
        case "/" if c is C.STAR and state.mode is Mode.HELD:
            if lexis is BACKTICK:
                return skip(Mode.BLOCK_OPEN, held + "*")
            return skip(Mode.BLOCK, depth=1)
        case "/" if c is C.SLASHES:
            return skip(Mode.LINE)
        case "." if c in DIGITS:
            return skip(Mode.FRACTION, text=blank + NUMBER)
        case "$" if c in DIGITS and not state.depth:
            return skip(Mode.PARAMETER, text=blank + PARAMETER)
        case "$" if c in _DOLLARS:
            return skip(Mode.DOLLAR, text=blank + STRING)
        case "$" if c in WORD_START and not state.depth:
            return emit(Mode.TAG, held)
    return _prepended(held, _between_tokens(lexis, c))


def _space(lexis: Lexis, state: State, c: C) -> Move:
    move = _between_tokens(lexis, c)
    if c in SPACES:
        return Move("", False, state)
    if move.state.mode is Mode.HELD:
        return Move("", False, move.state._replace(held=state.held + move.state.held))
    return move if move.state.mode is Mode.LINE else _prepended(state.held, move)


_REOPENS = {
    Mode.SINGLE_END: Mode.SINGLE,
    Mode.DOUBLE_END: Mode.DOUBLE,
    Mode.EITHER_END: Mode.EITHER,
    Mode.ESCAPE_END: Mode.ESCAPE,
    Mode.BITS_END: Mode.BITS,
    Mode.NAME_END: Mode.NAME,
    Mode.DOUBLE_NAME_END: Mode.DOUBLE_NAME,
}
_CONTINUED = {Mode.AFTER, Mode.AFTER_LINE, Mode.AFTER_DASH, Mode.AFTER_COMMENT}
_LINE_ENDS = {C.LF, C.CR}
_ENDS = {*_REOPENS, *_CONTINUED, Mode.DOLLAR, Mode.DOLLAR_DOLLAR}


def _after_quotes(lexis: Lexis, state: State, c: C) -> Move:
    """The move after a closing quote, which may be doubled, and between dollars."""
    mode = state.mode
    if mode is Mode.DOLLAR:
        return skip(Mode.DOLLAR_DOLLAR if c in _DOLLARS else Mode.DOLLAR)
    if mode is Mode.DOLLAR_DOLLAR:
        return skip(Mode.START if c in _DOLLARS else Mode.DOLLAR)
    if mode in _CONTINUED:
        return _continued(lexis, state, c)
    again = _REOPENS[mode]
    if c in quotes_of(lexis, again):
        return Move("", again in NAMES, State(again))
    if again in (Mode.ESCAPE, Mode.BITS) and lexis is STANDARD:
        return _continued(lexis, State(Mode.AFTER, goes_on=again), c)
    return _between_tokens(lexis, c)


def _continued(lexis: Lexis, state: State, c: C) -> Move:  # noqa: PLR0911
    """The move in blanks and comments after a string, which a quote after a line break continues
    (PostgreSQL scan.l, `quotecontinue`)."""
    mode, held = state.mode, state.held
    if mode is Mode.AFTER_COMMENT:
        ended = c in _LINE_ENDS
        return Move("", False, state._replace(mode=Mode.AFTER_LINE) if ended else state)
    if mode is Mode.AFTER_DASH:
        if c is C.MINUS:
            return Move("", False, state._replace(mode=Mode.AFTER_COMMENT, held=" "))
        return _held(lexis, State(Mode.HELD, held + "-"), c)
    if c in SPACES:
        line = mode is Mode.AFTER_LINE or c in _LINE_ENDS
        mode = Mode.AFTER_LINE if line else Mode.AFTER
        return Move("", False, state._replace(mode=mode, held=" "))
    if c is C.MINUS:
        return Move("", False, state._replace(mode=Mode.AFTER_DASH))
    if c is C.SINGLE and mode is Mode.AFTER_LINE:
        return skip(state.goes_on, text=held + STRING)
    return _space(lexis, State(Mode.SPACE, held), c)


def _comment(lexis: Lexis, state: State, c: C) -> Move:  # noqa: PLR0911
    """The move in a comment, which becomes one blank; code in comments and hints are emitted."""
    mode, depth = state.mode, state.depth
    if mode is Mode.LINE:
        ends = {C.LF, C.NUL} if lexis is BACKTICK else {C.LF, C.CR}
        return Move("", False, SPACE) if c in ends else skip(Mode.LINE)
    if mode in (Mode.BLOCK_OPEN, Mode.BLOCK_OPEN_M):
        if c is C.BANG:
            version = Version.NONE if mode is Mode.BLOCK_OPEN else Version.MAYBE
            return Move(state.held, True, State(Mode.VERSION, depth=version))
        if mode is Mode.BLOCK_OPEN and c is C.PLUS:
            return emit(Mode.HINT, state.held)
        if mode is Mode.BLOCK_OPEN and c is C.M:
            return skip(Mode.BLOCK_OPEN_M, state.held + "M")
    if mode is Mode.BLOCK_STAR and c in (C.SLASH, C.SLASHES):
        return skip(Mode.BLOCK, depth=depth - 1) if depth > 1 else Move("", False, SPACE)
    if mode is Mode.BLOCK_SLASH and c is C.STAR:
        if depth == COMMENT_DEPTH_MAX:
            return Move(RAW_COMMENT, True, RAW)
        return skip(Mode.BLOCK, depth=depth + 1)
    if c is C.STAR:
        return skip(Mode.BLOCK_STAR, depth=depth)
    if c is C.SLASH and lexis is STANDARD:
        return skip(Mode.BLOCK_SLASH, depth=depth)
    return skip(Mode.BLOCK, depth=depth)
