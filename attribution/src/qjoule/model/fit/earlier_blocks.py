# SPDX-License-Identifier: Apache-2.0
"""What earlier blocks of a trace tell later ones: evidence that fades, and power at rest.

Windows of a machine that is never idle cannot tell power at rest from the power that a package
draws once while it is awake. A block in which the machine idles tells it to a fraction of a per
cent. So such blocks are remembered apart, and later blocks begin with what they told, as they do
with the idle phases of a calibration.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from qjoule.model.arrays import F64, Renumbering
from qjoule.model.energy import I64, Bool
from qjoule.model.fit.averaged import Prior
from qjoule.model.fit.block import BlockFit, Evidence
from qjoule.model.fit.observed import Rows
from qjoule.model.fit.solo import SingleClassEvidence

#: A block rests if its packages are awake for less than this share of its time.
_MOST_ACTIVE = 0.10
#: What it tells of a package counts if its standard error is at most this share of the value.
_MOST_ERROR = 0.015
#: Standard error of power at rest at another time, relative to it: leakage follows temperature.
#: The same as of a calibration's power at rest.
_DRIFT = 0.02
#: Windows contradict what is known of power at rest if they move it by so many standard errors.
_CONTRADICTS = 2.5
#: How far leakage may move power at rest from a cold chip to one at its thermal limit; an estimate
#: of ours (1 sigma).
_WARMER = 0.15
#: Also a part of a block is a rest: stretches of at least the first, of at least the second
#: together.
_STILL_S, _LEAST_REST_S = 2.0, 10.0


@dataclass(frozen=True)
class DecayedEvidence:
    """Evidence of earlier blocks on the fixed parameters and these classes, sorted; `alone`: the
    part of it from times in which one class ran alone."""

    evidence: Evidence
    classes: I64
    spread: float
    alone: SingleClassEvidence

    def of(self, classes: I64) -> DecayedEvidence:
        """The evidence on `classes` instead; others are integrated out."""
        fixed = len(self.evidence.moment) - len(self.classes)
        stays = np.isin(self.classes, classes)
        old = self._kept(stays)
        at = np.concatenate(
            [np.arange(fixed), fixed + np.searchsorted(classes, self.classes[stays])]
        ).astype(np.int64)
        size = fixed + len(classes)
        out, alone = Evidence.none(size), SingleClassEvidence.none(size, len(classes))
        out.precision[np.ix_(at, at)] = old.evidence.precision
        out.moment[at] = old.evidence.moment
        alone.precision[np.ix_(at, at)] = old.alone.precision
        alone.alone_s[at[fixed:] - fixed] = old.alone.alone_s
        return DecayedEvidence(out, classes, self.spread, alone)

    @staticmethod
    def none(fixed: int, classes: I64) -> DecayedEvidence:
        size = fixed + len(classes)
        return DecayedEvidence(
            Evidence.none(size), classes, 1.0, SingleClassEvidence.none(size, len(classes))
        )

    def plus(
        self, block: Evidence, spread: float, alone: SingleClassEvidence, keep: float
    ) -> DecayedEvidence:
        """With the evidence of a block on the same classes.

        `keep`: share of the earlier evidence that still counts.
        """
        told = Evidence(
            keep * self.evidence.precision + block.precision,
            keep * self.evidence.moment + block.moment,
        )
        return DecayedEvidence(told, self.classes, spread, self.alone.plus(alone, keep))

    def renumbered(self, renumbering: Renumbering) -> DecayedEvidence:
        """With other numbers of classes; those that were merged with others are forgotten."""
        within = self.classes < len(renumbering.group)
        stays = within.copy()
        stays[within] = renumbering.alone(self.classes[within])
        old = self._kept(stays)
        return DecayedEvidence(old.evidence, renumbering.group[old.classes], self.spread, old.alone)

    def _kept(self, stays: Bool) -> DecayedEvidence:
        """Only the classes of `stays` (g,); the others are integrated out."""
        if stays.all():
            return self
        kept = np.append(np.ones(len(self.evidence.moment) - len(stays), bool), stays)
        gone = ~kept
        matrix, moment = self.evidence.precision, self.evidence.moment
        own = matrix[np.ix_(gone, gone)] + np.eye(int(gone.sum())) * self.spread**-2.0
        cross = matrix[np.ix_(kept, gone)]
        right = np.column_stack([cross.T, moment[gone] + self.spread**-2.0])
        solved = np.linalg.solve(own, right)
        left = Evidence(
            matrix[np.ix_(kept, kept)] - cross @ solved[:, :-1],
            moment[kept] - cross @ solved[:, -1],
        )
        alone = SingleClassEvidence(
            self.alone.precision[np.ix_(kept, kept)], self.alone.alone_s[stays]
        )
        return DecayedEvidence(left, self.classes[stays], self.spread, alone)


@dataclass(frozen=True)
class IdlePowerEvidence:
    """Evidence on the power at rest of each zone: precision in 1/W^2, moment in 1/W, (zones,)."""

    precision: F64
    moment: F64

    @staticmethod
    def none(zones: int) -> IdlePowerEvidence:
        return IdlePowerEvidence(np.zeros(zones), np.zeros(zones))

    @staticmethod
    def of(told: Evidence) -> IdlePowerEvidence:
        """From evidence on the zones' power at rest alone, without precision between zones."""
        return IdlePowerEvidence(np.maximum(np.diag(told.precision), 0.0), told.moment)

    @property
    def known(self) -> npt.NDArray[np.bool_]:
        return np.asarray(self.precision > 0.0)

    @property
    def value_w(self) -> F64:
        """(zones,) 0 where nothing is known."""
        return np.where(self.known, self.moment / np.where(self.known, self.precision, 1.0), 0.0)

    @property
    def sigma_w(self) -> F64:
        """(zones,) standard error of the power at rest of another time."""
        error = np.where(self.known, self.precision, 1.0) ** -0.5
        return np.where(self.known, np.hypot(error, _DRIFT * self.value_w), np.inf)

    def plus(self, other: IdlePowerEvidence) -> IdlePowerEvidence:
        return IdlePowerEvidence(self.precision + other.precision, self.moment + other.moment)

    def blurred(self, sigma_w: F64) -> IdlePowerEvidence:
        """The same of a time at which power at rest is another by `sigma_w` (zones,)."""
        precision = self.precision / (1.0 + self.precision * sigma_w**2)
        return IdlePowerEvidence(precision, precision * self.value_w)

    def only(self, zones: npt.NDArray[np.bool_]) -> IdlePowerEvidence:
        """Without what is known of the other zones."""
        return IdlePowerEvidence(
            np.where(zones, self.precision, 0.0), np.where(zones, self.moment, 0.0)
        )

    def evidence(self) -> Evidence:
        return Evidence(np.diag(self.precision), self.moment)


