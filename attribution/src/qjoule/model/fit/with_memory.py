# SPDX-License-Identifier: Apache-2.0
"""Fits a block with what is remembered of earlier traces, as far as the block bears it out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from qjoule.model.arrays import F64
from qjoule.model.coefficients import THETA
from qjoule.model.energy import I64
from qjoule.model.fit.averaged import Prior
from qjoule.model.fit.block import BlockFit, Evidence, fit_block
from qjoule.model.fit.cells import REST
from qjoule.model.fit.earlier_blocks import IdlePowerEvidence
from qjoule.model.fit.observed import Rows, mean_w
from qjoule.model.fit.remembered import Learned, Memory, Recalled
from qjoule.model.zones import Zone

#: What is remembered is not used if it predicts a block this many times worse than the prior does.
_HARMS = 1.1
#: A shape has changed if its factor is this many standard errors, and by this much, away from what
#: is remembered of it. The error is at least the third: the model is only approximately right.
_SIGMAS, _LEAST_CHANGE, _LEAST_ERROR = 4.0, 0.08, 0.02
#: Standard errors between a calibration and a memory that contradict each other.
_CONTRADICTS = 4.5
_MOST_CHANGES = 8  #: of shapes in one block; if more differ, it is the machine that changed


_VAGUE = 1e-3  #: of a belief's precision, for what is not in the memory
#: The drift that is allowed for grows in these steps until memory and block are no further apart
#: than this. If they are still further apart than the third, the memory is not used. Each parameter
#: may be off by the fourth.
_WIDENED, _APART, _TOO_FAR, _LEAST_APART = (1.0, 2.0, 4.0, 8.0), -1.2, 4.0, 0.01
_BY_CHANCE = 1.0  #: so far apart are a memory and a block that agree, in one of six cases
#: A package is at rest if it is awake for at most this share of a block.
_AT_REST = 0.02
_KEPT = THETA.index("kept")
_NO_CLASSES = np.zeros(0, np.int64)
CONTRADICTION = "contradicts the calibration"
MISFIT = "does not predict the windows"


#: What is remembered, if the machine drifted this many times further than usual.
Recall = Callable[[float], Recalled]


@dataclass(frozen=True)
class MemoryFit:
    """A fit; `changed`: columns of classes whose memory was void; `refused`: why none was used."""

    fit: BlockFit
    changed: tuple[int, ...] = ()
    refused: str = ""


def fit_with_memory(
    rows: Rows, belief: Prior, before: Evidence, remembered: Recall, *, calibrated: bool
) -> MemoryFit:
    """Fits a block under `belief`, the evidence of its trace (`before`) and what is `remembered`.

    If `calibrated`, a memory that contradicts `belief` is not used. Raises `LinAlgError` as
    `fit_block`.
    """
    asleep = _asleep(rows, len(belief.mean))

    def recall(widened: float) -> Recalled:
        return remembered(widened).drifted(asleep)

    old = recall(1.0)
    if calibrated and _contradict(belief, old):
        return MemoryFit(fit_block(rows, belief, before), (), CONTRADICTION)
    changed: list[int] = []
    fit = fit_block(rows, belief, _sum(before, old.evidence))
    while old.known.any() and len(changed) <= _MOST_CHANGES:
        column = _most_changed(fit, belief, before, old)
        if column < 0:
            break
        changed.append(column)
        old = old.without(column, fit.spread)
        fit = fit_block(rows, belief, _sum(before, old.evidence))
    if len(changed) > _MOST_CHANGES:
        return MemoryFit(fit_block(rows, belief, before), (), MISFIT)
    for widened in _WIDENED:
        old = recall(widened)
        for column in changed:
            old = old.without(column, fit.spread)
        if (apart := _apart(fit, belief, before, old, asleep)) <= _APART:
            break
    # A memory that is as uncertain as it is wrong may predict worse than the prior by chance.
    harms = fit.misfit > _HARMS * fit.misfit_without and apart > _BY_CHANCE
    if harms or apart > _TOO_FAR:
        return MemoryFit(fit_block(rows, belief, before), (), MISFIT)
    if widened > 1.0:
        fit = fit_block(rows, belief, _sum(before, old.evidence))
    return MemoryFit(fit, tuple(changed))


def _asleep(rows: Rows, fixed: int) -> F64:
    """A root of the drift (p, m) of what shows alone on packages at rest beside one that works:
    power at rest of these, and what those draw that are kept awake. It is as large as their power.

    It repeats badly: on 2 x Xeon E5-2683 v4 the socket beside the one that worked drew 32.2 W in 56
    runs, with a standard deviation of 3.1 W and up to 46.6 W (studies/bench/real). A block shows
    what such a package draws. If that is not what is remembered, this says nothing of what is
    remembered of the packages that work.
    """
    active = [_mean_active(rows, zone) for zone in range(len(rows.edge_w))]
    resting = [zone for zone, one in enumerate(active) if one <= _AT_REST]
    out = np.zeros((fixed + len(rows.classes), len(resting) + 1))
    if resting and len(resting) < len(active):
        watts = mean_w(rows)[resting]
        out[resting, np.arange(len(resting))] = watts
        out[fixed - len(THETA) + _KEPT, -1] = watts.max()
    return out[:, out.any(axis=0)]


def _mean_active(rows: Rows, zone: int) -> float:
    mine = (rows.zone == zone) & rows.known
    return float(rows.active[mine].mean()) if mine.any() else 0.0


def _apart(fit: BlockFit, belief: Prior, before: Evidence, old: Recalled, asleep: F64) -> float:
    """How far a block and what is remembered are apart: Mahalanobis' distance squared, from its
    mean, in its standard deviations; at most `_APART` where it is below half of its mean.
    Parameters that drifted by `asleep` (p, m) do not count: nothing is remembered of them.

    Both are estimates under `belief`, so that they agree where they tell nothing. Each is drawn
    to `belief`, so their errors are correlated and the distance has fewer degrees of freedom than
    there are parameters.
    """
    prior, mean = _prior(fit, belief, len(old.evidence.moment))
    believed = Evidence(prior, prior @ mean)
    value, covariance = _solved(believed, _sum(before, fit.evidence))
    then, errors = _solved(believed, old.evidence)
    shared = covariance @ prior @ errors
    total = covariance + errors + np.diag((_LEAST_APART * value) ** 2)
    compared = np.flatnonzero(~np.any(asleep, axis=1))
    apart, own = (value - then)[compared], np.ix_(compared, compared)
    beside = (total - shared - shared.T)[own]
    solved = np.linalg.solve(total[own], np.column_stack([apart, beside]))
    freedom = max(float(np.trace(solved[:, 1:])), 1.0)
    distance2 = float(apart @ solved[:, 0])
    off = float((distance2 - freedom) / (2.0 * freedom) ** 0.5)
    # With few degrees of freedom not even a distance of 0 is far below its mean.
    return min(off, _APART) if distance2 <= 0.5 * freedom else off


def _prior(fit: BlockFit, belief: Prior, size: int) -> tuple[F64, F64]:
    """Precision and mean of what is believed of all parameters before any window."""
    fixed = len(belief.mean)
    prior = np.zeros((size, size))
    prior[:fixed, :fixed] = belief.precision
    at = np.arange(fixed, size)
    prior[at, at] = fit.spread**-2.0
    return prior, np.append(belief.mean, np.ones(len(at)))


def _contradict(belief: Prior, old: Recalled) -> bool:
    """Whether a calibration and a memory differ in a parameter by more than their errors."""
    fixed = len(belief.mean)
    vague = np.zeros_like(old.evidence.precision)
    vague[:fixed, :fixed] = _VAGUE * belief.precision
    at = np.arange(fixed, len(vague))
    vague[at, at] = belief.spread**-2.0
    mean = np.append(belief.mean, np.ones(len(at)))
    value, covariance = _solved(Evidence(vague, vague @ mean), old.evidence)
    prior = np.linalg.inv(belief.precision)
    variance = np.diag(covariance)[:fixed] + np.diag(prior)
    return bool((np.abs(value[:fixed] - belief.mean) > _CONTRADICTS * variance**0.5).any())


@dataclass(frozen=True)
class BlockMemory:
    """A memory as a block of one domain uses it; `names`: of the block's fixed parameters."""

    memory: Memory | None
    domain: str
    names: tuple[str, ...]
    zones: int

    @staticmethod
    def of(
        memory: Memory | None, domain: str, places: Sequence[Zone], *, counters: bool
    ) -> BlockMemory:
        packages = [zone.package for zone in places]
        idle, shared = ([f"{name}.{p}" for p in packages] for name in ("idle_w", "shared_w"))
        # Weights of time alone have other coefficients.
        return BlockMemory(
            memory,
            domain if counters else f"{domain}/time",
            (*idle, *shared, *THETA),
            len(packages),
        )

    def knows(self, classes: I64) -> bool:
        """Whether earlier traces told anything of this domain, or of its power at rest."""
        if self.memory is None:
            return False
        told = self.memory.recall(self.domain, self.names, classes, 1.0)
        return told.some or bool(self.rest().known.any())

    def fit(
        self, rows: Rows, belief: Prior, before: Evidence, *, calibrated: bool, keep: bool
    ) -> tuple[BlockFit, list[str]]:
        """The fit of a block, and notes on what is remembered. Raises as `fit_block`.

        Only of a block that is kept (`keep`) the memory is told what it contradicts.
        """
        if self.memory is None:
            return fit_block(rows, belief, before), []
        memory = self.memory

        def recall(widened: float) -> Recalled:
            return memory.recall(self.domain, self.names, rows.classes, widened)

        if not recall(1.0).some:
            return fit_block(rows, belief, before), []
        made = fit_with_memory(rows, belief, before, recall, calibrated=calibrated)
        if not keep:
            return made.fit, []
        domain = self.domain.partition("/")[0]
        notes = [f"the memory of {domain} power {made.refused}: not used"] if made.refused else []
        if made.refused == MISFIT:
            memory.refused(self.domain)
        names = memory.changed(rows.classes[list(made.changed)])
        return made.fit, notes + [f"{one} does not draw what the memory says" for one in names]

    def tell(self, rows: Rows, fit: BlockFit, end_ns: int) -> None:
        """Adds the evidence of a block to the memory."""
        if self.memory is not None:
            value = fit.value[: len(self.names)]
            told = Learned(fit.evidence, value, fit.spread, end_ns)
            self.memory.learned(self.domain, self.names, rows.classes, told)

    @property
    def _rest_domain(self) -> str:
        """Of power at rest, which is the same with counters and without."""
        return self.domain.partition("/")[0] + REST

    def rest(self) -> IdlePowerEvidence:
        """What resting blocks of earlier traces showed of power at rest."""
        if self.memory is None:
            return IdlePowerEvidence.none(self.zones)
        names = self.names[: self.zones]
        return IdlePowerEvidence.of(
            self.memory.recall(self._rest_domain, names, _NO_CLASSES).evidence
        )

    def tell_rest(self, rest: IdlePowerEvidence, fit: BlockFit, end_ns: int, *, anew: bool) -> None:
        """Adds to the memory what a block showed of power at rest, if it showed anything.

        `anew`: it contradicts what is remembered.
        """
        if self.memory is not None and rest.known.any():
            if anew:
                self.memory.refused(self._rest_domain, at_once=True)
            names = self.names[: self.zones]
            told = Learned(rest.evidence(), fit.value[: self.zones], fit.spread, end_ns)
            self.memory.learned(self._rest_domain, names, _NO_CLASSES, told)


