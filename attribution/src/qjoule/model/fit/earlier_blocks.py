# SPDX-License-Identifier: Apache-2.0
"""Evidence of earlier blocks of a trace for later ones: evidence that decays, and power at rest.

Windows of a machine that is never idle cannot separate power at rest from the power that a package
draws once while it is awake. A block in which the machine idles determines power at rest to a
fraction of a per cent. So the evidence of such blocks is kept separately, and later blocks use it
as their prior, like the idle phases of a calibration.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from qjoule.model.arrays import F64, Renumbering
from qjoule.model.energy import I64, Bool
from qjoule.model.fit.averaged import Prior
from qjoule.model.fit.block import BlockFit
from qjoule.model.fit.evidence import Evidence, Nuisance
from qjoule.model.fit.observed import Rows
from qjoule.model.fit.solo import SingleClassEvidence

#: A block rests if its packages are awake for less than this share of its time.
_MOST_ACTIVE = 0.10
#: Its power at rest of a package counts if the standard error is at most this share of the value.
#: Sleeps that are mostly shorter than long tails leave several per cent. Without it, what is
#: believed of an unknown machine has 60 % (`beliefs`).
_MOST_ERROR = 0.15
#: Standard error of power at rest at another time, relative to it: leakage follows temperature.
#: The same as of a calibration's power at rest.
_DRIFT = 0.02
#: Windows contradict the known power at rest if they move it by this many standard errors.
_CONTRADICTS = 2.5
#: How far leakage may move power at rest from a cold chip to one at its thermal limit; an estimate
#: of ours (1 sigma).
_WARMER = 0.15
#: A part of a block also counts as a rest: stretches that each last at least the first, and
#: together at least the second.
_LEAST_STRETCH_S, _LEAST_REST_S = 2.0, 10.0


@dataclass(frozen=True)
class DecayedEvidence:
    """Evidence of earlier blocks on the fixed parameters and these classes, sorted; `alone`: the
    part from times in which one class ran alone."""

    evidence: Evidence
    classes: I64
    spread: float
    alone: SingleClassEvidence

    def of(self, classes: I64) -> DecayedEvidence:
        """The evidence on `classes` instead; all other classes are integrated out."""
        fixed = len(self.evidence.moment) - len(self.classes)
        retained = np.isin(self.classes, classes)
        reduced = self._restricted(retained)
        index = np.concatenate(
            [np.arange(fixed), fixed + np.searchsorted(classes, self.classes[retained])]
        ).astype(np.int64)
        size = fixed + len(classes)
        evidence, alone = Evidence.none(size), SingleClassEvidence.none(size, len(classes))
        evidence.precision[np.ix_(index, index)] = reduced.evidence.precision
        evidence.moment[index] = reduced.evidence.moment
        alone.precision[np.ix_(index, index)] = reduced.alone.precision
        alone.alone_s[index[fixed:] - fixed] = reduced.alone.alone_s
        return DecayedEvidence(evidence, classes, self.spread, alone)

    @staticmethod
    def none(fixed: int, classes: I64) -> DecayedEvidence:
        size = fixed + len(classes)
        return DecayedEvidence(
            Evidence.none(size), classes, 1.0, SingleClassEvidence.none(size, len(classes))
        )

    def plus(
        self, block: Evidence, spread: float, alone: SingleClassEvidence, keep: float
    ) -> DecayedEvidence:
        """The sum with the evidence of a block on the same classes.

        `keep`: share of the earlier evidence that still counts.
        """
        evidence = self.evidence.scaled(keep).plus(block)
        return DecayedEvidence(evidence, self.classes, spread, self.alone.plus(alone, keep))

    def renumbered(self, renumbering: Renumbering) -> DecayedEvidence:
        """The evidence with renumbered classes; classes that were merged with others are
        dropped."""
        numbered = self.classes < len(renumbering.group)
        retained = numbered.copy()
        retained[numbered] = renumbering.alone(self.classes[numbered])
        reduced = self._restricted(retained)
        return DecayedEvidence(
            reduced.evidence, renumbering.group[reduced.classes], self.spread, reduced.alone
        )

    def _restricted(self, retained: Bool) -> DecayedEvidence:
        """The evidence on the classes of `retained` (g,); the others are integrated out."""
        if retained.all():
            return self
        fixed = len(self.evidence.moment) - len(retained)
        remaining = np.append(np.arange(fixed), fixed + np.flatnonzero(retained))
        nuisance = Nuisance(fixed + np.flatnonzero(~retained), self.spread**-2.0, 1.0)
        marginal, _ = self.evidence.marginal(remaining, nuisance)
        alone = SingleClassEvidence(
            self.alone.precision[np.ix_(remaining, remaining)], self.alone.alone_s[retained]
        )
        return DecayedEvidence(marginal, self.classes[retained], self.spread, alone)


@dataclass(frozen=True)
class IdlePowerEvidence:
    """Evidence on the power at rest of each zone: precision in 1/W^2, moment in 1/W, (zones,)."""

    precision: F64
    moment: F64

    @staticmethod
    def none(zones: int) -> IdlePowerEvidence:
        return IdlePowerEvidence(np.zeros(zones), np.zeros(zones))

    @staticmethod
    def of(evidence: Evidence) -> IdlePowerEvidence:
        """From evidence on the zones' power at rest alone, without precision between zones."""
        return IdlePowerEvidence(np.maximum(np.diag(evidence.precision), 0.0), evidence.moment)

    @property
    def known(self) -> npt.NDArray[np.bool_]:
        return np.asarray(self.precision > 0.0)

    @property
    def value_w(self) -> F64:
        """(zones,) power at rest in W; 0 where it is unknown."""
        return np.where(self.known, self.moment / np.where(self.known, self.precision, 1.0), 0.0)

    @property
    def sigma_w(self) -> F64:
        """(zones,) standard error in W of the power at rest at another time; inf where it is
        unknown."""
        error = np.where(self.known, self.precision, 1.0) ** -0.5
        return np.where(self.known, np.hypot(error, _DRIFT * self.value_w), np.inf)

    def plus(self, other: IdlePowerEvidence) -> IdlePowerEvidence:
        return IdlePowerEvidence(self.precision + other.precision, self.moment + other.moment)

    def blurred(self, sigma_w: F64) -> IdlePowerEvidence:
        """The evidence on a time at which power at rest differs by `sigma_w` (zones,), 1 sigma."""
        precision = self.precision / (1.0 + self.precision * sigma_w**2)
        return IdlePowerEvidence(precision, precision * self.value_w)

    def only(self, zones: npt.NDArray[np.bool_]) -> IdlePowerEvidence:
        """The evidence on the zones of `zones` (zones,) only."""
        return IdlePowerEvidence(
            np.where(zones, self.precision, 0.0), np.where(zones, self.moment, 0.0)
        )

    def evidence(self) -> Evidence:
        return Evidence(np.diag(self.precision), self.moment)


