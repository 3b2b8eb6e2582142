# SPDX-License-Identifier: Apache-2.0
"""The transitions of the lexical automaton: for each mode, what a class of byte does."""

from __future__ import annotations

from qjoule.shapes.automaton import (
    COMMENT_DEPTH_MAX,
    DIGITS,
    DIGITS_OF_NAME,
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
    emit,
    skip,
)
from qjoule.shapes.lexis import Lexis
from qjoule.shapes.quoting import LEADS, NAMES, STRINGS, TRAILS, quoted, quotes_of

BACKTICK, STANDARD = Lexis.BACKTICK, Lexis.STANDARD

_BLANK_OR_CONTROL = SPACES | {C.CONTROL, C.NUL}
_HELD_START = {C.MINUS: "-", C.SLASH: "/", C.DOT: "."}
_SIGN = {C.PLUS: "+", C.MINUS: "-"}
_NUMBER_MODES = {Mode.ZERO, Mode.NUMBER, Mode.FRACTION, Mode.EXPONENT, Mode.HEX, Mode.DIGITS}
_MARK_MODES = {Mode.EXPONENT_MARK, Mode.EXPONENT_SIGN, Mode.RADIX_MARK}
_COMMENT_MODES = {Mode.BLOCK, Mode.BLOCK_STAR, Mode.BLOCK_SLASH}
#: No statement has these bytes between quotes; text in UTF-16 does, and is not read further.
_NEVER = {BACKTICK: {C.NUL}, STANDARD: set[C]()}
_BETWEEN = {Mode.START, Mode.SPACE, Mode.WORD, Mode.WORD_DOT, Mode.AT}


def step(lexis: Lexis, state: State, c: C) -> Move:  # noqa: PLR0911
    """What a byte of class `c` does in `state`."""
    mode = state.mode
    if mode is Mode.SWALLOW:
        return skip(Mode.SWALLOW)
    if c in _NEVER[lexis] and mode in _BETWEEN:
        return Move(UNSURE, False, SWALLOW)
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


def final_text(state: State) -> str:
    """What the end of the statement emits: held text that turned out to be just itself."""
    if state.mode in (Mode.SPACE, Mode.ESCAPE_SPACE, Mode.BLOCK_OPEN, Mode.BLOCK_OPEN_M):
        return ""
    if state.mode is Mode.ESCAPE_DASH:
        return state.held + "-"
    return "" if state.held.strip() == "--" else state.held


def _begin(lexis: Lexis, c: C) -> Move:
    """Between tokens: what a byte begins."""
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
        }
    else:
        special = {
            C.DOUBLE: emit(Mode.NAME),
            C.DOLLAR: skip(Mode.HELD, "$"),
            C.E: emit(Mode.WORD_E),
        }
    return special.get(c) or (_word(c) if c in WORD_START else emit(Mode.START))


def _word(c: C) -> Move:
    """A byte of a word."""
    return Move("", True, State(Mode.WORD, inside=LEADS.get(c, Inside.PLAIN)))


def _after(before: str, move: Move) -> Move:
    return move._replace(text=before + move.text)


def _word_or_sign(lexis: Lexis, state: State, c: C) -> Move:  # noqa: PLR0911, PLR0912
    mode = state.mode
    if mode is Mode.RAW:
        return Move("", True, RAW)
    if mode in (Mode.HINT, Mode.HINT_STAR):
        if mode is Mode.HINT_STAR and c is C.SLASH:
            return emit(Mode.START)
        return emit(Mode.HINT_STAR if c is C.STAR else Mode.HINT)
    if mode is Mode.VERSION and c in DIGITS:
        return emit(Mode.VERSION)
    if mode is Mode.STAR and c is C.SLASH:
        return skip(Mode.STAR_SLASH, "/")
    if mode in (Mode.WORD_DOT, Mode.AT) and c in DIGITS:
        return emit(Mode.WORD)
    if mode is Mode.WORD_E and c is C.SINGLE:
        return skip(Mode.ESCAPE, text=STRING)
    if mode is Mode.TAG and c is C.DOLLAR:
        return Move(RAW_TAG, True, RAW)
    if mode in (Mode.WORD, Mode.WORD_E, Mode.TAG):
        if state.inside is Inside.LEAD and c in TRAILS:
            return emit(Mode.WORD, "" if c in WORD else SECOND)
        if state.inside is Inside.LEAD_OR_PLAIN and c is C.BACKTICK and lexis is BACKTICK:
            return Move(UNSURE, False, SWALLOW)
        if c in WORD:
            return emit(Mode.TAG) if mode is Mode.TAG else _word(c)
        if c is C.DOT:
            return emit(Mode.WORD_DOT)
    return _begin(lexis, c)


def _number(lexis: Lexis, state: State, c: C) -> Move:  # noqa: PLR0911
    """Numbers emit their mark at the first digit and then swallow; a name may still follow."""
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
    if mode in (Mode.ZERO, Mode.NUMBER, Mode.FRACTION) and c is C.E:
        return skip(Mode.EXPONENT_MARK, "e")
    if lexis is BACKTICK and c is C.UNDERSCORE and mode in (Mode.ZERO, Mode.NUMBER):
        return emit(Mode.WORD, DIGITS_OF_NAME)
    names = WORD if lexis is BACKTICK else WORD_START  # 1$$a$$ quotes after a number
    return _word(c) if c in names else _begin(lexis, c)


