# SPDX-License-Identifier: Apache-2.0
"""Priors of a machine's power, before any window of a trace is used."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from qjoule.model.arrays import F64, LONG_TAILS_NS, TAILS_NS, TRAFFIC_PER_NS
from qjoule.model.coefficients import (
    DEFAULT_ALPHA,
    DEFAULT_SMALL,
    EFFECT_TERMS,
    THETA,
    WEIGHT_TERMS,
    IdleTable,
    Weights,
)
from qjoule.model.energy import I64
from qjoule.model.fit.averaged import Prior
from qjoule.model.fit.observed import Rows
from qjoule.model.power_model import PowerModel

#: Without a calibration: the share of the mean power that a term may explain, and its sigma. Clock
#: and issue come first, then instructions and misses (Bellosa 2000; Isci and Martonosi, MICRO 2003,
#: find most of a core's dynamic power in what its clock drives).
_BY_COUNTERS = {
    "a": (0.4, 0.4),
    "v": (0.2, 0.3),
    "b": (0.15, 0.2),
    "c": (0.1, 0.15),
    "t": (0.05, 0.1),
}
_BY_TIME = {"t": (0.9, 0.9)}
_DRAM = {"c": (0.6, 0.4), "t": (0.1, 0.15)}
_FEATURE = {"a": (0, 1), "b": (2, 8), "c": (3, 9), "t": (4, 5), "v": (6, 7)}
_ALPHA_SIGMA = 0.1  #: HaPPy finds 0.5 to 0.6 over workloads and frequencies
#: By time alone, the factor also stands for the instructions that siblings retire. On nine kernels
#: of 2 x EPYC 7502 it is 0.5 (square roots, which wait for one unit) to 0.91 (busy wait):
#: (1 + slope) / 2 of the slopes of package power that `make bench-real` prints; mean and spread.
_ALPHA_BY_TIME = (0.61, 0.16)
#: Power drawn once by a package that is awake, of its mean power meanwhile. Two loads that were
#: measured alone, without rest, exceeded both together by 16 and by 56 % of it (docs/model.md).
_SHARED = (0.25, 0.15)
#: Memory leaves self-refresh while any core is awake: 8 W of 46 were measured without a miss.
_SHARED_DRAM = (0.05, 0.1)
_IDLE = (0.5, 0.3)  #: of the least measured power: power at rest is between zero and all of it
_IDLE_RESTING = (1.0, 0.3)  #: the same while the machine rests: what is not may be long tails
#: Where neither a calibration nor a rest nor an earlier trace tells of the machine, windows of a
#: load that never pauses hardly separate power at rest from shared power, so these priors decide
#: both. There, intervals take shared power to be between zero and twice its mean (1 sigma): 56 %
#: were measured, and a load of a few cores has more of it than a full one.
_SHARED_SIGMA_UNAIDED = 0.25
_SATURATION_SIGMA = 0.3  #: all cores together may draw this much less than the sum of each alone
_BETA_SIGMA = 0.1  #: siblings share caches and buffers, so an instruction may cost more or less
#: More than one core draws at its highest frequency. It bounds the prior of busy cores' power on a
#: machine that is almost idle.
_MOST_CORE_W = 40.0
_SMALL_SIGMA = 0.2  #: of the cost on a small core: it varies more between makers than they state
_DYNAMIC_SHARE = 0.5  #: share of the mean power that busy cores draw
#: Shared power that follows memory traffic: an uncore's clock rises with it (Intel SDM vol. 3,
#: "uncore frequency scaling"). Of the mean power, at the mean traffic.
_FOLLOWS_TRAFFIC = 0.05
#: Power of a tail, for each of its lengths: of the mean power, and of a core's power.
_TAIL_PACKAGE, _TAIL_CORE = 0.06, 0.15
#: Power of a package that another one keeps awake, relative to the mean power: between zero and
#: about all of its shared power.
_KEPT_AWAKE = 0.1
#: The same for the interval where nothing else tells of the machine, relative to the mean power of
#: the package that draws least: as wide as shared power.
_KEPT_AWAKE_UNAIDED = 0.25
#: Power of a package's long tails, relative to the mean power. The kernel's tables do not list
#: package states: firmware enters them, often only at a timer's tick. Until then a package draws up
#: to all of its shared power. A package whose cores have no deep state has no such state either.
#: Windows of a load without long sleeps can hardly separate long tails from power at rest. So
#: unless power at rest is known, there are two priors: with long tails, and with almost none.
_TAIL_LONG, _TAIL_NONE = 0.09, 0.002
#: Share of its shared power that a package keeps in its long tails together: what cores share stays
#: on (AgilePkgC, MICRO 2022), in part. With 0.7 intervals are a tenth wider and hold no more often.
_TAIL_OF_SHARED = 0.4
_LONG_TAILS = [
    THETA.index(f"p{i}") for i in range(len(TAILS_NS), len(TAILS_NS) + len(LONG_TAILS_NS))
]
#: What a sleep costs is not the same under another load, so a calibration tells its mean only. The
#: governor picks a state by the last sleeps (Documentation/admin-guide/pm/cpuidle.rst, "menu"), and
#: an uncore keeps the clock of the work before (Hackenberg et al., HPPAC 2015).
_BY_SLEEPS = slice(THETA.index("p0"), THETA.index("kept"))
#: A wake-up costs about the exit latency of a state (drivers/idle/intel_idle.c: 2 to 200 us); this
#: long where the kernel shows no states.
_WAKE_NS = 20e3
_LEAST_QUANTILE = 0.02  #: quantile that is used as the least power


def belief_of(
    prior: PowerModel,
    rows: Rows,
    weights: Weights,
    *,
    dram: bool,
    table: IdleTable | None = None,
    long_tails: bool = False,
    rests: bool = False,
    remembered: bool = True,
) -> Prior:
    """Means and precisions for `fit_block`: from the calibration if there is one, otherwise wide.

    `table`: the idle states that the machine's kernel lists; None: it lists none. `long_tails`:
    whether long tails can be separated from power at rest, because that is known, or because the
    phases contain long sleeps. Otherwise the prior of long tails gets a wider alternative, unless
    the machine `rests` in these windows. `remembered`: whether anything else tells of the machine:
    earlier traces, or a rest. If nothing does, intervals have a prior of their own
    (`Prior.unaided`).
    """
    levels = _levels(rows, prior.zones)
    context = _DomainContext(levels, dram, table, long_tails or rests, rests)
    belief = _belief(prior, rows, weights, context)
    if weights.calibrated or dram or rests or remembered:
        return belief
    context = replace(context, unaided=True)
    return replace(belief, unaided=_belief(prior, rows, weights, context))


def sleeps_deep(table: IdleTable | None) -> bool:
    """Whether cores may have a deep idle state: unless the kernel's table lists only others."""
    return table is None or table.deep


