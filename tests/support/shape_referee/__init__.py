# SPDX-License-Identifier: Apache-2.0
"""Shapes in plain Python, as the referee of the C in attribution/shapes: equal for every text.

`shape` takes a reduced statement as `Lexer.shape` does, `reduce_statement` a statement as
`Lexer.reduce`. The rules of shapes are documented at both, so a change is made in both.
"""

from qjoule.shapes.lexis import Lexis
from shape_referee.folding import generated_names_masked, values_folded
from shape_referee.lists import lists_collapsed
from shape_referee.reduction import reduce_statement
from shape_referee.rendering import quoted, render
from shape_referee.tokens import tokens

__all__ = ["quoted", "reduce_statement", "shape", "tokens"]


def shape(reduced: str, truncated: bool, lexis: Lexis) -> str:
    """The shape of a reduced statement, unbounded."""
    folded = generated_names_masked(values_folded(tokens(reduced, lexis), lexis))
    return render(lists_collapsed(folded, truncated), lexis)
