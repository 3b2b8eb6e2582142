# SPDX-License-Identifier: Apache-2.0
"""The evidence of earlier traces about the parameters of a block: aged, then added up.

How evidence ages: the present value of a parameter is its earlier value plus a drift. So the
covariance of the drift is added to that of the earlier estimate, and old evidence is never more
certain than the drift allows. Drift is common to all cells of one source, and grows with age to a
bound. In addition, the weight of evidence halves every 30 days.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from qjoule.model.arrays import F64
from qjoule.model.energy import I64
from qjoule.model.fit.cell_algebra import changed_since, outdated, restricted, since_anew
from qjoule.model.fit.cells import HALF_LIFE_S, U64, Cell, Conditions
from qjoule.model.fit.evidence import Evidence

#: Drift (1 sigma) relative to a parameter's value, as a calibration's: leakage follows temperature.
_IDLE_DRIFT, _SHARED_DRIFT, _SCALE_DRIFT = 0.02, 0.05, 0.03
#: Of a shape's factor: data and plans change. The second part is reached after a week.
_FACTOR_DRIFT, _FACTOR_PER_WEEK = 0.015, 0.02
#: Of a shape's factor on another version of its server.
_RELEASE_DRIFT = 0.10
#: A machine's temperature follows its load within minutes.
_SETTLING_S = 300.0
_WEEK_S, _MOST_WEEKS = 7 * 86_400.0, 13.0
_LEAST_WEIGHT = 1.0 / 16.0  #: of evidence, however old
#: Error common to all traces of a machine, relative to their drift. It does not average out.
_COMMON_DRIFT = 1.0
#: Drift is this many times as large if a condition has changed.
_CHANGED = {"kernel": 2.0, "microcode": 2.0, "governor": 4.0, "frequency": 4.0, "energy": 2.0}
#: Parameters without a unit, which do not drift with the others.
_RATIOS = ("alpha", "k", "beta", "e")


class Memory(Protocol):
    """Gives a learner the evidence of earlier traces, and receives that of its own blocks.

    Classes are group numbers.
    """

    def recall(
        self, domain: str, names: Sequence[str], classes: I64, widened: float = 1.0
    ) -> Recalled:
        """Evidence on (names, classes) of a block that is about to be learned from.

        `widened`: how many times further than usual the machine may have drifted.
        """

    def refused(self, domain: str, *, at_once: bool = False) -> None:
        """Reports that the memory of a domain contradicts the next block.

        The memory becomes void if that holds for all blocks of a cell, or immediately if `at_once`.
        """

    def changed(self, classes: I64) -> list[str]:
        """Reports that these classes have changed, in all domains, so that their earlier evidence
        is void. Returns their names."""

    def learned(
        self, domain: str, names: Sequence[str], classes: I64, block: BlockEvidence
    ) -> None:
        """Receives the evidence of each block that is kept."""


@dataclass(frozen=True)
class BlockEvidence:
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
    def any_evidence(self) -> bool:
        return bool(self.evidence.precision.any())

    def drifted(self, root: F64) -> Recalled:
        """The evidence after a drift whose covariance is `root` (p, m) times its transpose."""
        return Recalled(self.evidence.drifted(root), self.known)

    def without(self, column: int, spread: float) -> Recalled:
        """The evidence without that on one class, which is integrated out under its prior."""
        fixed = len(self.evidence.moment) - len(self.known)
        index = fixed + column
        precision, moment = self.evidence.precision.copy(), self.evidence.moment.copy()
        class_precision = precision[index, index] + spread**-2.0
        cross = precision[:, index].copy()
        cross[index] = 0.0
        precision -= np.outer(cross, cross) / class_precision
        moment -= cross * (moment[index] + spread**-2.0) / class_precision
        precision[index, :] = precision[:, index] = moment[index] = 0.0
        known = self.known.copy()
        known[column] = False
        return Recalled(Evidence(precision, moment), known)


def nothing(names: int, classes: int) -> Recalled:
    """No evidence."""
    return Recalled(Evidence.none(names + classes), np.zeros(classes, bool))


class Now(NamedTuple):
    """The time and the conditions at which evidence is used; `widened`: see `Memory.recall`."""

    when_s: float
    conditions: Conditions
    widened: float = 1.0


class EvidenceQuery(NamedTuple):
    """The parameters that evidence is wanted on.

    `keys`: ids of shapes, sorted. `releases`: for each, the release of the server that runs it now.
    """

    domain: str
    names: tuple[str, ...]
    keys: U64
    releases: U64


def combined_evidence(cells: Sequence[Cell], query: EvidenceQuery, now: Now) -> Evidence:
    """Evidence on names and keys, in that order, of all cells of a domain."""
    domain, names, keys, releases = query
    domain_cells = since_anew([cell for cell in cells if cell.domain == domain])
    size = len(names) + len(keys)
    total = Evidence.none(size)
    changes = changed_since(domain_cells)
    sources: dict[tuple[int, Conditions], list[Cell]] = {}
    for cell in domain_cells:
        sources.setdefault((cell.source, cell.conditions), []).append(cell)
    youngest = np.inf
    for (_, conditions), source_cells in sorted(sources.items()):
        source_evidence = Evidence.none(size)
        other_release = np.zeros(len(keys), bool)  # shapes that ran on another release
        for cell in source_cells:
            cell_evidence = restricted(cell, names, keys, outdated(cell, changes))
            source_evidence = source_evidence.plus(cell_evidence)
            positions = np.minimum(np.searchsorted(cell.keys, keys), max(len(cell.keys) - 1, 0))
            if len(cell.keys):
                other_release |= (cell.keys[positions] == keys) & (
                    cell.releases[positions] != releases
                )
        age_s = abs(now.when_s - max(cell.when_s for cell in source_cells))
        value = _values(source_cells, names)
        widened = now.widened * _widening(conditions, now.conditions)
        drift = _drift(names, value, age_s, widened, other_release)
        weight = max(0.5 ** (age_s / HALF_LIFE_S), _LEAST_WEIGHT)
        total = total.plus(source_evidence.drifted(drift).scaled(weight))
        youngest = min(youngest, age_s)
    if np.isfinite(youngest):
        value = _values(domain_cells, names)
        common = _drift(
            names, value, youngest, _COMMON_DRIFT * now.widened, np.zeros(len(keys), bool)
        )
        return total.drifted(common)
    return total


def _values(cells: Sequence[Cell], names: Sequence[str]) -> F64:
    """Values of `names` from the latest cells that contain them; 0 without one."""
    values = np.zeros(len(names))
    for cell in sorted(cells, key=lambda cell: cell.when_s):
        for name, value in zip(cell.names, cell.value.tolist(), strict=True):
            if name in names:
                values[names.index(name)] = value
    return values


def _widening(earlier: Conditions, now: Conditions) -> float:
    """Factor on the machine's drift because conditions changed."""
    widening = 1.0
    for name, factor in _CHANGED.items():
        earlier_value, current_value = getattr(earlier, name), getattr(now, name)
        if earlier_value and current_value and earlier_value != current_value:
            widening *= factor
    return widening


