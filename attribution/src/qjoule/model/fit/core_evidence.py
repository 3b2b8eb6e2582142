# SPDX-License-Identifier: Apache-2.0
"""What energy counters of single cores tell of a package's coefficients and factors.

A core's counter covers what runs there, without what the package draws for all:

    power = R + S * active + (1 + gain) * sum of factor * weight + tails + noise

R, S, the gain, the core's part of a miss, saturation and tails are integrated out. So the scale
and power at rest stay those of the package, and what is told is how classes and coefficients
compare. A class may draw more or less outside of its cores than its weight says, so no number of
windows makes its factor certain. Powers are in W.
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
from qjoule.model.fit.core_noise import Levels, OwnOfCores, RowNoise
from qjoule.model.fit.observed import Rows, weights
from qjoule.model.fit.rows import Source, make_rows
from qjoule.model.per_core import CoreCounters
from qjoule.model.zones import zones

#: By how much a core draws more than the package's coefficients say, which hold cache, fabric and
#: regulators; and its part of the cost of a miss. Mean and standard error.
_GAIN, _OF_MISS = (-0.2, 0.3), (0.5, 0.3)
#: Standard errors of what a package draws against its cores: of a class' factor, over the spread
#: of factors (as in `sensitivity`); of a coefficient, relative.
_CLASS_APART, _TERM_APART = 0.4, 0.15
#: Relative to the mean power of a busy core: power while it is awake that no weight has; tails.
_AWAKE, _TAIL, _WAKE_NS = 0.1, 0.15, 20e3
_SATURATION = 0.3  #: of all cores together, as in `beliefs`
_ROUNDS = 4

_C, _K = WEIGHT_TERMS.index("c"), WEIGHT_TERMS.index("k")
_TOLD = np.array([i for i in range(len(WEIGHT_TERMS)) if i != _K])
_APART = np.array(
    [_TERM_APART if name in ("a", "b", "c", "t", "v") else 0.0 for name in WEIGHT_TERMS]
)[_TOLD]
_FIRST_TAIL = len(TRAFFIC_PER_NS) + len(TAILS_NS)
_OF_CORES = [
    *range(_FIRST_TAIL, _FIRST_TAIL + len(TAILS_NS)),
    THETA.index("wc") - len(WEIGHT_TERMS),
]
_GAINED = 2  #: the gain's place among what is integrated out


@dataclass(frozen=True)
class CoreEvidence:
    """Evidence of the `rows` of cores, which are its zones; their `crowd` is the package's.

    `fixed`: number of the package's parameters before the factors. `spread`: of the factors.
    """

    rows: Rows
    fixed: int
    spread: float

    def __call__(self, value: F64) -> tuple[F64, F64]:
        """Precision (p, p) and moment (p,) on all parameters of the package, at their `value`."""
        first = self.fixed - len(THETA)
        at = np.concatenate([first + _TOLD, np.arange(self.fixed, len(value))]).astype(np.int64)
        solved = _Solved.at(self.rows, value[first:], value[at])
        apart = np.append(
            _APART * np.abs(value[first + _TOLD]),
            np.full(len(value) - self.fixed, _CLASS_APART * self.spread),
        )
        precision, moment = _blurred(*solved.told(), apart)
        every, of_every = np.zeros((len(value),) * 2), np.zeros(len(value))
        every[np.ix_(at, at)], of_every[at] = precision, moment
        return every, of_every


def with_cores(
    rows: Rows, cores: WindowBatch, counters: CoreCounters, source: Source, belief: Prior
) -> Rows:
    """The rows of a package with what its single cores tell. `source`: of those rows."""
    places = zones(counters.series, cores.packages, ONE_CORE)
    found, _ = make_rows(
        [cores], replace(source, series=counters.series, places=places), rows.classes
    )
    packages = dict(zip((one.package for one in counters.series), counters.packages, strict=True))
    found = _of_packages(found, [packages[zone.package] for zone in places])
    return replace(rows, beside=CoreEvidence(found, len(belief.mean), belief.spread))


def _of_packages(rows: Rows, packages: Sequence[int]) -> Rows:
    """The rows of cores with the busy cores of their package as `crowd`; all have as many rows."""
    crowd = np.empty_like(rows.crowd)
    active = rows.active.reshape(len(packages), -1)
    for package in set(packages):
        mine = np.flatnonzero(np.array(packages) == package)
        busy = np.maximum(active[mine].sum(axis=0), 1.0)
        crowd[np.isin(rows.zone, mine)] = np.tile(busy, len(mine))[:, None]
    return replace(rows, crowd=crowd)


def _blurred(precision: F64, moment: F64, sigma: F64) -> tuple[F64, F64]:
    """Evidence on parameters that each differ by `sigma` (p,) from those that were seen."""
    at = np.flatnonzero(sigma > 0)
    own = precision[np.ix_(at, at)] + np.diag(sigma[at] ** -2.0)
    cross = precision[:, at]
    solved = np.linalg.solve(own, np.column_stack([cross.T, moment[at]]))
    return precision - cross @ solved[:, :-1], moment - cross @ solved[:, -1]


def _nuisance(rows: Rows, levels: Levels) -> tuple[F64, F64]:
    """Means and standard errors (11,) of what is integrated out, in the order of
    `_Model.columns`."""
    cores = max(float(rows.crowd.max(initial=1.0)), 1.0)
    tail = [_TAIL * levels.busy_w] * len(TAILS_NS)
    mean = np.zeros(5 + len(_OF_CORES))
    mean[[0, _GAINED]] = 0.5 * levels.least_w, _GAIN[0]
    sigma = [
        *(0.5 * levels.least_w, _AWAKE * levels.busy_w, _GAIN[1], _OF_MISS[1]),
        *(_SATURATION / cores, *tail, _WAKE_NS * _TAIL * levels.busy_w),
    ]
    return mean, np.array(sigma)


@dataclass(frozen=True)
class _Solved:
    """Normal equations of the parameters that are told, and of all that is integrated out."""

    gram: F64
    moment: F64
    told_count: int
    repeats: float

    @staticmethod
    def at(rows: Rows, theta_factors: F64, mine: F64) -> _Solved:
        """`mine`: values of those that are told, at which the model is made linear."""
        levels = Levels.of(rows)
        mean, sigma = _nuisance(rows, levels)
        model, size = _Model.at(rows, theta_factors), len(mine)
        nuisance, noise = mean, RowNoise.expected(levels)
        odd = np.ones(len(rows.power_w))
        for _ in range(_ROUNDS):
            columns = model.columns(nuisance[_GAINED])
            target = rows.power_w - model.power_w + columns[:, :size] @ mine
            scale = noise.sigma(rows, model.dynamic_w) * np.sqrt(odd)
            own = OwnOfCores.of(rows, model.dynamic_w, scale, levels)
            gram, moment = own.without(columns, target)
            gram[size:, size:] += np.diag(sigma**-2.0)
            moment[size:] += mean / sigma**2
            right = moment[size:] - gram[size:, :size] @ mine
            nuisance = np.asarray(np.linalg.solve(gram[size:, size:], right), np.float64)
            error = own.rest(target - columns @ np.append(mine, nuisance))
            noise = noise.learned(rows, error, model.dynamic_w, levels)
            odd = noise.odd(rows, error, model.dynamic_w)
        return _Solved(gram, moment, size, noise.repeats)

    def told(self) -> tuple[F64, F64]:
        """Precision and moment of the parameters that are told."""
        size = self.told_count
        cross = self.gram[size:, :size]
        right = np.column_stack([cross, self.moment[size:]])
        solved = np.linalg.solve(self.gram[size:, size:], right)
        precision = self.gram[:size, :size] - cross.T @ solved[:, :-1]
        return precision / self.repeats, (
            self.moment[:size] - cross.T @ solved[:, -1]
        ) / self.repeats


@dataclass(frozen=True)
class _Model:
    """The model of the cores at one value: power (n,) without nuisance, and its derivatives."""

    power_w: F64
    dynamic_w: F64
    slopes: F64  #: (n, told) by the parameters
    beside: F64  #: (n, 4 + tails) by nuisance, without the gain's
    active: F64

    @staticmethod
    def at(rows: Rows, theta_factors: F64) -> _Model:
        value = np.concatenate([np.zeros(2 * len(rows.edge_w)), theta_factors])
        at_c = 2 * len(rows.edge_w) + _C
        whole_c, value[at_c] = value[at_c], _OF_MISS[0] * value[at_c]
        theta, factor, saturation, each = weights(rows, value)
        together = np.einsum("ngf,ng->nf", rows.features, saturation * factor)
        slopes = together @ basis_slopes(theta)
        of_miss = slopes[:, _C] * whole_c
        slopes[:, _C] *= _OF_MISS[0]
        of_k = -((rows.crowd * saturation * each) @ factor)
        dynamic, tails = each @ factor, rows.effects[:, _OF_CORES]
        costs = theta[len(WEIGHT_TERMS) :][_OF_CORES]
        return _Model(
            dynamic + tails @ costs,
            dynamic,
            np.hstack([slopes[:, _TOLD], each[:, :-1]]),
            np.column_stack([of_miss, of_k, tails]),
            rows.active,
        )

    def columns(self, gain: float) -> F64:
        """(n, p): by all that is told and all that is integrated out."""
        more = max(1.0 + gain, 0.1)
        ones = np.ones(len(self.active))
        beside = np.column_stack([ones, self.active, self.dynamic_w, self.beside])
        beside[:, _GAINED + 1 : _GAINED + 3] *= more
        return np.hstack([self.slopes * more, beside])
