# SPDX-License-Identifier: Apache-2.0
"""Evidence on a machine's power that outlives its trace: parameters by name, shapes by key.

A cell holds the evidence that some minutes of one source (a trace, a live view) give on the
parameters of one domain. Evidence in information form (precision, moment) adds up, so cells are
combined by addition, and a set of cells is merged with another by union: in any order, and any
number of times, with the same result. Recent cells keep the precision between shapes. Old ones are
folded: each shape then keeps its own precision and its row with the fixed parameters.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from qjoule.model.arrays import F64

U64 = npt.NDArray[np.uint64]
#: Half of a cell's evidence is left after this time, when cells of different ages are folded or
#: read.
HALF_LIFE_S = 30 * 86_400.0
#: How many ids a cell keeps. Ids begin with a time, so the latest are kept. Cells older than a full
#: list are left out, because the list can no longer show whether they were counted.
MAX_MEMBERS = 8_192
REST = "/rest"  #: ends the domain of cells on power at rest alone
_TOLERANCE = 1e-4  #: of a scaled precision matrix, for the rounding of the file


class Conditions(NamedTuple):
    """Conditions of one machine that can change its power. Empty: unknown."""

    kernel: str = ""  #: major and minor version
    governor: str = ""
    frequency: str = ""
    microcode: str = ""
    energy: str = ""  #: energy source and grade


@dataclass(frozen=True)
class Cell:
    """Evidence on (names, keys), in that order, from one source and one domain.

    `domain`: as in `Learner`, with "/time" appended where no counters were read, or "/rest" in
    cells on power at rest alone (`fit/earlier_blocks`). `when_s`: its end, s since 1970. `value`
    (f,): the values of `names` at which the model was linearised. `keys` (g,), sorted: ids of
    shapes (`qjoule.engine.accounts`). `releases` (g,): ids of the server release that ran each
    shape. `fresh` (g,): whether the shape had changed, which makes older evidence on it void.
    `fixed` (f, f), `cross` (g, f) and `own` (g, g), or (g,) if folded, are the precision matrix;
    `centred` (f + g,) is the moment of the parameters' differences from (value, 1). `spread`: prior
    standard deviation of the factors around 1. `members`, sorted: the ids of the cells that it was
    made from.
    """

    source: int
    domain: str
    when_s: float
    conditions: Conditions
    names: tuple[str, ...]
    value: F64
    keys: U64
    releases: U64
    fresh: npt.NDArray[np.bool_]
    fixed: F64
    cross: F64
    own: F64
    centred: F64
    spread: float
    members: U64
    anew: bool = False  #: the machine had changed, so that all older evidence is void

    @property
    def folded(self) -> bool:
        return self.own.ndim == 1

    @cached_property
    def moment(self) -> F64:
        return self.centred + self._at_centre

    @cached_property
    def _at_centre(self) -> F64:
        ones = np.ones(len(self.keys))
        own_moment = self.own if self.folded else self.own @ ones
        fixed_moment = self.fixed @ self.value + ones @ self.cross
        return np.append(fixed_moment, self.cross @ self.value + own_moment)

    @property
    def is_sound(self) -> bool:
        """Whether its precision matrix is positive semidefinite, within rounding."""
        if self.folded:
            positive = self.own > 0
            if self.cross[~positive].any():
                return False
            rows = self.cross[positive]
            matrix = self.fixed - (rows / self.own[positive, None]).T @ rows
        else:
            matrix = np.block([[self.fixed, self.cross.T], [self.cross, self.own]])
        diagonal = np.append(np.diag(self.fixed), [] if self.folded else np.diag(self.own))
        scale = np.sqrt(np.maximum(diagonal, 1e-30))
        try:
            np.linalg.cholesky(matrix / np.outer(scale, scale) + _TOLERANCE * np.eye(len(matrix)))
        except np.linalg.LinAlgError:
            return False
        return True

    def holding(self, fixed: F64, cross: F64, own: F64, moment: F64) -> Cell:
        """The cell with this evidence (precision blocks and moment) instead of its own."""
        uncentred = replace(self, fixed=fixed, cross=cross, own=own, centred=moment)
        return replace(uncentred, centred=moment - uncentred._at_centre)

    def stored(self) -> Cell:
        """The cell rounded to the precision of the file, so that writing and reading do not change
        it."""
        return replace(
            self,
            value=_rounded(self.value),
            fixed=_rounded(self.fixed),
            cross=_rounded(self.cross),
            own=_rounded(self.own),
            centred=_rounded(self.centred),
        )

    @cached_property
    def rank(self) -> tuple[float | int | bytes, ...]:
        """Sort key for cells that overlap: `union` keeps the greater one."""
        matrix = np.concatenate([self.fixed.ravel(), self.own.ravel(), self.centred])
        return (len(self.members), len(self.keys), self.when_s, matrix.tobytes())


def _rounded(values: F64) -> F64:
    return np.asarray(values, np.float32).astype(np.float64)


def union(cells: Iterable[Cell]) -> tuple[Cell, ...]:
    """The cells that are not contained in another, in an order that does not depend on the input's.

    Of two cells that overlap partly, the one with more members is kept, so that nothing counts
    twice.
    """
    selected: list[Cell] = []
    counted: set[int] = set()
    horizon: dict[str, int] = {}
    for cell in sorted(cells, key=lambda cell: cell.rank, reverse=True):
        members = set(cell.members.tolist())
        if int(cell.members[-1]) < horizon.get(cell.domain, 0):
            continue
        if len(members) >= MAX_MEMBERS:
            horizon[cell.domain] = max(horizon.get(cell.domain, 0), int(cell.members[0]))
        if members.isdisjoint(counted):
            selected.append(cell)
            counted |= members
    return tuple(sorted(selected, key=lambda cell: (cell.when_s, int(cell.members[0]))))
