# SPDX-License-Identifier: Apache-2.0
"""Runs a statement through the lexical automaton and keeps the structure.

What the automaton can only emit raw (see :mod:`qjoule.shapes.automaton`) is resolved exactly, since
all raw bytes are present. `attribution/shapes/reduction.c` does the same faster.
"""

from __future__ import annotations

import re

from qjoule.shapes.automaton import (
    COMMENT_DEPTH_MAX,
    DIGITS_OF_NAME,
    NAME_DIGITS_MAX,
    RAW_COMMENT,
    RAW_TAG,
    SPACE,
    STRING,
    Mode,
    State,
)
from qjoule.shapes.lexis import Lexis
from qjoule.shapes.rules import COUNTS
from qjoule.shapes.tables import classes, tables

#: characters kept of a reduced statement: eight times what the kernel side reads
REDUCED_MAX = 32768
_LAST_DIGITS = re.compile(rb"[0-9]*\Z")
_COMMENT_EDGE = re.compile(rb"/\*|\*/")


def reduce_statement(text: bytes, lexis: Lexis, rules: int | None = None) -> tuple[str, bool]:
    """The statement without literals and comments, and whether it was cut at REDUCED_MAX.

    As `qjoule.shapes.reduction.reduce_statement`.
    """
    reduced = _Reduction(text, lexis, COUNTS[lexis].default if rules is None else rules).run()
    return reduced[:REDUCED_MAX], len(reduced) > REDUCED_MAX


class _Reduction:
    def __init__(self, text: bytes, lexis: Lexis, rules: int) -> None:
        self.text = text
        self.table = tables(lexis)
        self.columns = classes(lexis, rules)
        self.modes = [state.mode for state in self.table.states]
        self.out: list[str] = []  # pieces that are not empty
        self.in_version_comment = False

    def run(self) -> str:
        text, table, out = self.text, self.table, self.out
        state = at = 0
        while at < len(text) and len(out) <= REDUCED_MAX:
            byte = text[at]
            emission, emits_byte, following = table.rows[state][self.columns[byte]]
            if self.modes[following] is Mode.RAW:
                state, at = self._resolve(table.emissions[emission], at)
                continue
            if self.modes[following] is Mode.VERSION:
                self.in_version_comment = True
            elif self.modes[state] is Mode.STAR_SLASH:
                self.in_version_comment = False
            if emission:
                out.append(table.emissions[emission])
                if out[-1] == DIGITS_OF_NAME:  # the digits that the kernel side still has
                    before = _LAST_DIGITS.search(text[max(at - NAME_DIGITS_MAX, 0) : at])
                    out.append(before[0].decode() if before else "")
            if emits_byte:
                out.append(chr(byte))
            state = following
            at += 1
        out.append(table.emissions[table.final[state]])
        return "".join(out)

    def _number(self, state: State) -> int:
        return self.table.states.index(state)

    def _resolve(self, emission: str, at: int) -> tuple[int, int]:
        """Decides what the automaton could not. Returns the state and position to continue from."""
        if emission.endswith(RAW_TAG):
            return self._dollar_quoted(at)
        if emission.endswith(RAW_COMMENT):
            return self._deep_comment(at)
        if self.in_version_comment:  # `*/` closed it, and this `*` is an operator
            self.in_version_comment = False
            self.out.append("/*")
            return self._number(State(Mode.STAR)), at + 1
        return self._number(State(Mode.BLOCK_OPEN, "/*")), at + 1

    def _dollar_quoted(self, at: int) -> tuple[int, int]:
        tag = self.text[self.text.rindex(b"$", 0, at) : at + 1]
        emitted = ""
        while len(emitted) < len(tag) - 1:
            emitted = self.out.pop() + emitted
        self.out.append(emitted[: len(emitted) - len(tag) + 1] + STRING)
        close = self.text.find(tag, at + 1)
        following = close + len(tag) if close >= 0 else len(self.text)
        return self._number(State(Mode.START)), following

    def _deep_comment(self, at: int) -> tuple[int, int]:
        depth = COMMENT_DEPTH_MAX + 1
        for edge in _COMMENT_EDGE.finditer(self.text, at + 1):
            depth += 1 if edge[0] == b"/*" else -1
            if not depth:
                return self._number(SPACE), edge.end()
        return self._number(State(Mode.BLOCK, depth=1)), len(self.text)
