# SPDX-License-Identifier: Apache-2.0
"""Shapes of SQL statements, in C (attribution/shapes). Python code uses `qjoule.shapes.sql`."""

from collections.abc import Callable
from typing import final

@final
class Lexer:
    """The lexical automaton of a family, for a session's settings.

    `moves`: 4,096 entries of 16 bits as in `qjoule.shapes.tables`. `columns`: the column of each
    byte value. `finals`, `modes`: a byte for each of 128 states. `resumed`: five states; see
    attribution/shapes/lexer.h. `emissions`: at most 128 texts of at most 8 characters. `safe_text`
    is called with text that is not printable ASCII, as characters that are bytes. `hints`: the
    lexer for the inside of hints, whose vocabulary this one shares; None: this lexer, with a new
    vocabulary, which has the words in `reserved` (lower case, separated by blanks) as keywords.
    `seed`: 64 bits for hashes. Raises `ValueError` for wrong tables.
    """

    def __init__(
        self,
        *,
        backtick: bool,
        moves: bytes,
        columns: bytes,
        finals: bytes,
        modes: bytes,
        resumed: bytes,
        emissions: tuple[str, ...],
        safe_text: Callable[[str], str],
        reserved: str,
        seed: int,
        hints: Lexer | None = None,
    ) -> None: ...
    def reduce(self, text: bytes, /) -> tuple[str, bool]:
        """As `qjoule.shapes.sql.reduce_statement`."""

    def tokens(self, reduced: str, /) -> list[tuple[int, str, bool]]:
        """Kind, text, and whether a blank stands before, of each token of a reduced statement."""

    def shape(self, reduced: str, truncated: bool, /) -> str:
        """The shape of a reduced statement, unbounded."""

    def quoted(self, name: str, /) -> str:
        """A name as a shape shows it."""
