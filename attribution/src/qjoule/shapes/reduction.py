# SPDX-License-Identifier: Apache-2.0
"""Runs a statement through the lexical automaton and keeps the structure.

The kernel side hashes the emitted text; shapes are computed from the same text, so equal hash
implies equal shape. What the automaton can only emit raw (see :mod:`qjoule.shapes.automaton`) is
resolved here exactly, since all raw bytes are present.

Linear in the length of the statement, even for hostile text: runs of bytes that keep the state are
skipped by one regular expression of a single character class, everything else takes one table
look-up per byte.
"""

from __future__ import annotations

import re
from functools import cache

from qjoule.shapes.automaton import (
    COMMENT_DEPTH_MAX,
    RAW_COMMENT,
    RAW_TAG,
    SPACE,
    STRING,
    Mode,
    State,
)
from qjoule.shapes.lexis import Lexis
from qjoule.shapes.tables import Tables, tables

#: characters kept of a reduced statement: eight times what the kernel side reads
REDUCED_MAX = 32768
_COMMENT_EDGE = re.compile(rb"/\*|\*/")


def symbols(text: bytes, lexis: Lexis) -> list[tuple[int, int | None]]:
    """What the kernel side hashes: (emission, byte or None) per emitting byte, then the final one.

    For tests that compare the two sides; :func:`reduce_statement` is the fast way.
    """
    table = tables(lexis)
    state, out = 0, []
    for byte in text:
        emission, emits_byte, state = table.rows[state][table.classes[byte]]
        if emission or emits_byte:
            out.append((emission, byte if emits_byte else None))
    return [*out, (table.final[state], None)]


def reduce_statement(text: bytes, lexis: Lexis) -> tuple[str, bool]:
    """The statement without literals and comments, and whether it was cut at REDUCED_MAX.

    Characters below U+0100 are the statement's bytes, literals are the marks of
    :mod:`qjoule.shapes.automaton`; runs of whitespace and comments are one blank, or nothing at
    either end.
    """
    reduced = _Reduction(text, lexis).run()
    return reduced[:REDUCED_MAX], len(reduced) > REDUCED_MAX


@cache
def _runs(lexis: Lexis) -> tuple[tuple[re.Pattern[bytes], bool] | None, ...]:
    """By state: the bytes that keep it, and whether they are emitted unchanged."""
    table = tables(lexis)
    runs: list[tuple[re.Pattern[bytes], bool] | None] = []
    for number, row in enumerate(table.rows):
        found = None
        for emitted in (True, False):
            members = [
                byte for byte in range(256) if row[table.classes[byte]] == (0, emitted, number)
            ]
            if members and found is None:
                classes = b"".join(b"\\x%02x" % byte for byte in members)
                found = (re.compile(b"[" + classes + b"]++"), emitted)
        runs.append(found)
    return tuple(runs)


@cache
def _numbers(lexis: Lexis) -> dict[State, int]:
    return {state: number for number, state in enumerate(tables(lexis).states)}


@cache
def _special(lexis: Lexis) -> frozenset[int]:
    """The states whose transitions need more than the table."""
    return frozenset(
        number
        for number, state in enumerate(tables(lexis).states)
        if state.mode in (Mode.RAW, Mode.VERSION, Mode.STAR_SLASH)
    )


class _Reduction:
    def __init__(self, text: bytes, lexis: Lexis) -> None:
        self.text = text
        self.table: Tables = tables(lexis)
        self.runs = _runs(lexis)
        self.numbers = _numbers(lexis)
        self.special = _special(lexis)
        self.out: list[str] = []  # pieces that are not empty
        self.in_version_comment = False

    def run(self) -> str:
        text, table, runs, out = self.text, self.table, self.runs, self.out
        special = self.special
        state, at, end = 0, 0, len(text)
        while at < end and len(out) <= REDUCED_MAX:
            run = runs[state]
            if run and (match := run[0].match(text, at)):
                if run[1]:
                    out.append(match[0].decode("latin-1"))
                at = match.end()
                if at == end:
                    break
            byte = text[at]
            emission, emits_byte, following = table.rows[state][table.classes[byte]]
            if following in special or state in special:
                if self.table.states[following].mode is Mode.RAW:
                    following, at = self._resolve(table.emissions[emission], at)
                    state = following
                    continue
                self._note_version_comment(state, following)
            if emission:
                out.append(table.emissions[emission])
            if emits_byte:
                out.append(chr(byte))
            state = following
            at += 1
        out.append(table.emissions[table.final[state]])
        return "".join(out)

    def _note_version_comment(self, state: int, following: int) -> None:
        if self.table.states[following].mode is Mode.VERSION:
            self.in_version_comment = True
        elif self.table.states[state].mode is Mode.STAR_SLASH:
            self.in_version_comment = False

    def _resolve(self, emission: str, at: int) -> tuple[int, int]:
        """Decides what the automaton could not. Returns the state and position to continue from."""
        if emission.endswith(RAW_TAG):
            return self._dollar_quoted(at)
        if emission.endswith(RAW_COMMENT):
            return self._deep_comment(at)
        if self.in_version_comment:  # `*/` closed it, and this `*` is an operator
            self.in_version_comment = False
            self.out.append("/*")
            return self.numbers[State(Mode.STAR)], at + 1
        return self.numbers[State(Mode.BLOCK_OPEN, "/*")], at + 1

    def _dollar_quoted(self, at: int) -> tuple[int, int]:
        tag = self.text[self.text.rindex(b"$", 0, at) : at + 1]
        emitted = ""
        while len(emitted) < len(tag) - 1:
            emitted = self.out.pop() + emitted
        self.out.append(emitted[: len(emitted) - len(tag) + 1] + STRING)
        close = self.text.find(tag, at + 1)
        return self.numbers[State(Mode.START)], (close + len(tag) if close >= 0 else len(self.text))

    def _deep_comment(self, at: int) -> tuple[int, int]:
        depth = COMMENT_DEPTH_MAX + 1
        for edge in _COMMENT_EDGE.finditer(self.text, at + 1):
            depth += 1 if edge[0] == b"/*" else -1
            if not depth:
                return self.numbers[SPACE], edge.end()
        return self.numbers[State(Mode.BLOCK, depth=1)], len(self.text)
