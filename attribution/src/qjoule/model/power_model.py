# SPDX-License-Identifier: Apache-2.0
"""The estimate of a domain's power for one block of windows, with its uncertainty."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from qjoule.model.arrays import F64, Renumbering
from qjoule.model.coefficients import (
    EFFECT_TERMS,
    RATIOS,
    THETA,
    WEIGHT_TERMS,
    Coefficients,
    PowerInterval,
    Weights,
)
from qjoule.model.energy import I64
from qjoule.model.features import basis

#: Relative drift of a calibrated machine (1 sigma): leakage follows temperature, by several per
#: cent. Shared power also differs by load, since an uncore's clock follows cores and stalls
#: (Hackenberg et al., HPPAC 2015).
_IDLE_DRIFT = 0.02
_SHARED_DRIFT = 0.1
_SCALE_DRIFT = 0.03
#: Power at rest of an uncalibrated machine is unknown, so its energy belongs to what ran.
_UNKNOWN = np.nan
_K = THETA.index("k")
_OF_CORES = [EFFECT_TERMS.index(name) for name in EFFECT_TERMS if name[0] == "q" or name == "wc"]


@dataclass(frozen=True)
class Moments:
    """Seconds in which each class alone kept a package active (g,), and the information of these
    times on its factor (g,), in nats: the logarithm of how many times narrower than the prior they
    alone make it."""

    alone_s: F64
    information_nats: F64


@dataclass(frozen=True)
class PowerModel:
    """One domain's model. A zone is what one counter covers: a package, or the platform.

    `idle_w` (zones,): power at rest, NaN if unknown. `shared_w` (zones,): drawn once while any core
    is busy. `theta`: as `Weights.vector`. `classes` (g,), sorted, draw `factor` (g,) times their
    weight; all others draw 1 times it, to within `spread` (1 sigma). `covariance` is of (idle_w,
    shared_w, theta, factor) in that order. `learned`: whether windows of the trace itself
    contributed. `drift_w` (zones, n): change of power at rest with temperature in the n windows
    from number `first` on. `unexplained`: relative standard error of all owners' energies because
    of power that the model has no term for; `unexplained_with`: what that power correlates with.
    """

    idle_w: F64
    shared_w: F64
    theta: F64
    classes: I64
    factor: F64
    covariance: F64
    spread: float
    learned: bool = False
    drift_w: F64 | None = None
    first: int = 0
    unexplained: float = 0.0
    unexplained_with: tuple[str, ...] = ()
    alone: Moments | None = None  #: of `classes`; None: nothing was learned
    #: (p,) how far all parameters move together, at 95 %, if package tails are as large as the
    #: windows allow (`fit/averaged.py`); None: not at all.
    one_sided: F64 | None = None

    def misfits(self, domain: str) -> list[str]:
        """Notes for readers on what the model does not fit, one sentence each."""
        return [
            f"the model does not fit this machine's {domain} power: {context}"
            for context in self.unexplained_with
        ]

    def rest_w(self, zone: int, first: int, count: int) -> F64:
        """(count,) power at rest in windows `first` on; 0 where it is unknown."""
        idle_w = np.full(count, float(np.nan_to_num(self.idle_w[zone])))
        if self.drift_w is not None:
            window = np.arange(first, first + count) - self.first
            inside = (window >= 0) & (window < self.drift_w.shape[1])
            idle_w[inside] += self.drift_w[zone, window[inside]]
        return np.asarray(np.maximum(idle_w, 0.0))

    @property
    def zones(self) -> int:
        return len(self.idle_w)

    @property
    def fixed(self) -> int:
        """Number of parameters before the factors."""
        return 2 * self.zones + len(THETA)

    @property
    def basis(self) -> F64:
        """The weight of one unit of each of `features.FEATURES`."""
        return basis(self.theta)

    def saturation(self, crowd: F64) -> F64:
        """The part of a weight that remains while this many cores are busy."""
        return np.asarray(1.0 / (1.0 + self.theta[_K] * crowd))

    def effects_nj(self, effects: F64) -> F64:
        """(m,) energy in nJ of the entries' `effects` (m, 21)."""
        return _products(effects, self.theta[len(WEIGHT_TERMS) :])

    def once_nj(self, effects: F64) -> F64:
        """(m,) the part of `effects_nj` that the package draws, not a core."""
        costs = self.theta[len(WEIGHT_TERMS) :].copy()
        costs[_OF_CORES] = 0.0
        return _products(effects, costs)

    def renumbered(self, renumbering: Renumbering) -> PowerModel:
        """The model with other group numbers; classes that were merged with others have no
        factor."""
        numbered = self.classes < len(renumbering.group)
        retained = numbered.copy()
        retained[numbered] = renumbering.alone(self.classes[numbered])
        index = np.append(np.arange(self.fixed), self.fixed + np.flatnonzero(retained))
        alone = self.alone
        return replace(
            self,
            classes=renumbering.group[self.classes[retained]],
            factor=self.factor[retained],
            alone=alone and Moments(alone.alone_s[retained], alone.information_nats[retained]),
            covariance=self.covariance[np.ix_(index, index)],
            one_sided=self.one_sided if self.one_sided is None else self.one_sided[index],
        )

    def weight(self, features: F64, crowd: F64, column: I64) -> F64:
        """Weights of entries with `features` (m, 10), `crowd` (m,), and classes at `column`
        (m,)."""
        unsaturated = _products(features, self.basis)
        return np.asarray(unsaturated * self.saturation(crowd) * self.factors(column))

    def column(self, classes: I64) -> I64:
        """Position of each class among `classes`; -1 for those without a factor of their own."""
        if not len(self.classes):
            return np.full(len(classes), -1, np.int64)
        position = np.minimum(np.searchsorted(self.classes, classes), len(self.classes) - 1)
        return np.where(self.classes[position] == classes, position, -1).astype(np.int64)

    def factors(self, column: I64) -> F64:
        """The factor of each column from `column`; 1 for column -1."""
        return np.append(self.factor, 1.0)[column]

    def factor_sigma(self, column: int) -> float:
        """Standard error of one class's factor."""
        index = self.fixed + column
        return float(np.sqrt(max(self.covariance[index, index], 0.0)))

    @staticmethod
    def of(
        coefficients: Coefficients, domain: str, packages: Sequence[int], *, counters: bool
    ) -> PowerModel:
        """The model of the coefficients alone, without any window; `packages` has one entry per
        zone."""
        weights = coefficients.of(domain, counters=counters)
        keys = [(package, domain) for package in packages]
        zones, size = len(keys), 2 * len(keys) + len(THETA)
        idle = [coefficients.idle_w.get(key) for key in keys]
        covariance = np.zeros((size, size))
        for z, key in enumerate(keys):
            power = idle[z]
            covariance[z, z] = power.sigma_w**2 if power else 0.0
            shared_index = zones + z
            covariance[shared_index, shared_index] = coefficients.shared_error_w.get(key, 0.0) ** 2
        if weights.covariance:
            theta_range = slice(2 * zones, 2 * zones + len(weights.covariance))
            covariance[theta_range, theta_range] = np.array(weights.covariance)
        if weights.calibrated:
            covariance += _since_calibration(idle, keys, coefficients, weights)
        return PowerModel(
            np.array([power.value_w if power else _UNKNOWN for power in idle]),
            np.array([coefficients.shared_w.get(key, 0.0) for key in keys]),
            vector(weights),
            np.zeros(0, np.int64),
            np.zeros(0),
            covariance,
            weights.error / 1.96,
        )