def resting_evidence(rows: Rows, fit: BlockFit) -> IdlePowerEvidence:
    """A block's evidence on power at rest; empty unless all zones rested.

    A package that rests beside a busy one may be kept awake by it.
    """
    zones = len(rows.edge_w)
    if not rests(rows):
        return IdlePowerEvidence.none(zones)
    return fitted_idle_power(fit, zones, _MOST_ERROR).blurred(rest_changes_w(rows, fit))


def rests(rows: Rows) -> bool:
    """Whether a block, or a part of it, shows a machine at rest."""
    zones = range(len(rows.edge_w))
    return all(_rested(rows, z) for z in zones) or _resting_s(rows) >= _LEAST_REST_S


def fitted_idle_power(fit: BlockFit, zones: int, max_error: float = np.inf) -> IdlePowerEvidence:
    """The fitted power at rest of the zones whose relative error is at most `max_error`."""
    value_w, variance = fit.value[:zones], np.diag(fit.covariance)[:zones]
    precise = (value_w > 0) & (np.sqrt(np.maximum(variance, 0.0)) <= max_error * value_w)
    precision = np.where(precise, 1.0 / np.maximum(variance, 1e-12), 0.0)
    return IdlePowerEvidence(precision, precision * value_w)


def rest_changes_w(rows: Rows, fit: BlockFit) -> F64:
    """(zones,) how far power at rest changed in these rows, root mean square.

    A fan, inlet air or warmth moves it slowly, by more than the error of its mean. Measurements
    that scatter more than their errors allow are as uncertain as their scatter (Birge, Physical
    Review 40, 1932), also as evidence on another time.
    """
    at_rest = rows.known & (rows.active <= _MOST_ACTIVE)
    changes = [fit.drift_w[at_rest & (rows.zone == zone)] for zone in range(len(rows.edge_w))]
    return np.array([float(np.std(change)) if len(change) else 0.0 for change in changes])