def told_by(rows: Rows, fit: BlockFit) -> IdlePowerEvidence:
    """What a block shows of power at rest; nothing about a zone unless all zones rested.

    A package that rests beside a busy one may be kept awake by it.
    """
    zones = len(rows.edge_w)
    if not rests(rows):
        return IdlePowerEvidence.none(zones)
    return found_by(fit, zones, _MOST_ERROR).blurred(rest_changes_w(rows, fit))


def rests(rows: Rows) -> bool:
    """Whether a block, or a part of it, shows a machine at rest."""
    zones = range(len(rows.edge_w))
    return all(_rested(rows, z) for z in zones) or _still_s(rows) >= _LEAST_REST_S


def found_by(fit: BlockFit, zones: int, most_error: float = np.inf) -> IdlePowerEvidence:
    """Power at rest as a block was fitted, of zones in which its relative error is small enough."""
    value_w, variance = fit.value[:zones], np.diag(fit.covariance)[:zones]
    good = (value_w > 0) & (np.sqrt(np.maximum(variance, 0.0)) <= most_error * value_w)
    precision = np.where(good, 1.0 / np.maximum(variance, 1e-12), 0.0)
    return IdlePowerEvidence(precision, precision * value_w)


def rest_changes_w(rows: Rows, fit: BlockFit) -> F64:
    """(zones,) how far power at rest changed in these rows, root mean square.

    A fan, inlet air or warmth moves it slowly, by more than the error of its mean says. Repeated
    measurements that scatter more than their errors allow are as uncertain as they scatter (Birge,
    Physical Review 40, 1932), and so is what they tell of another time.
    """
    still = rows.known & (rows.active <= _MOST_ACTIVE)
    changes = [fit.drift_w[still & (rows.zone == zone)] for zone in range(len(rows.edge_w))]
    return np.array([float(np.std(change)) if len(change) else 0.0 for change in changes])


def _rested(rows: Rows, zone: int) -> bool:
    mine = (rows.zone == zone) & rows.known
    return bool(mine.any()) and float(rows.active[mine].mean()) <= _MOST_ACTIVE


def _still_s(rows: Rows) -> float:
    """For how long all zones rested, in stretches that are not merely gaps between queries."""
    counts = np.bincount(rows.zone, minlength=len(rows.edge_w))
    if (counts != counts[0]).any():
        return 0.0
    shape = len(counts), int(counts[0])
    still = (rows.known & (rows.active <= _MOST_ACTIVE)).reshape(shape).all(axis=0)
    stretch = np.cumsum(np.diff(still, prepend=False))
    lengths_s = np.bincount(stretch, np.where(still, rows.lengths_s[: shape[1]], 0.0))
    return float(lengths_s[lengths_s >= _STILL_S].sum())


def believed(belief: Prior, rest: IdlePowerEvidence, calibrated: Bool) -> Prior:
    """`belief` with what resting blocks told of power at rest.

    It takes the place of what is believed without a calibration. To that of a zone that is
    `calibrated` (zones,) it is added, unless they contradict each other: the machine has changed
    since then, or it is warmer.
    """
    at = np.flatnonzero(rest.known)
    if not len(at):
        return belief
    told_w, weight = rest.value_w[at], rest.sigma_w[at] ** -2.0
    own, mean = np.diag(belief.precision)[at], belief.mean[at]
    apart = (told_w - mean) ** 2 > _CONTRADICTS**2 * (1.0 / weight + 1.0 / own)
    own = np.where(calibrated[at] & ~apart, own, 0.0)
    return belief.told(at, (weight * told_w + own * mean) / (weight + own), weight + own)


def contradicted(belief: Prior, fit: BlockFit, zones: Bool) -> bool:
    """Whether the windows of a block say otherwise than what was believed of power at rest.

    `zones` (zones,): those of which it was known before.
    """
    at = np.flatnonzero(zones)
    moved2 = (fit.value[at] - belief.mean[at]) ** 2 * np.diag(belief.precision)[at]
    return bool((moved2 > _CONTRADICTS**2).any())


def loosened(belief: Prior, calibrated: Bool) -> Prior:
    """`belief` where windows contradict it: a calibrated power at rest may be that of a colder
    chip."""
    at = np.flatnonzero(calibrated)
    mean = belief.mean[at]
    return belief.told(at, mean, np.maximum(_WARMER * mean, 1e-3) ** -2.0)
