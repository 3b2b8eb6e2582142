# SPDX-License-Identifier: Apache-2.0
"""Combines priors and the evidence of a block's windows into estimates of all parameters.

The spread of the classes' factors is unknown. Without a calibration it is also unknown whether
packages wait for a timer before they sleep. So the equations are solved under several priors, and
the posteriors are averaged by how well each prior predicts the windows (Hoeting et al., "Bayesian
model averaging: a tutorial", Statistical Science 14, 1999).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from qjoule.model.arrays import F64
from qjoule.model.energy import I64
from qjoule.model.nonnegative import optima

#: Candidate spreads of the factors relative to the expected spread; their prior weights follow.
_SPREADS = 2.0 ** np.arange(-2.0, 2.0, 0.5)
_SPREAD_SIGMA = 0.7  #: of the logarithm
#: A prior with at least this probability counts in full for the interval, because the data do not
#: exclude it.
_EXCLUDED = 0.05
_Z95 = 1.959963984540054


@dataclass(frozen=True)
class Prior:
    """A Gaussian prior of (idle_w, shared_w, theta), and the spread of the factors around 1.

    `wider`: precision of an alternative prior with the same means and the same probability.
    `only_up`: the indices of the parameters for which it is wider; these are not negative.
    `unaided`: a wider prior for the intervals, where nothing but the windows tells of the machine;
    None: this one.
    """

    mean: F64
    precision: F64
    spread: float
    wider: F64 | None = None
    only_up: tuple[int, ...] = ()
    unaided: Prior | None = None

    def with_independent(self, index: I64, mean: F64, precision: F64) -> Prior:
        """The prior with other means and precisions (n,) of the parameters `index` (n,), which
        become independent of the others."""

        def of(matrix: F64) -> F64:
            changed = matrix.copy()
            changed[index, :] = changed[:, index] = 0.0
            changed[index, index] = precision
            return changed

        means = self.mean.copy()
        means[index] = mean
        wider = self.wider if self.wider is None else of(self.wider)
        return replace(self, mean=means, precision=of(self.precision), wider=wider)


@dataclass(frozen=True)
class Average:
    """Values (p,), their covariance (p, p), and the spread of the factors.

    `one_sided` (p,): by how much all values move, at 95 %, if the `only_up` parameters are as large
    as the windows allow. It excludes what `covariance` contains of that. 0 if the windows determine
    these parameters.
    """

    value: F64
    covariance: F64
    spread: float
    one_sided: F64


@dataclass(frozen=True)
class _Posterior:
    """The posterior under one prior. `log_evidence`: log probability of the windows, up to a
    constant."""

    value: F64
    covariance: F64
    spread: float
    log_evidence: float


def averaged(precision: F64, moment: F64, belief: Prior) -> Average:
    """The parameters under the prior `belief` and the windows' `precision` (p, p) and `moment`
    (p,).

    Raises `LinAlgError` if the equations are too badly scaled to be solved.
    """
    narrow = _under(precision, moment, belief, belief.precision)
    if belief.wider is None:
        return Average(narrow.value, narrow.covariance, narrow.spread, np.zeros(len(narrow.value)))
    wide = _under(precision, moment, belief, belief.wider)
    wide_share = 1.0 / (
        1.0 + np.exp(np.clip(narrow.log_evidence - wide.log_evidence, -500.0, 500.0))
    )
    difference = wide.value - narrow.value
    narrow_excluded = max(1.0 - (1.0 - wide_share) / _EXCLUDED, 0.0)
    covariance = (1.0 - narrow_excluded) * narrow.covariance + narrow_excluded * wide.covariance
    covariance += wide_share * (1.0 - wide_share) * np.outer(difference, difference)
    index = np.array(belief.only_up)
    direction = wide.covariance[:, index].sum(axis=1)
    one_sided = direction * (_Z95 / np.sqrt(max(float(direction[index].sum()), 1e-300)))
    undecided = max(min(wide_share / _EXCLUDED, 1.0) - narrow_excluded, 0.0)
    return Average(
        narrow.value + wide_share * difference,
        covariance,
        float(np.sqrt((1.0 - wide_share) * narrow.spread**2 + wide_share * wide.spread**2)),
        undecided**0.5 * one_sided,
    )


def _under(data_precision: F64, moment: F64, belief: Prior, prior_precision: F64) -> _Posterior:
    """The posterior under `prior_precision`, averaged over the candidate spreads of the factors."""
    fixed_count, size = len(belief.mean), len(moment)
    mean = np.append(belief.mean, np.ones(size - fixed_count))
    spreads = belief.spread * (_SPREADS if size > fixed_count else np.ones(1))
    precision = np.zeros((len(spreads), size, size))
    precision[:, :fixed_count, :fixed_count] = prior_precision
    index = np.arange(fixed_count, size)
    precision[:, index, index] = spreads[:, None] ** -2.0
    grams = data_precision + precision
    solution = optima(grams, moment + precision @ mean)
    logs = np.einsum("sp,spq,sq->s", solution.free, grams, solution.free)
    logs -= precision @ mean @ mean + solution.log_determinant
    logs = 0.5 * logs - (size - fixed_count) * np.log(spreads)
    logs -= 0.5 * (np.log(spreads / belief.spread) / _SPREAD_SIGMA) ** 2
    weight = np.exp(logs - logs.max())
    weight /= weight.sum()
    value = weight @ solution.value
    deviation = solution.value - value
    covariance = np.tensordot(weight, solution.covariance, 1) + (deviation.T * weight) @ deviation
    # A fit that is better only because costs are negative does not count as evidence.
    best = int(weight.argmax())
    negative_part = solution.free[best] - solution.value[best]
    evidence = float(
        logs[best] - np.log(weight[best]) - 0.5 * negative_part @ grams[best] @ negative_part
    )
    evidence += 0.5 * float(np.linalg.slogdet(prior_precision)[1])
    return _Posterior(value, covariance, float(np.sqrt(weight @ spreads**2)), evidence)
