# SPDX-License-Identifier: Apache-2.0
"""The transitions of the lexical automaton: for each mode, what a class of byte does."""

from __future__ import annotations

from qjoule.shapes.automaton import (
    COMMENT_DEPTH_MAX,
    DIGITS,
    HEX_DIGITS,
    NUMBER,
    PARAMETER,
    RAW,
    RAW_COMMENT,
    RAW_STAR,
    RAW_TAG,
    SPACE,
    SPACES,
    STRING,
    WORD,
    WORD_START,
    C,
    Mode,
    Move,
    State,
    emit,
    skip,
)
from qjoule.shapes.lexis import Lexis

BACKTICK, STANDARD = Lexis.BACKTICK, Lexis.STANDARD

_BLANK_OR_CONTROL = SPACES | {C.CONTROL, C.NUL}
_HELD_START = {C.MINUS: "-", C.SLASH: "/", C.DOT: "."}
_SIGN = {C.PLUS: "+", C.MINUS: "-"}
_NUMBER_MODES = {Mode.ZERO, Mode.NUMBER, Mode.FRACTION, Mode.EXPONENT, Mode.HEX, Mode.DIGITS}
_MARK_MODES = {Mode.EXPONENT_MARK, Mode.EXPONENT_SIGN, Mode.RADIX_MARK}
_COMMENT_MODES = {Mode.BLOCK, Mode.BLOCK_STAR, Mode.BLOCK_SLASH}


def step(lexis: Lexis, state: State, c: C) -> Move:
    """What a byte of class `c` does in `state`."""
    mode = state.mode
    if mode in _NUMBER_MODES or mode in _MARK_MODES or mode is Mode.PARAMETER:
        return _number(lexis, state, c)
    if mode in _QUOTED or mode in _ENDS:
        return _quoted(lexis, state, c)
    if mode in (Mode.SPACE, Mode.HELD, Mode.STAR_SLASH):
        return _held(lexis, state, c)
    if mode in _COMMENT_MODES or mode in (Mode.BLOCK_OPEN, Mode.BLOCK_OPEN_M, Mode.LINE):
        return _comment(lexis, state, c)
    return _word_or_sign(lexis, state, c)


def final_text(state: State) -> str:
    """What the end of the statement emits: held text that turned out to be just itself."""
    if state.mode in (Mode.SPACE, Mode.ESCAPE_SPACE, Mode.BLOCK_OPEN, Mode.BLOCK_OPEN_M):
        return ""
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
    return special.get(c) or emit(Mode.WORD if c in WORD_START else Mode.START)


def _after(before: str, move: Move) -> Move:
    return move._replace(text=before + move.text)


def _word_or_sign(lexis: Lexis, state: State, c: C) -> Move:  # noqa: PLR0911
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
        if c in WORD:
            return emit(Mode.TAG if mode is Mode.TAG else Mode.WORD)
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
    names = WORD if lexis is BACKTICK else WORD_START  # 1$$a$$ quotes after a number
    return emit(Mode.WORD) if c in names else _begin(lexis, c)


def _number_mark(lexis: Lexis, state: State, c: C) -> Move:  # noqa: PLR0911
    """After `1e`, `1e-`, `0x`, `0b`: a digit completes the number, else the letter was a name."""
    mode, held = state.mode, state.held
    if mode is Mode.RADIX_MARK:
        if c in (HEX_DIGITS if held == "x" else DIGITS):
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
        return emit(Mode.WORD if c in WORD else Mode.WORD_DOT, held)
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


#: Quoted text by mode: its quote, the modes after the quote and after a backslash (None: no
#: escapes), and whether it is emitted (names) or swallowed (literals).
_QUOTED: dict[Mode, tuple[C | None, Mode, Mode | None, bool]] = {
    Mode.SINGLE: (C.SINGLE, Mode.SINGLE_END, Mode.SINGLE_ESCAPE, False),
    Mode.DOUBLE: (C.DOUBLE, Mode.DOUBLE_END, Mode.DOUBLE_ESCAPE, False),
    Mode.ESCAPE: (C.SINGLE, Mode.ESCAPE_END, Mode.ESCAPE_ESCAPE, False),
    Mode.DOLLAR: (C.DOLLAR, Mode.DOLLAR_DOLLAR, None, False),
    Mode.NAME: (None, Mode.NAME_END, None, True),
}
_ESCAPES = {
    Mode.SINGLE_ESCAPE: Mode.SINGLE,
    Mode.DOUBLE_ESCAPE: Mode.DOUBLE,
    Mode.ESCAPE_ESCAPE: Mode.ESCAPE,
}
_REOPENS = {
    Mode.SINGLE_END: Mode.SINGLE,
    Mode.DOUBLE_END: Mode.DOUBLE,
    Mode.ESCAPE_END: Mode.ESCAPE,
    Mode.NAME_END: Mode.NAME,
}
_ENDS = {*_ESCAPES, *_REOPENS, Mode.ESCAPE_SPACE, Mode.DOLLAR_DOLLAR}


def _quoted(lexis: Lexis, state: State, c: C) -> Move:  # noqa: PLR0911
    mode = state.mode
    name_quote = C.BACKTICK if lexis is BACKTICK else C.DOUBLE
    if mode in _QUOTED:
        quote, end, escape, emitted = _QUOTED[mode]
        following = mode
        if c is (quote or name_quote):
            following = end
        elif c is C.BACKSLASH and escape and (lexis is BACKTICK or mode is Mode.ESCAPE):
            following = escape
        return Move("", emitted, State(following))
    if mode in _ESCAPES:
        return skip(_ESCAPES[mode])
    if mode is Mode.DOLLAR_DOLLAR:
        return skip(Mode.START if c is C.DOLLAR else Mode.DOLLAR)
    if mode is Mode.ESCAPE_SPACE:
        if c in SPACES:
            return Move("", False, state)
        if c is C.SINGLE:
            return skip(Mode.ESCAPE, text=state.held + STRING)
        return _space(lexis, SPACE, c)
    again = _REOPENS[mode]
    quote = name_quote if again is Mode.NAME else _QUOTED[again][0]
    if c is quote:
        return Move("", again is Mode.NAME, State(again))
    if mode is Mode.NAME_END and c is C.DOT:
        return emit(Mode.WORD_DOT)
    if mode is Mode.ESCAPE_END and c in SPACES:
        return skip(Mode.ESCAPE_SPACE, " ")
    return _begin(lexis, c)


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
