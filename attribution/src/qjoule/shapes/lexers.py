# SPDX-License-Identifier: Apache-2.0
"""The lexical automaton for C (attribution/shapes): one source of its rules, `transitions`."""

from __future__ import annotations

import os
from array import array
from functools import cache

from qjoule.shapes._shapes import Lexer
from qjoule.shapes.automaton import BEGIN, SPACE, START, Mode, State
from qjoule.shapes.c_tables import STATES_MAX, transition_entries
from qjoule.shapes.lexis import Lexis
from qjoule.shapes.reserved_words import RESERVED
from qjoule.shapes.rules import COUNTS, known_rules
from qjoule.shapes.safe_text import text_of
from qjoule.shapes.tables import classes, tables

#: `enum state_mode` of attribution/shapes/lexer.h; all other modes: 0.
_MODES = {Mode.VERSION: 1, Mode.STAR_SLASH: 2, Mode.RAW: 3, Mode.TAG: 4}
#: `enum resumed`. A state that a family does not have is never resumed.
_RESUMED = (
    START,
    SPACE,
    State(Mode.BLOCK, depth=1),
    State(Mode.STAR),
    State(Mode.BLOCK_OPEN, "/*"),
)


def lexer(lexis: Lexis, rules: int | None = None) -> Lexer:
    """The lexer for a session's settings; None: those of a server by default."""
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
