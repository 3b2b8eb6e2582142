# SPDX-License-Identifier: Apache-2.0
"""The lexical automaton of SQL as a transition table, for the kernel side and for Python."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from qjoule.shapes.automaton import BEGIN, DIGITS_OF_NAME, C, State
from qjoule.shapes.rules import Lexis, class_by_rules
from qjoule.shapes.transitions import final_text, step


@dataclass(frozen=True)
class Tables:
    """The automaton of one `Lexis`. `rows[state][column]` is (emission, byte, next state); classes
    of bytes that do the same in every state share a column.
    """

    columns: tuple[int, ...]  #: column by class
    states: tuple[State, ...]
    emissions: tuple[str, ...]  #: text by emission number; number 0 is the empty text
    rows: tuple[tuple[tuple[int, bool, int], ...], ...]
    final: tuple[int, ...]  #: emission number by state, at the end of the statement


@cache
def tables(lexis: Lexis) -> Tables:
    """Flatten the automaton: every state reachable from the beginning, breadth first."""
    states: dict[State, int] = {BEGIN: 0}
    emissions: dict[str, int] = {"": 0, DIGITS_OF_NAME: 1}  # the same in every family
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
    columns = list(zip(*rows, strict=True))
    distinct = {column: number for number, column in enumerate(dict.fromkeys(columns))}
    return Tables(
        tuple(distinct[column] for column in columns),
        tuple(states),
        tuple(emissions),
        tuple(zip(*distinct, strict=True)),
        final,
    )


@cache
def classes(lexis: Lexis, rules: int) -> bytes:
    """The column of each byte value under these rules."""
    columns = tables(lexis).columns
    return bytes(columns[class_by_rules(lexis, rules, byte)] for byte in range(256))