def with_long_tails(belief: Prior, rows: Rows, zones: int) -> Prior:
    """`belief`, in which long tails are as uncertain as without a calibration, for windows that
    contradict a calibrated power at rest: a load without long sleeps shows both as one."""
    index = 2 * zones + np.array(_LONG_TAILS)
    sigma_w = _TAIL_LONG * float(_levels(rows, zones).mean_w.mean())
    return belief.with_independent(index, belief.mean[index], np.full(len(index), sigma_w**-2.0))


def _belief(prior: PowerModel, rows: Rows, weights: Weights, context: _DomainContext) -> Prior:
    levels, table = context.levels, context.table
    idle, idle_var = _idle(prior, levels.least_w, _IDLE_RESTING if context.rests else _IDLE)
    shared, shared_var = _shared(prior, levels.awake_w, context, weak=not weights.calibrated)
    theta, theta_cov = _theta(prior, rows, weights, context)
    covariance = np.zeros((prior.fixed, prior.fixed))
    power_index = np.arange(2 * prior.zones)
    covariance[power_index, power_index] = np.concatenate([idle_var, shared_var])
    covariance[2 * prior.zones :, 2 * prior.zones :] = theta_cov
    belief = Prior(np.concatenate([idle, shared, theta]), _inverse(covariance), prior.spread)
    separable = weights.calibrated or context.long_tails
    if separable or context.dram or not sleeps_deep(table):
        return belief
    long_index = 2 * prior.zones + np.array(_LONG_TAILS)
    covariance[long_index, long_index] = (_TAIL_LONG * context.mean_w) ** 2
    if context.unaided:
        _add_tails_of_shared(covariance, prior.zones, long_index)
    return replace(belief, wider=_inverse(covariance), only_up=tuple(long_index.tolist()))


