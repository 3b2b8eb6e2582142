# SPDX-License-Identifier: Apache-2.0
"""Which levels each run had, and the linear model of them.

Columns of a model may depend on each other (confounded effects, empty cells).

Names are never made into formulas: a factor is a column of level numbers, whatever its name.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import linalg

from qjoule.api import QjouleError

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

#: Columns of a model beyond which it is refused: memory and time grow with their square.
MOST_COLUMNS = 1000

#: Factors of one effect, by their numbers; `BLOCK` is the blocks' own.
Term = tuple[int, ...]
BLOCK: Term = (-1,)

BY = " \N{MULTIPLICATION SIGN} "  #: between the factors of an interaction


@dataclass(frozen=True)
class Design:
    """The factors of `runs` runs.

    Attributes:
        names: of the factors, as the plan has them (any text).
        levels: of each factor, as text for people; no two of one factor are the same.
        codes: (runs, factors): the number of each run's level.
        blocks: (runs,): the number of each run's block; None where there is one or no block.
    """

    names: tuple[str, ...]
    levels: tuple[tuple[str, ...], ...]
    codes: Ints
    blocks: Ints | None = None

    @property
    def runs(self) -> int:
        return len(self.codes)

    @property
    def cells(self) -> Ints:
        """(runs,): the number of each run's combination of levels; empty ones have no number."""
        if not self.names:
            return np.zeros(self.runs, dtype=np.int64)
        _, cell = np.unique(self.codes, axis=0, return_inverse=True)
        return cell.reshape(-1).astype(np.int64)

    @property
    def combinations(self) -> tuple[tuple[str, ...], ...]:
        """The levels of each combination, in the order of `cells`."""
        if not self.names:
            return ((),)
        distinct = np.unique(self.codes, axis=0)
        return tuple(
            tuple(levels[code] for levels, code in zip(self.levels, row, strict=True))
            for row in distinct
        )

    @property
    def complete(self) -> bool:
        """Whether every combination of levels has a run."""
        return len(np.unique(self.codes, axis=0)) == int(np.prod([len(x) for x in self.levels]))

    def name(self, term: Term) -> str:
        return "block" if term == BLOCK else BY.join(self.names[factor] for factor in term)

    def terms(self, order: int) -> list[Term]:
        """Every effect of up to `order` factors, the blocks' first."""
        factors = range(len(self.names))
        chosen: list[Term] = [] if self.blocks is None else [BLOCK]
        for size in range(1, order + 1):
            chosen += itertools.combinations(factors, size)
        return chosen

    def columns(self, term: Term) -> Floats:
        """(runs, degrees of freedom): contrasts that sum to zero over the levels (R's contr.sum).

        Only with such contrasts does a type III table test main effects at the mean of the other
        factors' levels.

        Raises:
            QjouleError: there would be more than `MOST_COLUMNS`.
        """
        if term == BLOCK:
            assert self.blocks is not None
            return _sum_to_zero(self.blocks, int(self.blocks.max()) + 1)
        sizes = [len(self.levels[factor]) for factor in term]
        if int(np.prod([size - 1 for size in sizes])) > MOST_COLUMNS:
            many = max(term, key=lambda factor: len(self.levels[factor]))
            raise QjouleError(
                f"factor {self.names[many]} has {len(self.levels[many])} levels, too many to "
                "compare: leave it out with --factors, or name fewer levels in the plan"
            )
        columns = np.ones((self.runs, 1))
        for factor, size in zip(term, sizes, strict=True):
            own = _sum_to_zero(self.codes[:, factor], size)
            columns = (columns[:, :, None] * own[:, None, :]).reshape(self.runs, -1)
        return columns


def _sum_to_zero(codes: Ints, levels: int) -> Floats:
    rows = np.vstack([np.eye(levels - 1), -np.ones((1, levels - 1))])
    chosen: Floats = rows[codes]
    return chosen


def encode(column: Sequence[Any]) -> tuple[Ints, tuple[str, ...]]:
    """Numbers of levels, and the levels as text: numbers by size, else as they first appear.

    A text, a number and a truth value are different levels even where Python has them equal.
    """
    keys = [_key(value) for value in column]
    distinct = list(dict.fromkeys(keys))
    if all(kind == "number" for kind, _ in distinct):
        distinct.sort(key=lambda key: key[1])
    labels = [_label(value) for _, value in distinct]
    if len(set(labels)) < len(labels):
        labels = [repr(value) for _, value in distinct]
    number = {key: index for index, key in enumerate(distinct)}
    return np.array([number[key] for key in keys], dtype=np.int64), tuple(labels)


def _key(value: Any) -> tuple[str, Any]:
    if isinstance(value, bool | np.bool_):
        return "truth", bool(value)
    if isinstance(value, int | float | np.number):
        return _number(value)
    return "text", str(value)


def _label(value: Any) -> str:
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 else f"{value:.12g}"
    return str(value)


def blocks_of(column: Sequence[Any] | None) -> Ints | None:
    """Numbers of blocks, or None where there are not at least two."""
    if column is None:
        return None
    codes, levels = encode(["\N{EN DASH}" if pd.isna(value) else value for value in column])
    return codes if len(levels) > 1 else None


def _number(value: Any) -> tuple[str, Any]:
    try:
        return "number", float(value)
    except OverflowError:  # JSON has integers of any size
        return "text", str(value)


#: A sum of squares below this share of the total is rounding.
ROUNDING = 1e-20


@dataclass(frozen=True)
class Fit:
    """`basis` (runs, rank): orthonormal, spans the model's columns and the constant."""

    basis: Floats
    residuals: Floats

    @property
    def rank(self) -> int:
        return int(self.basis.shape[1])

    @property
    def df_error(self) -> int:
        return len(self.residuals) - self.rank

    @property
    def sum_sq_error(self) -> float:
        return float(self.residuals @ self.residuals)

    @property
    def leverage(self) -> Floats:
        return np.asarray(np.sum(self.basis**2, axis=1))


def fit(values: Floats, columns: list[Floats]) -> Fit:
    """The model of a constant and these columns."""
    runs = len(values)
    model = np.hstack([np.ones((runs, 1)), *columns])
    basis = linalg.orth(model, max(model.shape) * np.finfo(float).eps * 8)
    centred = values - values.mean()  # the constant is in the model: fewer digits are lost
    if np.ptp(values) <= 8 * np.finfo(float).eps * abs(values.mean()):
        centred = np.zeros(runs)  # what is left is the mean's rounding
    residuals = centred - basis @ (basis.T @ centred)
    return Fit(basis, residuals)
