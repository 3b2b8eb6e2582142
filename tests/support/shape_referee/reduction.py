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
from qjoule.shapes.tables import Tables, classes, tables

#: characters kept of a reduced statement: eight times what the kernel side reads
REDUCED_MAX = 32768
_LAST_DIGITS = re.compile(rb"[0-9]*\Z")
_COMMENT_EDGE = re.compile(rb"/\*|\*/")


def _known(lexis: Lexis, rules: int | None) -> int:
    return COUNTS[lexis].default if rules is None else rules


def _digits_before(text: bytes, at: int) -> bytes:
    """The digits before a place that the kernel side still has."""
    found = _LAST_DIGITS.search(text[max(at - NAME_DIGITS_MAX, 0) : at])
    return found[0] if found else b""


def reduce_statement(text: bytes, lexis: Lexis, rules: int | None = None) -> tuple[str, bool]:
    """The statement without literals and comments, and whether it was cut at REDUCED_MAX.

    Characters below U+0100 are the statement's bytes, literals are the marks of
    :mod:`qjoule.shapes.automaton`; runs of whitespace and comments are one blank, or nothing at
    either end. `rules`: number of the session's rules (:mod:`qjoule.shapes.rules`); None: those of
    a server by default.
    """
    reduced = _Reduction(text, lexis, _known(lexis, rules)).run()
    return reduced[:REDUCED_MAX], len(reduced) > REDUCED_MAX


@cache
def _runs(lexis: Lexis, rules: int) -> tuple[tuple[re.Pattern[bytes], bool] | None, ...]:
    """By state: the bytes that keep it, and whether they are emitted unchanged."""
    table, column = tables(lexis), classes(lexis, rules)
    runs: list[tuple[re.Pattern[bytes], bool] | None] = []
    for number, row in enumerate(table.rows):
        found = None
        for emitted in (True, False):
            members = [byte for byte in range(256) if row[column[byte]] == (0, emitted, number)]
            if members and found is None:
                listed = b"".join(b"\\x%02x" % byte for byte in members)
                found = (re.compile(b"[" + listed + b"]++"), emitted)
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
    def __init__(self, text: bytes, lexis: Lexis, rules: int) -> None:
        self.text = text
        self.table: Tables = tables(lexis)
        self.columns = classes(lexis, rules)
        self.runs = _runs(lexis, rules)
        self.numbers = _numbers(lexis)
        self.special = _special(lexis)
        self.out: list[str] = []  # pieces that are not empty
        self.in_version_comment = False

    def run(self) -> str:
        text, table, runs, out = self.text, self.table, self.runs, self.out
        columns = self.columns
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
            emission, emits_byte, following = table.rows[state][columns[byte]]
            if following in special or state in special:
                if self.table.states[following].mode is Mode.RAW:
                    following, at = self._resolve(table.emissions[emission], at)
                    state = following
                    continue
                self._note_version_comment(state, following)
            if emission:
                emitted = table.emissions[emission]
                out.append(emitted)
                if emitted == DIGITS_OF_NAME:
                    out.append(_digits_before(text, at).decode())
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