def _add_tails_of_shared(covariance: F64, zones: int, long_index: I64) -> None:
    """Makes the prior of long tails follow that of the zones' shared power, in place."""
    shared_index = np.arange(zones, 2 * zones)
    root = np.zeros((len(covariance), zones))
    root[shared_index, np.arange(zones)] = np.sqrt(np.diag(covariance)[shared_index])
    root[long_index] = root[shared_index].sum(axis=0) * _TAIL_OF_SHARED / (len(long_index) * zones)
    covariance[shared_index, shared_index] = 0.0
    covariance += root @ root.T


def _inverse(covariance: F64) -> F64:
    scale = np.sqrt(np.diag(covariance))
    inverse = np.linalg.inv(covariance / np.outer(scale, scale) + 1e-9 * np.eye(len(scale)))
    return np.asarray(inverse / np.outer(scale, scale))


@dataclass(frozen=True)
class _DomainContext:
    """The zones' power; whether the domain is DRAM; the machine's idle states; whether windows tell
    long tails, and whether they show a machine at rest; whether it is `Prior.unaided` that is asked
    for."""

    levels: _Levels
    dram: bool
    table: IdleTable | None
    long_tails: bool
    rests: bool
    unaided: bool = False

    @property
    def mean_w(self) -> float:
        return float(self.levels.mean_w.mean())


class _Levels(NamedTuple):
    """Mean and least power of each zone, and the mean while it is awake, if it ever is."""

    mean_w: F64
    least_w: F64
    awake_w: F64


def _levels(rows: Rows, zones: int) -> _Levels:
    mean, least_w, awake = (np.full(zones, 1e-3) for _ in range(3))
    for z in range(zones):
        measured = (rows.zone == z) & rows.known
        zone_power_w, active_share = rows.power_w[measured], rows.active[measured]
        if len(zone_power_w):
            mean[z] = awake[z] = max(float(zone_power_w.mean()), 1e-3)
            least_w[z] = max(float(np.quantile(zone_power_w, _LEAST_QUANTILE)), 1e-3)
        if active_share.any():
            awake[z] = max(float((active_share * zone_power_w).sum() / active_share.sum()), 1e-3)
    return _Levels(mean, least_w, awake)


def _idle(prior: PowerModel, least_w: F64, of_least: tuple[float, float]) -> tuple[F64, F64]:
    unknown = np.isnan(prior.idle_w)
    value = np.where(unknown, of_least[0] * least_w, prior.idle_w)
    variance = np.diag(prior.covariance)[: prior.zones]
    return value, np.where(unknown, (of_least[1] * least_w) ** 2, np.maximum(variance, 1e-12))


def _shared(
    prior: PowerModel, awake_w: F64, context: _DomainContext, *, weak: bool
) -> tuple[F64, F64]:
    value = prior.shared_w
    variance = np.diag(prior.covariance)[prior.zones : 2 * prior.zones]
    if weak and not value.any():
        mean, sigma = _SHARED_DRAM if context.dram else _SHARED
        sigma = _SHARED_SIGMA_UNAIDED if context.unaided else sigma
        return mean * awake_w, (sigma * awake_w) ** 2
    return value, variance + (1e-4 * awake_w) ** 2


def _theta(
    prior: PowerModel, rows: Rows, weights: Weights, context: _DomainContext
) -> tuple[F64, F64]:
    value, sigma = _uncalibrated(prior, rows, weights, context)
    if not weights.calibrated:
        return value, np.diag(sigma**2)
    theta_cov = prior.covariance[2 * prior.zones :, 2 * prior.zones :]
    # An older calibration lacks the terms that were added to the model later.
    unknown = (np.diag(theta_cov) == 0) & (np.arange(len(THETA)) >= THETA.index("beta"))
    variance = (1e-3 * np.abs(prior.theta) + 1e-9) ** 2
    variance[_BY_SLEEPS] = sigma[_BY_SLEEPS] ** 2
    covariance = theta_cov + np.diag(np.where(unknown, sigma**2, variance))
    return np.where(unknown, value, prior.theta), covariance