def _drift(
    names: Sequence[str],
    value: F64,
    age_s: float,
    widened: float,
    other_release: npt.NDArray[np.bool_],
) -> F64:
    """A root (p, m) of the drift's covariance: its product with its transpose is the covariance."""
    ramp = 1.0 if widened > 1.0 else float(np.sqrt(-np.expm1(-age_s / _SETTLING_S)))
    weeks = min(age_s / _WEEK_S, _MOST_WEEKS)
    factor = np.full(
        len(other_release), np.hypot(_FACTOR_DRIFT * ramp, _FACTOR_PER_WEEK * weeks**0.5)
    )
    factor = np.hypot(widened * factor, np.where(other_release, _RELEASE_DRIFT, 0.0))
    independent, common = np.zeros(len(names)), np.zeros(len(names))
    for i, name in enumerate(names):
        kind = name.partition(".")[0]
        if kind == "idle_w":
            independent[i] = _IDLE_DRIFT * value[i]
        elif kind == "shared_w":
            independent[i] = _SHARED_DRIFT * value[i]
        elif kind not in _RATIOS:
            common[i] = _SCALE_DRIFT * value[i]
    size = len(names) + len(other_release)
    root = np.zeros((size, size + 1))
    index = np.arange(size)
    root[index, index] = np.append(ramp * widened * np.abs(independent), factor)
    root[: len(names), -1] = ramp * widened * common
    return root[:, root.any(axis=0)]


def by_key(
    evidence_of: Callable[[U64, U64], Evidence], names: int, keys: U64, releases: U64
) -> Recalled:
    """Evidence by class from evidence by key. `keys` (classes,): 0 for a class without one.

    If several classes have the same key, only the first gets its evidence.
    """
    has_key = np.flatnonzero(keys)
    unique, first = np.unique(keys[has_key], return_index=True)
    columns = has_key[first]
    evidence = evidence_of(unique, releases[columns])
    index = np.append(np.arange(names), names + columns).astype(np.int64)
    result = nothing(names, len(keys))
    result.evidence.precision[np.ix_(index, index)] = evidence.precision
    result.evidence.moment[index] = evidence.moment
    result.known[columns] = np.diag(evidence.precision)[names:] > 0
    return result