def _sum(a: Evidence, b: Evidence) -> Evidence:
    return Evidence(a.precision + b.precision, a.moment + b.moment)


def _most_changed(fit: BlockFit, belief: Prior, before: Evidence, old: Recalled) -> int:
    """The class that differs most from what is remembered of it, -1 if none does.

    What is remembered of a class is a row: its factor as a function of the other parameters, with
    an error. The row is compared with what all else gives; its own influence on that is taken out
    by its leverage (as in studentised residuals: Cook and Weisberg, Residuals and Influence in
    Regression, 1982).
    """
    prior, mean = _prior(fit, belief, len(old.evidence.moment))
    here = _sum(before, fit.evidence)
    here = Evidence(here.precision + prior, here.moment + prior @ mean)
    value, covariance = _solved(here, old.evidence)
    known = np.flatnonzero(old.known)
    at = len(belief.mean) + known
    own = old.evidence.precision[at, at]
    rows = old.evidence.precision[at] / own[:, None]
    left = np.maximum(1.0 - own * np.einsum("gp,pq,gq->g", rows, covariance, rows), 1e-9)
    apart = np.abs(rows @ value - old.evidence.moment[at] / own) / left
    sigmas = apart / np.sqrt(1.0 / (own * left) + _LEAST_ERROR**2)
    sigmas[apart <= _LEAST_CHANGE] = 0.0
    worst = int(np.argmax(sigmas)) if len(sigmas) else -1
    return int(known[worst]) if worst >= 0 and sigmas[worst] > _SIGMAS else -1


def _solved(a: Evidence, b: Evidence) -> tuple[F64, F64]:
    total = _sum(a, b)
    scale = np.sqrt(np.maximum(np.diag(total.precision), 1e-300))
    covariance = np.linalg.inv(total.precision / np.outer(scale, scale)) / np.outer(scale, scale)
    return covariance @ total.moment, covariance