def _uncalibrated(
    prior: PowerModel, rows: Rows, weights: Weights, context: _DomainContext
) -> tuple[F64, F64]:
    """Values (30,) of `THETA` and their standard errors."""
    mean_w, dram = context.mean_w, context.dram
    by_time = not (prior.theta[[0, 1, 2, 4]] > 0).any()
    terms = _BY_TIME if by_time else _DRAM if dram else _BY_COUNTERS
    mean_features = rows.features[rows.known].sum(axis=1).mean(axis=0)
    busy = float(mean_features[list(_FEATURE["t"])].sum())
    dynamic_w = min(mean_w, _MOST_CORE_W * busy)
    value, sigma = np.zeros(len(THETA)), np.full(len(THETA), 1e-6)
    for i, name in enumerate(THETA[:5]):
        mean_feature = float(mean_features[list(_FEATURE[name])].sum())
        if name in terms and mean_feature > 0:
            value[i], sigma[i] = (fraction * dynamic_w / mean_feature for fraction in terms[name])
    value[5], sigma[5] = (DEFAULT_ALPHA if not weights.alpha else weights.alpha), _ALPHA_SIGMA
    if by_time:
        value[5], sigma[5] = _ALPHA_BY_TIME
    max_crowd = max(float(rows.crowd.max(initial=0.0)), 1.0)
    value[6], sigma[6] = 0.0, _SATURATION_SIGMA / max_crowd
    value[7], sigma[7] = 1.0, _BETA_SIGMA
    value[8], sigma[8] = DEFAULT_SMALL, _SMALL_SIGMA
    if not dram:
        sigma[len(WEIGHT_TERMS) :] = _effect_sigmas(rows, context, by_time=by_time)
    return value, sigma


def _effect_sigmas(rows: Rows, context: _DomainContext, *, by_time: bool) -> F64:
    """(21,) standard errors of `EFFECT_TERMS`, whose prior means are 0."""
    mean_w, table = context.mean_w, context.table
    measured, tail_count, limit_count = rows.known, len(TAILS_NS), len(TRAFFIC_PER_NS)
    active = float(rows.active[measured].sum())
    core_w = (
        _DYNAMIC_SHARE
        * mean_w
        / max(float(rows.features[measured][:, :, 4:6].sum(axis=(1, 2)).mean()), 1.0)
    )
    traffic = (
        rows.effects[measured, :limit_count].sum(axis=0) / active
        if active > 0
        else np.zeros(limit_count)
    )
    sigma = np.full(len(EFFECT_TERMS), 1e-6)
    if not by_time:
        has_traffic = np.flatnonzero(traffic > 0)
        sigma[has_traffic] = _FOLLOWS_TRAFFIC * mean_w / traffic[has_traffic]
    lengths = table.tails if table else np.ones(tail_count)
    wake_ns = table.wake_ns if table else _WAKE_NS
    sigma[limit_count : limit_count + tail_count] = _TAIL_PACKAGE * mean_w * lengths
    sigma[limit_count + tail_count : limit_count + 2 * tail_count] = _TAIL_CORE * core_w * lengths
    wakes = limit_count + 2 * tail_count
    sigma[wakes : wakes + 2] = wake_ns * _TAIL_PACKAGE * mean_w, wake_ns * _TAIL_CORE * core_w
    sigma[wakes + 2] = _KEPT_AWAKE * mean_w
    if context.unaided:
        least_mean_w = float(context.levels.mean_w.min())
        sigma[wakes + 2] = max(sigma[wakes + 2], _KEPT_AWAKE_UNAIDED * least_mean_w)
    sigma[wakes + 3 :] = mean_w * (
        _TAIL_LONG if context.long_tails and sleeps_deep(table) else _TAIL_NONE
    )
    return sigma
