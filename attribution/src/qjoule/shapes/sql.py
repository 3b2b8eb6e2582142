# SPDX-License-Identifier: Apache-2.0
"""The shape of a statement in any SQL dialect.

No SQL parser (sqlglot, sqlparse) is used. Both need a complete statement and build trees or token
lists of unbounded size. Neither handles a cut statement in time linear in its length. Neither could
guarantee that it takes the same bytes for literals as the kernel side's hash. Shapes are computed
from what the shared automaton emits (:mod:`qjoule.shapes.automaton`), which gives that guarantee.
"""

from __future__ import annotations

from collections.abc import Callable

from qjoule.shapes.lexers import lexer
from qjoule.shapes.lexis import Lexis
from qjoule.shapes.reduction import reduce_statement
from qjoule.shapes.safe_text import ended
from qjoule.shapes.tokens import closed_early, known_part, strip_ellipsis


def sql_shape(
    text: bytes,
    truncated: bool,
    lexis: Lexis,
    fold: Callable[[str], str] = str,
    rules: int | None = None,
) -> tuple[str, bool]:
    """The whole shape of a statement, and whether it is truncated.

    Args:
        text: any bytes.
        truncated: the statement went on after them.
        lexis: the lexical rules.
        fold: what else the language takes for literals, on the reduced statement.
        rules: number of the session's rules; None: those of a server by default.
    """
    reduced, truncated = reduced_sql(text, truncated, lexis, fold, rules)
    return ended(lexer(lexis).shape(reduced, truncated), truncated), truncated


def reduced_sql(
    text: bytes,
    truncated: bool,
    lexis: Lexis,
    fold: Callable[[str], str] = str,
    rules: int | None = None,
) -> tuple[str, bool]:
    """The statement without literals and comments, and whether it is truncated: see `sql_shape`."""
    reduced, cut = reduce_statement(text, lexis, rules)
    reduced, stripped = strip_ellipsis(fold(reduced))
    reduced, truncated = closed_early(reduced, truncated or cut or stripped)
    known = known_part(reduced) if lexis is Lexis.BACKTICK else reduced
    return known, truncated or len(known) < len(reduced)
