# SPDX-License-Identifier: Apache-2.0
"""The evidence of earlier traces about the parameters of a block: aged, then added up.

The law of ageing. A parameter now is what it was then, plus a drift. Evidence on what it was then
is evidence on what it is now with the drift's covariance added to its own: however certain it was,
it cannot be more certain than the drift allows. Drift is common to all cells of one source, and
grows with age to a bound. Besides, the weight of evidence halves every 30 days.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from qjoule.model.arrays import F64
from qjoule.model.energy import I64
from qjoule.model.fit.block import Evidence
from qjoule.model.fit.cell_algebra import changed_since, outdated, restricted, since_anew
from qjoule.model.fit.cells import HALF_LIFE_S, U64, Cell, Conditions, MemoryReport

#: Drift (1 sigma) relative to a parameter's value, as a calibration's: leakage follows temperature.
_IDLE_DRIFT, _SHARED_DRIFT, _SCALE_DRIFT = 0.02, 0.05, 0.03
#: Of a shape's factor: data and plans change. The second part is reached after a week.
_FACTOR_DRIFT, _FACTOR_PER_WEEK = 0.015, 0.02
#: Of a shape's factor on another version of its server.
_RELEASE_DRIFT = 0.10
#: A machine's temperature follows its load within minutes.
_SETTLES_S = 300.0
_WEEK_S, _MOST_WEEKS = 7 * 86_400.0, 13.0
_LEAST_WEIGHT = 1.0 / 16.0  #: of evidence, however old
#: What all traces of a machine may have wrong in common, relative to their drift: it is in their
#: sum however many they are.
_COMMON = 1.0
#: Drift is this many times as large if a condition is another than it was.
_CHANGED = {"kernel": 2.0, "microcode": 2.0, "governor": 4.0, "frequency": 4.0, "energy": 2.0}
#: Parameters without a unit, which do not drift with the others.
_RATIOS = ("alpha", "k", "beta", "e")


class Memory(Protocol):
    """The evidence of earlier traces that a learner gets, and the evidence that it returns.

    Classes are group numbers.
    """

    def recall(
        self, domain: str, names: Sequence[str], classes: I64, widened: float = 1.0
    ) -> Recalled:
        """Evidence on (names, classes) of a block that is about to be learned from.

        `widened`: how many times further than usual the machine may have drifted.
        """

    def refused(self, domain: str, *, at_once: bool = False) -> None:
        """What is remembered of a domain contradicts the block that is learned from next.

        It is void if that holds for all blocks of a cell, or `at_once`.
        """

    def changed(self, classes: I64) -> list[str]:
        """These classes have changed, in all domains: their evidence is void from now on. Returns
        their names."""

    def learned(self, domain: str, names: Sequence[str], classes: I64, block: Learned) -> None:
        """Called with the evidence of each block that was kept."""


@dataclass(frozen=True)
class Learned:
    """The evidence of one block on (names, classes), linearised at `value`, and its spread.

    `end_ns`: the block's end, on the trace's clock.
    """

    evidence: Evidence
    value: F64
    spread: float
    end_ns: int


@dataclass(frozen=True)
class Recalled:
    """Evidence on (names, classes); `known` (classes,): whether there is any on each class."""

    evidence: Evidence
    known: npt.NDArray[np.bool_]

    @property
    def some(self) -> bool:
        return bool(self.evidence.precision.any())

    def drifted(self, root: F64) -> Recalled:
        """After a drift with covariance `root` (p, m) times its transpose."""
        told = _drifted(MemoryReport(self.evidence.precision, self.evidence.moment), root)
        return Recalled(Evidence(told.precision, told.moment), self.known)

    def without(self, column: int, spread: float) -> Recalled:
        """Without the evidence on one class, which is integrated out under its prior."""
        fixed = len(self.evidence.moment) - len(self.known)
        at = fixed + column
        precision, moment = self.evidence.precision.copy(), self.evidence.moment.copy()
        own = precision[at, at] + spread**-2.0
        cross = precision[:, at].copy()
        cross[at] = 0.0
        precision -= np.outer(cross, cross) / own
        moment -= cross * (moment[at] + spread**-2.0) / own
        precision[at, :] = precision[:, at] = moment[at] = 0.0
        known = self.known.copy()
        known[column] = False
        return Recalled(Evidence(precision, moment), known)


def nothing(names: int, classes: int) -> Recalled:
    """No evidence."""
    return Recalled(Evidence.none(names + classes), np.zeros(classes, bool))


class Now(NamedTuple):
    """When, and under which conditions, evidence is used; `widened`: see `Memory.recall`."""

    when_s: float
    conditions: Conditions
    widened: float = 1.0


class Asked(NamedTuple):
    """The parameters that evidence is wanted on.

    `keys`: shapes, sorted; `releases`, parallel: the servers' that run them now.
    """

    domain: str
    names: tuple[str, ...]
    keys: U64
    releases: U64


def recalled(cells: Sequence[Cell], asked: Asked, now: Now) -> MemoryReport:
    """Evidence on names and keys, in that order, of all cells of a domain."""
    domain, names, keys, releases = asked
    mine = since_anew([cell for cell in cells if cell.domain == domain])
    size = len(names) + len(keys)
    total = MemoryReport(np.zeros((size, size)), np.zeros(size))
    since = changed_since(mine)
    sources: dict[tuple[int, Conditions], list[Cell]] = {}
    for cell in mine:
        sources.setdefault((cell.source, cell.conditions), []).append(cell)
    youngest = np.inf
    for (_, conditions), several in sorted(sources.items()):
        told = MemoryReport(np.zeros((size, size)), np.zeros(size))
        other = np.zeros(len(keys), bool)  # shapes that ran on another release
        for cell in several:
            one = restricted(cell, names, keys, outdated(cell, since))
            told.precision[:] += one.precision
            told.moment[:] += one.moment
            at = np.minimum(np.searchsorted(cell.keys, keys), max(len(cell.keys) - 1, 0))
            if len(cell.keys):
                other |= (cell.keys[at] == keys) & (cell.releases[at] != releases)
        age_s = abs(now.when_s - max(cell.when_s for cell in several))
        value = _values(several, names)
        widened = now.widened * _widening(conditions, now.conditions)
        drift = _drift(names, value, age_s, widened, other)
        aged = _drifted(told, drift)
        weight = max(0.5 ** (age_s / HALF_LIFE_S), _LEAST_WEIGHT)
        total.precision[:] += weight * aged.precision
        total.moment[:] += weight * aged.moment
        youngest = min(youngest, age_s)
    if np.isfinite(youngest):
        value = _values(mine, names)
        common = _drift(names, value, youngest, _COMMON * now.widened, np.zeros(len(keys), bool))
        return _drifted(total, common)
    return total


def _values(cells: Sequence[Cell], names: Sequence[str]) -> F64:
    """Values of `names`, by the latest cells that know them."""
    out = np.zeros(len(names))
    for cell in sorted(cells, key=lambda one: one.when_s):
        for name, value in zip(cell.names, cell.value.tolist(), strict=True):
            if name in names:
                out[names.index(name)] = value
    return out


def _widening(then: Conditions, now: Conditions) -> float:
    """How many times further the machine may have drifted because conditions changed."""
    out = 1.0
    for name, factor in _CHANGED.items():
        a, b = getattr(then, name), getattr(now, name)
        if a and b and a != b:
            out *= factor
    return out


def _drift(
    names: Sequence[str],
    value: F64,
    age_s: float,
    widened: float,
    other: npt.NDArray[np.bool_],
) -> F64:
    """A root of the drift's covariance, (p, m): its product with its transpose."""
    ramp = 1.0 if widened > 1.0 else float(np.sqrt(-np.expm1(-age_s / _SETTLES_S)))
    weeks = min(age_s / _WEEK_S, _MOST_WEEKS)
    factor = np.full(len(other), np.hypot(_FACTOR_DRIFT * ramp, _FACTOR_PER_WEEK * weeks**0.5))
    factor = np.hypot(widened * factor, np.where(other, _RELEASE_DRIFT, 0.0))
    alone, together = np.zeros(len(names)), np.zeros(len(names))
    for i, name in enumerate(names):
        kind = name.partition(".")[0]
        if kind == "idle_w":
            alone[i] = _IDLE_DRIFT * value[i]
        elif kind == "shared_w":
            alone[i] = _SHARED_DRIFT * value[i]
        elif kind not in _RATIOS:
            together[i] = _SCALE_DRIFT * value[i]
    size = len(names) + len(other)
    out = np.zeros((size, size + 1))
    at = np.arange(size)
    out[at, at] = np.append(ramp * widened * np.abs(alone), factor)
    out[: len(names), -1] = ramp * widened * together
    return out[:, out.any(axis=0)]


def _drifted(told: MemoryReport, root: F64) -> MemoryReport:
    """Evidence on a parameter now, from evidence on what it was before a drift."""
    if not root.shape[1]:
        return told
    left = told.precision @ root
    inner = np.eye(root.shape[1]) + root.T @ left
    solved = np.linalg.solve(inner, np.column_stack([left.T, root.T @ told.moment]))
    precision = told.precision - left @ solved[:, :-1]
    return MemoryReport((precision + precision.T) / 2.0, told.moment - left @ solved[:, -1])


def by_key(
    told: Callable[[U64, U64], MemoryReport], names: int, keys: U64, releases: U64
) -> Recalled:
    """Evidence by class from evidence by key. `keys` (classes,): 0 for a class without one.

    If classes have one key, the first of them has its evidence.
    """
    some = np.flatnonzero(keys)
    unique, first = np.unique(keys[some], return_index=True)
    column = some[first]
    found = told(unique, releases[column])
    at = np.append(np.arange(names), names + column).astype(np.int64)
    out = nothing(names, len(keys))
    out.evidence.precision[np.ix_(at, at)] = found.precision
    out.evidence.moment[at] = found.moment
    out.known[column] = np.diag(found.precision)[names:] > 0
    return out
