# SPDX-License-Identifier: Apache-2.0
"""What is believed before the windows of a block, and the parameters that it and they give.

How far the classes' factors spread is not known, and of a machine that nobody has calibrated it is
not known whether its packages wait for a timer before they sleep. So the equations are solved under
several beliefs, and the answers are averaged by how well each belief predicts the windows
(Hoeting et al., "Bayesian model averaging: a tutorial", Statistical Science 14, 1999).
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
#: A belief that is at least so probable counts in full for the interval: the data do not exclude
#: it.
_EXCLUDED = 0.05
_Z95 = 1.959963984540054


@dataclass(frozen=True)
class Prior:
    """Gaussian knowledge of (idle_w, shared_w, theta) and how far factors spread around 1.

    `wider`: precision of another belief about the same means that is as probable; `only_up`: the
    numbers of the parameters about which it is wider, which are not negative.
    """

    mean: F64
    precision: F64
    spread: float
    wider: F64 | None = None
    only_up: tuple[int, ...] = ()

    def told(self, at: I64, mean: F64, precision: F64) -> Prior:
        """With other knowledge of the parameters `at` (n,), which are independent of the others."""

        def of(matrix: F64) -> F64:
            out = matrix.copy()
            out[at, :] = out[:, at] = 0.0
            out[at, at] = precision
            return out

        means = self.mean.copy()
        means[at] = mean
        wider = self.wider if self.wider is None else of(self.wider)
        return replace(self, mean=means, precision=of(self.precision), wider=wider)


@dataclass(frozen=True)
class Average:
    """Values (p,), their covariance (p, p), and the spread of the factors.

    `untold` (p,): how far all of them move, at 95 %, if the parameters that can only be larger are
    as large as the windows allow, beyond what `covariance` contains of it. 0 if windows tell.
    """

    value: F64
    covariance: F64
    spread: float
    untold: F64


@dataclass(frozen=True)
class _Answer:
    """Under one belief; `log_evidence`: of what is told, up to a constant."""

    value: F64
    covariance: F64
    spread: float
    log_evidence: float


def averaged(precision: F64, moment: F64, belief: Prior) -> Average:
    """The parameters by what windows tell, `precision` (p, p) and `moment` (p,), under `belief`.

    Raises `LinAlgError` if the numbers are so far apart that they cannot be solved.
    """
    one = _under(precision, moment, belief, belief.precision)
    if belief.wider is None:
        return Average(one.value, one.covariance, one.spread, np.zeros(len(one.value)))
    other = _under(precision, moment, belief, belief.wider)
    share = 1.0 / (1.0 + np.exp(np.clip(one.log_evidence - other.log_evidence, -500.0, 500.0)))
    apart = other.value - one.value
    surely = max(1.0 - (1.0 - share) / _EXCLUDED, 0.0)
    covariance = (1.0 - surely) * one.covariance + surely * other.covariance
    covariance += share * (1.0 - share) * np.outer(apart, apart)
    at = np.array(belief.only_up)
    along = other.covariance[:, at].sum(axis=1)
    untold = along * (_Z95 / np.sqrt(max(float(along[at].sum()), 1e-300)))
    left = max(min(share / _EXCLUDED, 1.0) - surely, 0.0)
    return Average(
        one.value + share * apart,
        covariance,
        float(np.sqrt((1.0 - share) * one.spread**2 + share * other.spread**2)),
        left**0.5 * untold,
    )


def _under(told: F64, moment: F64, belief: Prior, known: F64) -> _Answer:
    """The answer under the precision `known`, averaged over how far factors may spread."""
    fixed, size = len(belief.mean), len(moment)
    mean = np.append(belief.mean, np.ones(size - fixed))
    spreads = belief.spread * (_SPREADS if size > fixed else np.ones(1))
    precision = np.zeros((len(spreads), size, size))
    precision[:, :fixed, :fixed] = known
    index = np.arange(fixed, size)
    precision[:, index, index] = spreads[:, None] ** -2.0
    grams = told + precision
    found = optima(grams, moment + precision @ mean)
    logs = np.einsum("sp,spq,sq->s", found.free, grams, found.free)
    logs -= precision @ mean @ mean + found.log_determinant
    logs = 0.5 * logs - (size - fixed) * np.log(spreads)
    logs -= 0.5 * (np.log(spreads / belief.spread) / _SPREAD_SIGMA) ** 2
    share = np.exp(logs - logs.max())
    share /= share.sum()
    value = share @ found.value
    apart = found.value - value
    total = np.tensordot(share, found.covariance, 1) + (apart.T * share) @ apart
    # What a negative cost would explain is no evidence.
    best = int(share.argmax())
    beyond = found.free[best] - found.value[best]
    evidence = float(logs[best] - np.log(share[best]) - 0.5 * beyond @ grams[best] @ beyond)
    evidence += 0.5 * float(np.linalg.slogdet(known)[1])
    return _Answer(value, total, float(np.sqrt(share @ spreads**2)), evidence)