def _rested(rows: Rows, zone: int) -> bool:
    measured = (rows.zone == zone) & rows.known
    return bool(measured.any()) and float(rows.active[measured].mean()) <= _MOST_ACTIVE


def _resting_s(rows: Rows) -> float:
    """Seconds for which all zones rested, in stretches that are longer than gaps between
    queries."""
    counts = np.bincount(rows.zone, minlength=len(rows.edge_w))
    if (counts != counts[0]).any():
        return 0.0
    shape = len(counts), int(counts[0])
    at_rest = (rows.known & (rows.active <= _MOST_ACTIVE)).reshape(shape).all(axis=0)
    stretch = np.cumsum(np.diff(at_rest, prepend=False))
    lengths_s = np.bincount(stretch, np.where(at_rest, rows.lengths_s[: shape[1]], 0.0))
    return float(lengths_s[lengths_s >= _LEAST_STRETCH_S].sum())


def with_idle_evidence(belief: Prior, idle_evidence: IdlePowerEvidence, calibrated: Bool) -> Prior:
    """The prior `belief` with the evidence of resting blocks on power at rest.

    This evidence replaces an uncalibrated prior. In zones that are `calibrated` (zones,) it is
    added, unless it contradicts the calibration: the machine has changed since then, or it is
    warmer.
    """
    index = np.flatnonzero(idle_evidence.known)
    if not len(index):
        return belief
    idle_w, weight = idle_evidence.value_w[index], idle_evidence.sigma_w[index] ** -2.0
    prior_precision, mean = np.diag(belief.precision)[index], belief.mean[index]
    contradicts = (idle_w - mean) ** 2 > _CONTRADICTS**2 * (1.0 / weight + 1.0 / prior_precision)
    prior_precision = np.where(calibrated[index] & ~contradicts, prior_precision, 0.0)
    return belief.with_independent(
        index,
        (weight * idle_w + prior_precision * mean) / (weight + prior_precision),
        weight + prior_precision,
    )


def contradicts_prior(belief: Prior, fit: BlockFit, zones: Bool) -> bool:
    """Whether the windows of a block contradict the prior of power at rest.

    `zones` (zones,): the zones whose power at rest was known before.
    """
    index = np.flatnonzero(zones)
    moved2 = (fit.value[index] - belief.mean[index]) ** 2 * np.diag(belief.precision)[index]
    return bool((moved2 > _CONTRADICTS**2).any())


def with_wider_idle(belief: Prior, calibrated: Bool) -> Prior:
    """`belief` with a wider prior of power at rest in calibrated zones, for windows that contradict
    it: the chip may have been colder during calibration."""
    index = np.flatnonzero(calibrated)
    mean = belief.mean[index]
    return belief.with_independent(index, mean, np.maximum(_WARMER * mean, 1e-3) ** -2.0)
