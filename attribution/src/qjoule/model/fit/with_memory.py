# SPDX-License-Identifier: Apache-2.0
"""Fits a block with the evidence of earlier traces, as far as the block does not contradict it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from qjoule.model.arrays import F64
from qjoule.model.coefficients import THETA
from qjoule.model.energy import I64
from qjoule.model.fit.averaged import Prior
from qjoule.model.fit.block import BlockFit, fit_block
from qjoule.model.fit.cells import REST
from qjoule.model.fit.earlier_blocks import IdlePowerEvidence
from qjoule.model.fit.evidence import Evidence
from qjoule.model.fit.observed import Rows, mean_w
from qjoule.model.fit.remembered import BlockEvidence, Memory, Recalled
from qjoule.model.zones import Zone

#: A memory is not used if it predicts a block this many times worse than the prior does.
_HARMS = 1.1
#: A shape has changed if its factor differs from the memory's by the first (in standard errors) and
#: by the second. The standard error is at least the third, because the model is only approximately
#: right.
_SIGMAS, _LEAST_CHANGE, _LEAST_ERROR = 4.0, 0.08, 0.02
#: Standard errors between a calibration and a memory that contradict each other.
_CONTRADICTS = 4.5
_MOST_CHANGES = 8  #: of shapes in one block; if more differ, the machine has changed


_WEAK_PRIOR = 1e-3  #: share of a prior's precision for parameters that the memory lacks
#: The allowed drift grows in the steps of the first until the distance of memory and block is at
#: most the second. If the distance remains above the third, the memory is not used. The fourth is
#: the relative error that each parameter may always have.
_WIDENINGS, _AGREEMENT, _TOO_FAR, _LEAST_PARAMETER_ERROR = (1.0, 2.0, 4.0, 8.0), -1.2, 4.0, 0.01
_CHANCE_DISTANCE = 1.0  #: distance that a memory and a block that agree exceed in one of six cases
#: A package is at rest if it is awake for at most this share of a block.
_AT_REST = 0.02
_KEPT_AWAKE = THETA.index("kept")
_NO_CLASSES = np.zeros(0, np.int64)
CONTRADICTION = "contradicts the calibration"
MISFIT = "does not predict the windows"


#: Returns the memory's evidence if the machine drifted this many times further than usual.
Recall = Callable[[float], Recalled]


@dataclass(frozen=True)
class MemoryFit:
    """A fit; `changed`: columns of classes whose memory was void; `refused`: why no memory was
    used, or empty."""

    fit: BlockFit
    changed: tuple[int, ...] = ()
    refused: str = ""


def fit_with_memory(
    rows: Rows, belief: Prior, before: Evidence, remembered: Recall, *, calibrated: bool
) -> MemoryFit:
    """Fits a block under the prior `belief`, the earlier evidence of its trace (`before`) and the
    memory (`remembered`).

    If `calibrated`, a memory that contradicts `belief` is not used. Raises `LinAlgError` as
    `fit_block`.
    """
    resting_drift = _resting_drift(rows, len(belief.mean))

    def recall(widened: float) -> Recalled:
        return remembered(widened).drifted(resting_drift)

    recalled = recall(1.0)
    if calibrated and _contradicts(belief, recalled):
        return MemoryFit(fit_block(rows, belief, before), (), CONTRADICTION)
    changed: list[int] = []
    fit = fit_block(rows, belief, before.plus(recalled.evidence))
    while recalled.known.any() and len(changed) <= _MOST_CHANGES:
        column = _most_changed(fit, belief, before, recalled)
        if column < 0:
            break
        changed.append(column)
        recalled = recalled.without(column, fit.spread)
        fit = fit_block(rows, belief, before.plus(recalled.evidence))
    if len(changed) > _MOST_CHANGES:
        return MemoryFit(fit_block(rows, belief, before), (), MISFIT)
    for widened in _WIDENINGS:
        recalled = recall(widened)
        for column in changed:
            recalled = recalled.without(column, fit.spread)
        if (distance := _distance(fit, belief, before, recalled, resting_drift)) <= _AGREEMENT:
            break
    # A memory whose error is within its uncertainty may predict worse than the prior by chance.
    predicts_worse = fit.misfit > _HARMS * fit.misfit_without and distance > _CHANCE_DISTANCE
    if predicts_worse or distance > _TOO_FAR:
        return MemoryFit(fit_block(rows, belief, before), (), MISFIT)
    if widened > 1.0:
        fit = fit_block(rows, belief, before.plus(recalled.evidence))
    return MemoryFit(fit, tuple(changed))


def _resting_drift(rows: Rows, fixed: int) -> F64:
    """A root (p, m) of an extra drift, as large as the packages' power, for packages at rest beside
    a busy one: of their power at rest, and of the power of being kept awake.

    This power varies much between runs: on 2 x Xeon E5-2683 v4 the socket beside the one that
    worked drew 32.2 W in 56 runs, with a standard deviation of 3.1 W and up to 46.6 W
    (studies/bench/real). If a block shows another power of such a package than the memory, that
    does not contradict the memory of the busy packages.
    """
    active_shares = [_mean_active(rows, zone) for zone in range(len(rows.edge_w))]
    resting = [zone for zone, share in enumerate(active_shares) if share <= _AT_REST]
    root = np.zeros((fixed + len(rows.classes), len(resting) + 1))
    if resting and len(resting) < len(active_shares):
        watts = mean_w(rows)[resting]
        root[resting, np.arange(len(resting))] = watts
        root[fixed - len(THETA) + _KEPT_AWAKE, -1] = watts.max()
    return root[:, root.any(axis=0)]


def _mean_active(rows: Rows, zone: int) -> float:
    measured = (rows.zone == zone) & rows.known
    return float(rows.active[measured].mean()) if measured.any() else 0.0


def _distance(
    fit: BlockFit, belief: Prior, before: Evidence, recalled: Recalled, resting_drift: F64
) -> float:
    """The distance between a block and the memory: Mahalanobis' distance squared, as a deviation
    from its mean in standard deviations; at most `_AGREEMENT` where it is below half of its mean.
    Parameters that drifted by `resting_drift` (p, m) do not count.

    Both are estimates under `belief`, so that they agree where they have no evidence. The common
    prior correlates their errors, so the distance has fewer degrees of freedom than there are
    parameters.
    """
    prior, mean = _prior(fit, belief, len(recalled.evidence.moment))
    prior_evidence = Evidence(prior, prior @ mean)
    value, covariance = _posterior(prior_evidence, before.plus(fit.evidence))
    memory_value, memory_covariance = _posterior(prior_evidence, recalled.evidence)
    cross_covariance = covariance @ prior @ memory_covariance
    total = covariance + memory_covariance + np.diag((_LEAST_PARAMETER_ERROR * value) ** 2)
    compared = np.flatnonzero(~np.any(resting_drift, axis=1))
    difference, block = (value - memory_value)[compared], np.ix_(compared, compared)
    effective = (total - cross_covariance - cross_covariance.T)[block]
    solved = np.linalg.solve(total[block], np.column_stack([difference, effective]))
    freedom = max(float(np.trace(solved[:, 1:])), 1.0)
    distance2 = float(difference @ solved[:, 0])
    deviation = float((distance2 - freedom) / (2.0 * freedom) ** 0.5)
    # With few degrees of freedom not even a distance of 0 is far below its mean.
    return min(deviation, _AGREEMENT) if distance2 <= 0.5 * freedom else deviation


def _prior(fit: BlockFit, belief: Prior, size: int) -> tuple[F64, F64]:
    """Precision and mean of the prior of all parameters."""
    fixed = len(belief.mean)
    prior = np.zeros((size, size))
    prior[:fixed, :fixed] = belief.precision
    index = np.arange(fixed, size)
    prior[index, index] = fit.spread**-2.0
    return prior, np.append(belief.mean, np.ones(len(index)))


def _contradicts(belief: Prior, recalled: Recalled) -> bool:
    """Whether a calibration and a memory differ in a parameter by more than their errors."""
    fixed = len(belief.mean)
    weak_precision = np.zeros_like(recalled.evidence.precision)
    weak_precision[:fixed, :fixed] = _WEAK_PRIOR * belief.precision
    index = np.arange(fixed, len(weak_precision))
    weak_precision[index, index] = belief.spread**-2.0
    mean = np.append(belief.mean, np.ones(len(index)))
    value, covariance = _posterior(
        Evidence(weak_precision, weak_precision @ mean), recalled.evidence
    )
    prior = np.linalg.inv(belief.precision)
    variance = np.diag(covariance)[:fixed] + np.diag(prior)
    return bool((np.abs(value[:fixed] - belief.mean) > _CONTRADICTS * variance**0.5).any())


@dataclass(frozen=True)
class BlockMemory:
    """The memory for the blocks of one domain; `names`: the fixed parameters; `zones`: their
    number."""

    memory: Memory | None
    domain: str
    names: tuple[str, ...]
    zones: int

    @staticmethod
    def of(
        memory: Memory | None, domain: str, domain_zones: Sequence[Zone], *, counters: bool
    ) -> BlockMemory:
        packages = [zone.package for zone in domain_zones]
        idle, shared = (
            [f"{name}.{package}" for package in packages] for name in ("idle_w", "shared_w")
        )
        # Weights of time alone have other coefficients.
        return BlockMemory(
            memory,
            domain if counters else f"{domain}/time",
            (*idle, *shared, *THETA),
            len(packages),
        )

    def has_evidence(self, classes: I64) -> bool:
        """Whether there is evidence of earlier traces on this domain, or on its power at rest."""
        if self.memory is None:
            return False
        recalled = self.memory.recall(self.domain, self.names, classes, 1.0)
        return recalled.any_evidence or bool(self.idle_evidence().known.any())

    def fit(
        self, rows: Rows, belief: Prior, before: Evidence, *, calibrated: bool, keep: bool
    ) -> tuple[BlockFit, list[str]]:
        """The fit of a block, and notes on the memory. Raises `LinAlgError` as `fit_block`.

        Contradictions are reported to the memory only if the block is kept (`keep`).
        """
        if self.memory is None:
            return fit_block(rows, belief, before), []
        memory = self.memory

        def recall(widened: float) -> Recalled:
            return memory.recall(self.domain, self.names, rows.classes, widened)

        if not recall(1.0).any_evidence:
            return fit_block(rows, belief, before), []
        result = fit_with_memory(rows, belief, before, recall, calibrated=calibrated)
        if not keep:
            return result.fit, []
        domain = self.domain.partition("/")[0]
        notes = (
            [f"the memory of {domain} power {result.refused}: not used"] if result.refused else []
        )
        if result.refused == MISFIT:
            memory.refused(self.domain)
        names = memory.changed(rows.classes[list(result.changed)])
        return result.fit, notes + [f"{name} does not draw what the memory says" for name in names]

    def learn(self, rows: Rows, fit: BlockFit, end_ns: int) -> None:
        """Adds the evidence of a block to the memory."""
        if self.memory is not None:
            value = fit.value[: len(self.names)]
            block = BlockEvidence(fit.evidence, value, fit.spread, end_ns)
            self.memory.learned(self.domain, self.names, rows.classes, block)

    @property
    def _idle_domain(self) -> str:
        """The domain of cells on power at rest, which is the same with counters and without."""
        return self.domain.partition("/")[0] + REST

    def idle_evidence(self) -> IdlePowerEvidence:
        """The evidence of resting blocks of earlier traces on power at rest."""
        if self.memory is None:
            return IdlePowerEvidence.none(self.zones)
        names = self.names[: self.zones]
        return IdlePowerEvidence.of(
            self.memory.recall(self._idle_domain, names, _NO_CLASSES).evidence
        )

    def learn_idle(
        self, idle_evidence: IdlePowerEvidence, fit: BlockFit, end_ns: int, *, anew: bool
    ) -> None:
        """Adds a block's evidence on power at rest, if any, to the memory.

        `anew`: it contradicts what is remembered.
        """
        if self.memory is not None and idle_evidence.known.any():
            if anew:
                self.memory.refused(self._idle_domain, at_once=True)
            names = self.names[: self.zones]
            block = BlockEvidence(
                idle_evidence.evidence(), fit.value[: self.zones], fit.spread, end_ns
            )
            self.memory.learned(self._idle_domain, names, _NO_CLASSES, block)


def _most_changed(fit: BlockFit, belief: Prior, before: Evidence, recalled: Recalled) -> int:
    """The column of the class that differs most from the memory; -1 if none does.

    The memory of a class is one row: its factor as a function of the other parameters, with an
    error. The row is compared with the estimate from all evidence; its own influence on that
    estimate is removed by its leverage (as in studentised residuals: Cook and Weisberg, Residuals
    and Influence in Regression, 1982).
    """
    prior, mean = _prior(fit, belief, len(recalled.evidence.moment))
    block_evidence = before.plus(fit.evidence)
    block_evidence = block_evidence.plus(Evidence(prior, prior @ mean))
    value, covariance = _posterior(block_evidence, recalled.evidence)
    remembered = np.flatnonzero(recalled.known)
    index = len(belief.mean) + remembered
    class_precision = recalled.evidence.precision[index, index]
    rows = recalled.evidence.precision[index] / class_precision[:, None]
    unleveraged = np.maximum(
        1.0 - class_precision * np.einsum("gp,pq,gq->g", rows, covariance, rows), 1e-9
    )
    difference = (
        np.abs(rows @ value - recalled.evidence.moment[index] / class_precision) / unleveraged
    )
    sigmas = difference / np.sqrt(1.0 / (class_precision * unleveraged) + _LEAST_ERROR**2)
    sigmas[difference <= _LEAST_CHANGE] = 0.0
    worst = int(np.argmax(sigmas)) if len(sigmas) else -1
    return int(remembered[worst]) if worst >= 0 and sigmas[worst] > _SIGMAS else -1


def _posterior(a: Evidence, b: Evidence) -> tuple[F64, F64]:
    total = a.plus(b)
    scale = np.sqrt(np.maximum(np.diag(total.precision), 1e-300))
    covariance = np.linalg.inv(total.precision / np.outer(scale, scale)) / np.outer(scale, scale)
    return covariance @ total.moment, covariance