def _number_mark(lexis: Lexis, state: State, c: C) -> Move:  # noqa: PLR0911
    """After `1e`, `1e-`, `0x`, `0b`: a digit completes the number, else the letter was a name."""
    mode, held = state.mode, state.held
    if mode is Mode.RADIX_MARK:
        if c in (HEX_DIGITS if held == "x" else DIGITS) or (
            c is C.UNDERSCORE and lexis is STANDARD
        ):
            return skip(Mode.HEX if held == "x" else Mode.DIGITS)
    elif c in DIGITS:
        return skip(Mode.EXPONENT)
    if mode is Mode.EXPONENT_SIGN:
        if held == "e-":
            return _after("e", _held(lexis, State(Mode.HELD, "-"), c))
        return _after(held, _begin(lexis, c))
    if mode is Mode.EXPONENT_MARK and c in _SIGN:
        return skip(Mode.EXPONENT_SIGN, held + _SIGN[c])
    if c in WORD or c is C.DOT:
        return _after(held, _word(c)) if c in WORD else emit(Mode.WORD_DOT, held)
    return _after(held, _begin(lexis, c))


def _held(lexis: Lexis, state: State, c: C) -> Move:  # noqa: PLR0911
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
        case "--" if c is C.MINUS:
            return skip(Mode.HELD, "--", blank + "-")
        case "/" if c is C.STAR and state.mode is Mode.HELD:
            if lexis is BACKTICK:
                return skip(Mode.BLOCK_OPEN, held + "*")
            return skip(Mode.BLOCK, depth=1)
        case "." if c in DIGITS:
            return skip(Mode.FRACTION, text=blank + NUMBER)
        case "$" if c in DIGITS:
            return skip(Mode.PARAMETER, text=blank + PARAMETER)
        case "$" if c is C.DOLLAR:
            return skip(Mode.DOLLAR, text=blank + STRING)
        case "$" if c in WORD_START:
            return emit(Mode.TAG, held)
    return _after(held, _begin(lexis, c))


def _space(lexis: Lexis, state: State, c: C) -> Move:
    move = _begin(lexis, c)
    if c in SPACES:
        return Move("", False, state)
    if move.state.mode is Mode.HELD:
        return skip(Mode.HELD, state.held + move.state.held)
    return move if move.state.mode is Mode.LINE else _after(state.held, move)


_REOPENS = {
    Mode.SINGLE_END: Mode.SINGLE,
    Mode.DOUBLE_END: Mode.DOUBLE,
    Mode.EITHER_END: Mode.EITHER,
    Mode.ESCAPE_END: Mode.ESCAPE,
    Mode.NAME_END: Mode.NAME,
    Mode.DOUBLE_NAME_END: Mode.DOUBLE_NAME,
}
_CONTINUED = {Mode.ESCAPE_SPACE, Mode.ESCAPE_DASH, Mode.ESCAPE_LINE}
_ENDS = {*_REOPENS, *_CONTINUED, Mode.DOLLAR, Mode.DOLLAR_DOLLAR}


def _after_quotes(lexis: Lexis, state: State, c: C) -> Move:  # noqa: PLR0911
    """After a closing quote, which may be doubled; and text between dollars."""
    mode = state.mode
    if mode is Mode.DOLLAR:
        return skip(Mode.DOLLAR_DOLLAR if c is C.DOLLAR else Mode.DOLLAR)
    if mode is Mode.DOLLAR_DOLLAR:
        return skip(Mode.START if c is C.DOLLAR else Mode.DOLLAR)
    if mode in _CONTINUED:
        return _continued(lexis, state, c)
    again = _REOPENS[mode]
    if c in quotes_of(lexis, again):
        return Move("", again in NAMES, State(again))
    if again in NAMES and c is C.DOT:
        return emit(Mode.WORD_DOT)
    if mode is Mode.ESCAPE_END and c in SPACES:
        return skip(Mode.ESCAPE_SPACE, " ")
    return _begin(lexis, c)


def _continued(lexis: Lexis, state: State, c: C) -> Move:  # noqa: PLR0911
    """Blanks and comments after E'...': the string goes on in a quote that follows."""
    mode, held = state.mode, state.held
    if mode is Mode.ESCAPE_LINE:
        return skip(Mode.ESCAPE_SPACE if c in (C.LF, C.CR) else mode, held)
    if mode is Mode.ESCAPE_DASH:
        if c is C.MINUS:
            return skip(Mode.ESCAPE_LINE, held)
        return _held(lexis, State(Mode.HELD, held + "-"), c)
    if c in SPACES:
        return Move("", False, state)
    if c is C.MINUS:
        return skip(Mode.ESCAPE_DASH, held)
    if c is C.SINGLE:
        return skip(Mode.ESCAPE, text=held + STRING)
    return _space(lexis, SPACE, c)


def _comment(lexis: Lexis, state: State, c: C) -> Move:  # noqa: PLR0911
    """Comments are swallowed and leave one blank; code in comments and hints are kept."""
    mode, depth = state.mode, state.depth
    if mode is Mode.LINE:
        ends = {C.LF, C.NUL} if lexis is BACKTICK else {C.LF, C.CR}
        return Move("", False, SPACE) if c in ends else skip(Mode.LINE)
    if mode in (Mode.BLOCK_OPEN, Mode.BLOCK_OPEN_M):
        if c is C.BANG:
            return emit(Mode.VERSION, state.held)
        if mode is Mode.BLOCK_OPEN and c is C.PLUS:
            return emit(Mode.HINT, state.held)
        if mode is Mode.BLOCK_OPEN and c is C.M:
            return skip(Mode.BLOCK_OPEN_M, state.held + "M")
    if mode is Mode.BLOCK_STAR and c is C.SLASH:
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
