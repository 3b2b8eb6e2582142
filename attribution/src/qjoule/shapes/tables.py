# SPDX-License-Identifier: Apache-2.0
"""The lexical automaton of SQL as a transition table, for the kernel side and for Python."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from qjoule.shapes.automaton import BEGIN, C, State, class_of
from qjoule.shapes.lexis import Lexis
from qjoule.shapes.transitions import final_text, step


@dataclass(frozen=True)
class Tables:
    """The automaton of one `Lexis`. `rows[state][class]` is (emission, byte, next state)."""

    classes: bytes  #: class of each byte value
    states: tuple[State, ...]
    emissions: tuple[str, ...]  #: text by emission number; number 0 is the empty text
    rows: tuple[tuple[tuple[int, bool, int], ...], ...]
    final: tuple[int, ...]  #: emission number by state, at the end of the statement


@cache
def tables(lexis: Lexis) -> Tables:
    """Flatten the automaton: every state reachable from the beginning, breadth first."""
    states: dict[State, int] = {BEGIN: 0}
    emissions: dict[str, int] = {"": 0}
    rows = []
    queue = [BEGIN]
    for state in queue:
        row = []
        for cls in C:
            move = step(lexis, state, cls)
            if move.state not in states:
                states[move.state] = len(states)
                queue.append(move.state)
            row.append(
                (emissions.setdefault(move.text, len(emissions)), move.byte, states[move.state])
            )
        rows.append(tuple(row))
    final = tuple(emissions.setdefault(final_text(state), len(emissions)) for state in states)
    return Tables(
        bytes(class_of(byte) for byte in range(256)),
        tuple(states),
        tuple(emissions),
        tuple(rows),
        final,
    )
