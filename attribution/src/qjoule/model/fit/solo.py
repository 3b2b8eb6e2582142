# SPDX-License-Identifier: Apache-2.0
"""Solo moments: times in which one class of work runs alone, and what they show of its power.

While one class runs alone, a window's power above rest is that class's alone, so such windows
narrow its power factor most. `alone_in` finds the classes that ran alone in a block's rows, and the
information of those moments on their factors.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from qjoule.model.arrays import EFFECTS, F64
from qjoule.model.features import FEATURES
from qjoule.model.fit.averaged import Prior
from qjoule.model.fit.observed import Rows, above_idle, predict
from qjoule.model.power_model import Moments, PowerModel

#: Share of the busy time from which on a class counts as running alone.
ALONE = 0.95
#: What a linear model leaves unexplained lasts about as long as a call: see `fit.observed`.
_CORRELATED_S = 0.15
#: Share of the power above rest that one such time leaves unexplained; and the drift, as a share of
#: all power, that no length of time averages out.
_MISFIT, _DRIFT = 0.05, 0.005
_NS = [FEATURES.index("cpu_ns"), FEATURES.index("cpu_ns_shared")]
#: Rows whose zone is active for a smaller share of them show power at rest.
_AT_REST = 0.02


@dataclass(frozen=True)
class Moment:
    """Class `column` ran alone in `windows` consecutive windows from number `first` on."""

    column: int
    first: int
    windows: int


def solo_moments(busy_ns: F64) -> list[Moment]:
    """The moments in `busy_ns` (n, g): CPU time of each class in each window, in order of time.

    A window without work belongs to no moment. Raises `ValueError` if the array has another shape,
    or a negative or infinite time.
    """
    if busy_ns.ndim != 2 or not np.isfinite(busy_ns).all() or (busy_ns < 0).any():
        raise ValueError("no CPU times by window and class")
    if not busy_ns.size:
        return []
    total = busy_ns.sum(axis=1)
    heaviest = busy_ns.argmax(axis=1)
    is_alone = (total > 0) & (busy_ns.max(axis=1) >= ALONE * total)
    solo_class = np.where(is_alone, heaviest, -1)
    starts = np.flatnonzero(np.diff(solo_class, prepend=-2))
    ends = np.append(starts[1:], len(solo_class))
    return [
        Moment(int(solo_class[begin]), int(begin), int(end - begin))
        for begin, end in zip(starts, ends, strict=True)
        if solo_class[begin] >= 0
    ]


def after(covariance: F64, slopes: F64, noise_w: F64) -> F64:
    """The posterior covariance (p, p) after some windows.

    `covariance` (p, p) before; `slopes` (m, p) of the windows' power by the parameters; `noise_w`
    (m,) their standard errors, > 0.
    """
    cross = covariance @ slopes.T
    inner = slopes @ cross + np.diag(noise_w**2)
    posterior = covariance - cross @ np.linalg.solve(inner, cross.T)
    return np.asarray((posterior + posterior.T) / 2)


def alone(model: PowerModel, zone: int, column: int, features: F64) -> tuple[F64, float]:
    """Slopes (p,) and power in W of a zone whose only work is one class on one busy core.

    `features` (f,): the class's `FEATURES` per nanosecond of CPU time.
    """
    size = len(model.classes)
    of_class = np.zeros((1, size + 1, len(FEATURES)))
    of_class[0, column] = features
    rows = Rows(
        power_w=np.zeros(1),
        known=np.ones(1, bool),
        zone=np.array([zone]),
        active=np.ones(1),
        crowd=np.ones((1, size + 1)),
        features=of_class,
        effects=np.zeros((1, len(EFFECTS))),
        classes=model.classes,
        edge_w=np.zeros(model.zones),
        step_s=1.0,
    )
    idle_w = np.nan_to_num(model.idle_w)
    value = np.concatenate([idle_w, model.shared_w, model.theta, model.factor])
    power, slopes = predict(rows, value)
    return slopes[0], float(power[0])


def noise_of(power_w: float, above_w: float, seconds: float) -> float:
    """Standard error in W of the mean power over `seconds`, of which `above_w` is above rest."""
    independent_times = max(seconds / _CORRELATED_S, 1.0)
    return float(np.hypot(_MISFIT * above_w / np.sqrt(independent_times), _DRIFT * power_w)) or 1e-9


def noises_of(power_w: F64, above_w: F64, lengths_s: F64) -> F64:
    """(n,) standard errors in W of rows, such that n rows give as much information as one long row.
    The misfit of a short row lasts into its neighbours, and drift does not average out."""
    independent_times = np.maximum(lengths_s / _CORRELATED_S, 1e-9)
    drift = _DRIFT * power_w * np.sqrt(max(len(power_w), 1))
    return np.asarray(
        np.maximum(np.hypot(_MISFIT * above_w / np.sqrt(independent_times), drift), 1e-9)
    )


def narrowed(
    model: PowerModel, zone: int, column: int, features: F64, seconds: float
) -> tuple[float, float]:
    """Standard error of one class's factor now, and after it ran alone for `seconds`.

    Power at rest is measured for as long between the runs.
    """
    slopes, power_w = alone(model, zone, column, features)
    idle_slopes = np.zeros(len(slopes))
    idle_slopes[zone] = 1.0
    idle_w = float(np.nan_to_num(model.idle_w[zone]))
    noise_w = np.array(
        [noise_of(power_w, power_w - idle_w, seconds), noise_of(idle_w or power_w, 0.0, seconds)]
    )
    index = model.fixed + column
    covariance = after(model.covariance, np.stack([slopes, idle_slopes]), noise_w)
    return model.factor_sigma(column), float(np.sqrt(max(covariance[index, index], 0.0)))


@dataclass(frozen=True)
class SingleClassEvidence:
    """The evidence of rows in which one class, or nothing, ran.

    `precision` (p, p): of all parameters, in the order of `block.BlockFit`; `alone_s` (g,): seconds
    for which each class alone kept a zone active.
    """

    precision: F64
    alone_s: F64

    @staticmethod
    def none(size: int, classes: int) -> SingleClassEvidence:
        return SingleClassEvidence(np.zeros((size, size)), np.zeros(classes))

    def plus(self, block: SingleClassEvidence, keep: float) -> SingleClassEvidence:
        """The sum with the evidence of another block; `keep`: share of the earlier evidence that
        stays."""
        return SingleClassEvidence(
            keep * self.precision + block.precision, self.alone_s + block.alone_s
        )

    def moments(self, belief: Prior) -> Moments:
        """Summary for reports: how much these rows alone narrow the prior `belief`."""
        fixed, size = len(belief.mean), len(self.precision)
        prior = np.zeros((size, size))
        prior[:fixed, :fixed] = belief.precision
        index = np.arange(fixed, size)
        prior[index, index] = belief.spread**-2.0
        posterior_precision = prior + self.precision
        scale = np.sqrt(np.maximum(np.diag(posterior_precision), 1e-300))
        inverse = np.linalg.inv(posterior_precision / np.outer(scale, scale)) / np.outer(
            scale, scale
        )
        variance = np.clip(np.diag(inverse)[fixed:], 1e-300, belief.spread**2)
        information_nats = np.where(
            self.alone_s > 0, 0.5 * np.log(belief.spread**2 / variance), 0.0
        )
        return Moments(self.alone_s, information_nats)


def alone_in(rows: Rows, value: F64) -> SingleClassEvidence:
    """The evidence of rows in which one class ran alone; `value` (p,): of all parameters."""
    power, slopes = predict(rows, value)
    classes = len(rows.classes)
    busy_ns = rows.features[:, :, _NS].sum(axis=2) * rows.known[:, None]
    solo_class = np.full(len(busy_ns), -1, np.int64)
    # Zones cover the same times, so a moment must not extend from one zone into the next.
    for zone in range(len(rows.edge_w)):
        in_zone = np.flatnonzero(rows.zone == zone)
        for moment in solo_moments(busy_ns[in_zone]):
            solo_class[in_zone[moment.first : moment.first + moment.windows]] = moment.column
    at_rest = rows.known & (rows.active < _AT_REST)
    solo_class[at_rest | (solo_class == classes)] = -1  # the last column is many classes
    is_used = at_rest | (solo_class >= 0)
    noise_w = noises_of(power, above_idle(rows, power, value), rows.lengths_s)
    noise_w = np.hypot(noise_w, 2**0.5 * rows.edge_w[rows.zone])
    scaled_slopes = slopes[is_used] / noise_w[is_used, None]
    is_solo, active_s = solo_class >= 0, rows.active * rows.lengths_s
    seconds: F64 = np.bincount(solo_class[is_solo], active_s[is_solo], minlength=classes).astype(
        np.float64
    )
    return SingleClassEvidence(scaled_slopes.T @ scaled_slopes, seconds)
