# SPDX-License-Identifier: Apache-2.0
"""Evidence of single cores' energy counters on a package's coefficients and factors.

A core's counter covers what runs on that core, without the power that cores share:

    power = R + S * active + (1 + gain) * sum of factor * weight + tails + noise

R, S, the gain, the core's part of a miss, saturation and tails are integrated out. So the package
alone determines the scale and power at rest; cores determine only the ratios of classes and of
coefficients. A class may draw more or less outside of its cores than its weight predicts, so no
number of windows makes its factor certain. Powers are in W.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from qjoule.model.arrays import F64, TAILS_NS, TRAFFIC_PER_NS, WindowBatch
from qjoule.model.coefficients import THETA, WEIGHT_TERMS
from qjoule.model.energy import ONE_CORE
from qjoule.model.features import basis_slopes
from qjoule.model.fit.averaged import Prior
from qjoule.model.fit.core_noise import CoreTerms, Levels, RowNoise
from qjoule.model.fit.evidence import Evidence, Nuisance
from qjoule.model.fit.observed import Rows, weights
from qjoule.model.fit.rows import Source, make_rows
from qjoule.model.per_core import CoreCounters
from qjoule.model.zones import zones

#: By how much a core draws more than the package's coefficients predict, which include cache,
#: fabric and regulators; and the core's part of the cost of a miss. Mean and standard error of
#: each.
_GAIN, _MISS_SHARE = (-0.2, 0.3), (0.5, 0.3)
#: Standard errors of the differences between a package and its cores: of a class's factor, in units
#: of the spread of factors (as in `sensitivity`); of a coefficient, relative to it.
_CLASS_ERROR, _TERM_ERROR = 0.4, 0.15
#: Relative to the mean power of a busy core: its power while awake that no weight covers; power of
#: tails. The third is the length of a wake-up.
_AWAKE, _TAIL, _WAKE_NS = 0.1, 0.15, 20e3
_SATURATION = 0.3  #: of all cores together, as in `beliefs`
_ROUNDS = 4

_C, _K = WEIGHT_TERMS.index("c"), WEIGHT_TERMS.index("k")
_ESTIMATED = np.array([i for i in range(len(WEIGHT_TERMS)) if i != _K])
_TERM_ERRORS = np.array(
    [_TERM_ERROR if name in ("a", "b", "c", "t", "v") else 0.0 for name in WEIGHT_TERMS]
)[_ESTIMATED]
_FIRST_TAIL = len(TRAFFIC_PER_NS) + len(TAILS_NS)
_CORE_EFFECTS = [
    *range(_FIRST_TAIL, _FIRST_TAIL + len(TAILS_NS)),
    THETA.index("wc") - len(WEIGHT_TERMS),
]
_GAIN_INDEX = 2  #: the gain's place among what is integrated out


@dataclass(frozen=True)
class CoreEvidence:
    """Evidence of the `rows` of cores, which are its zones; their `crowd` is the package's.

    `fixed`: number of the package's parameters before the factors. `spread`: of the factors.
    """

    rows: Rows
    fixed: int
    spread: float

    def __call__(self, value: F64) -> Evidence:
        """Evidence on all parameters of the package, at their `value` (p,)."""
        first = self.fixed - len(THETA)
        index = np.concatenate([first + _ESTIMATED, np.arange(self.fixed, len(value))]).astype(
            np.int64
        )
        equations = _NormalEquations.at(self.rows, value[first:], value[index])
        sigma = np.append(
            _TERM_ERRORS * np.abs(value[first + _ESTIMATED]),
            np.full(len(value) - self.fixed, _CLASS_ERROR * self.spread),
        )
        evidence, full = equations.evidence().drifted(np.diag(sigma)), Evidence.none(len(value))
        full.precision[np.ix_(index, index)] = evidence.precision
        full.moment[index] = evidence.moment
        return full


def with_cores(
    rows: Rows, cores: WindowBatch, counters: CoreCounters, source: Source, belief: Prior
) -> Rows:
    """The rows of a package with the evidence of its single cores. `source`: the source of
    `rows`."""
    core_zones = zones(counters.series, cores.packages, ONE_CORE)
    core_rows, _ = make_rows(
        [cores], replace(source, series=counters.series, places=core_zones), rows.classes
    )
    packages = dict(
        zip((counter.package for counter in counters.series), counters.packages, strict=True)
    )
    core_rows = _with_package_crowd(core_rows, [packages[zone.package] for zone in core_zones])
    return replace(rows, core_evidence=CoreEvidence(core_rows, len(belief.mean), belief.spread))


def _with_package_crowd(rows: Rows, packages: Sequence[int]) -> Rows:
    """The rows of cores, with the busy cores of their package as `crowd`. All cores must have the
    same number of rows."""
    crowd = np.empty_like(rows.crowd)
    active = rows.active.reshape(len(packages), -1)
    for package in set(packages):
        in_package = np.flatnonzero(np.array(packages) == package)
        busy = np.maximum(active[in_package].sum(axis=0), 1.0)
        crowd[np.isin(rows.zone, in_package)] = np.tile(busy, len(in_package))[:, None]
    return replace(rows, crowd=crowd)


def _nuisance(rows: Rows, levels: Levels) -> tuple[F64, F64]:
    """Means and standard errors (11,) of what is integrated out, in the order of
    `_Model.columns`."""
    cores = max(float(rows.crowd.max(initial=1.0)), 1.0)
    tail = [_TAIL * levels.busy_w] * len(TAILS_NS)
    mean = np.zeros(5 + len(_CORE_EFFECTS))
    mean[[0, _GAIN_INDEX]] = 0.5 * levels.least_w, _GAIN[0]
    sigma = [
        *(0.5 * levels.least_w, _AWAKE * levels.busy_w, _GAIN[1], _MISS_SHARE[1]),
        *(_SATURATION / cores, *tail, _WAKE_NS * _TAIL * levels.busy_w),
    ]
    return mean, np.array(sigma)


@dataclass(frozen=True)
class _NormalEquations:
    """Normal equations of the estimated parameters, and of the nuisance parameters, which are
    integrated out."""

    gram: F64
    moment: F64
    estimated_count: int
    repeats: float

    @staticmethod
    def at(rows: Rows, theta_factors: F64, estimated_value: F64) -> _NormalEquations:
        """`estimated_value`: values of the estimated parameters, at which the model is
        linearised."""
        levels = Levels.of(rows)
        mean, sigma = _nuisance(rows, levels)
        model, size = _Model.at(rows, theta_factors), len(estimated_value)
        nuisance, noise = mean, RowNoise.expected(levels)
        outlier_factor = np.ones(len(rows.power_w))
        for _ in range(_ROUNDS):
            columns = model.columns(nuisance[_GAIN_INDEX])
            target = rows.power_w - model.power_w + columns[:, :size] @ estimated_value
            scale = noise.sigma(rows, model.dynamic_w) * np.sqrt(outlier_factor)
            core_terms = CoreTerms.of(rows, model.dynamic_w, scale, levels)
            gram, moment = core_terms.without(columns, target)
            gram[size:, size:] += np.diag(sigma**-2.0)
            moment[size:] += mean / sigma**2
            right_side = moment[size:] - gram[size:, :size] @ estimated_value
            nuisance = np.asarray(np.linalg.solve(gram[size:, size:], right_side), np.float64)
            error = core_terms.unexplained(target - columns @ np.append(estimated_value, nuisance))
            noise = noise.learned(rows, error, model.dynamic_w, levels)
            outlier_factor = noise.odd(rows, error, model.dynamic_w)
        return _NormalEquations(gram, moment, size, noise.repeats)

    def evidence(self) -> Evidence:
        """Evidence on the estimated parameters."""
        size = self.estimated_count
        nuisance = Nuisance(np.arange(size, len(self.moment)), 0.0, 0.0)  # their priors are in it
        marginal, _ = Evidence(self.gram, self.moment).marginal(np.arange(size), nuisance)
        return marginal.scaled(1.0 / self.repeats)


@dataclass(frozen=True)
class _Model:
    """The model of the cores at one value: power (n,) without nuisance, and its derivatives."""

    power_w: F64
    dynamic_w: F64
    slopes: F64  #: (n, estimated) by the parameters
    nuisance_slopes: F64  #: (n, 4 + tails) by nuisance, without the gain's
    active: F64

    @staticmethod
    def at(rows: Rows, theta_factors: F64) -> _Model:
        value = np.concatenate([np.zeros(2 * len(rows.edge_w)), theta_factors])
        c_index = 2 * len(rows.edge_w) + _C
        full_c, value[c_index] = value[c_index], _MISS_SHARE[0] * value[c_index]
        theta, factor, saturation, class_weight = weights(rows, value)
        class_sum = np.einsum("ngf,ng->nf", rows.features, saturation * factor)
        slopes = class_sum @ basis_slopes(theta)
        miss_slope = slopes[:, _C] * full_c
        slopes[:, _C] *= _MISS_SHARE[0]
        k_slope = -((rows.crowd * saturation * class_weight) @ factor)
        dynamic, tails = class_weight @ factor, rows.effects[:, _CORE_EFFECTS]
        costs = theta[len(WEIGHT_TERMS) :][_CORE_EFFECTS]
        return _Model(
            dynamic + tails @ costs,
            dynamic,
            np.hstack([slopes[:, _ESTIMATED], class_weight[:, :-1]]),
            np.column_stack([miss_slope, k_slope, tails]),
            rows.active,
        )

    def columns(self, gain: float) -> F64:
        """(n, p) derivatives by the estimated parameters, then by the nuisance parameters."""
        factor = max(1.0 + gain, 0.1)
        ones = np.ones(len(self.active))
        nuisance = np.column_stack([ones, self.active, self.dynamic_w, self.nuisance_slopes])
        nuisance[:, _GAIN_INDEX + 1 : _GAIN_INDEX + 3] *= factor
        return np.hstack([self.slopes * factor, nuisance])