def _since_calibration(
    idle: Sequence[PowerInterval | None],
    keys: Sequence[tuple[int, str]],
    coefficients: Coefficients,
    weights: Weights,
) -> F64:
    """Covariance of the drift that a machine may have had since its calibration."""
    idle_w = [power.value_w if power else 0.0 for power in idle]
    shared_w = [coefficients.shared_w.get(key, 0.0) for key in keys]
    independent = [_IDLE_DRIFT * w for w in idle_w] + [_SHARED_DRIFT * w for w in shared_w]
    common = _SCALE_DRIFT * vector(weights)
    common[[THETA.index(name) for name in RATIOS]] = 0.0
    drift = np.zeros((len(independent) + len(common),) * 2)
    np.fill_diagonal(drift[: len(independent), : len(independent)], np.square(independent))
    drift[len(independent) :, len(independent) :] = np.outer(common, common)
    return drift


def _products(columns: F64, units: F64) -> F64:
    """(m,) sums of `columns` (m, n) times `units` (n,)."""
    sums = np.zeros(len(columns))
    # One column at a time: a matrix product could round an entry differently by its place in the
    # batch.
    for unit, values in zip(units.tolist(), columns.T, strict=True):
        if unit:
            sums += unit * values
    return sums


def vector(weights: Weights) -> F64:
    """The values of `THETA` as an array."""
    return np.array(weights.vector, np.float64)
