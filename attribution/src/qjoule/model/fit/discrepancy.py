# SPDX-License-Identifier: Apache-2.0
"""Errors of the power model's form, as columns of a regression with Gaussian priors; and a check of
a fit against its own windows: does what it leaves unexplained go with anything?

The model has an explicit discrepancy term (Kennedy and O'Hagan, JRSS B 63, 2001). Without it, many
windows would make a simple model certain of values that are only approximately right.

The check is a posterior predictive one (Gelman, Meng and Stern, Statistica Sinica 6, 1996). Windows
are sorted by load, by idle tails, by memory traffic, and by the share of each class. If the mean of
what the fit left unexplained differs among the quarters, by more than its own noise, the machine
does something that the model has no term for. No window can tell whose that energy is, so all
owners' intervals take it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from qjoule.model.arrays import EFFECTS, F64
from qjoule.model.coefficients import THETA
from qjoule.model.features import basis
from qjoule.model.fit.observed import Rows

_K = THETA.index("k")
_KNOTS = np.array([0.0, 0.15, 0.35, 0.65, 1.0])  #: of the highest power above idle
#: Saturation by the cores' power: from none of it to all.
_BY_POWER = (0.5, 0.5)
#: Shared power by the cores' frequency: independent of it, as in an uncore with its own clock, or
#: fully dependent, as where it shares the cores' voltage (V**2 f goes with about the square of f).
_BY_PACE = (0.5, 0.5)
#: Voltage has a floor and steps; coefficients of f and f**3 follow its slope, not its curvature.
_OVER_FREQUENCY = 0.5
_QUARTERS = 4
_CHUNKS = 10  #: consecutive parts of a block; a mean's noise is how it differs among them
_LEAST_ROWS = 80
_CLASSES = 6  #: the classes with most CPU time
#: Standard errors by which a quarter's mean must differ; about 40 quarters are looked at.
_LIMIT = 4.0
_KEPT_AWAKE = EFFECTS.index("kept_awake")
_NS = slice(4, 6)  #: `FEATURES`: time alone, and beside a busy sibling


def discrepancy(rows: Rows, above_w: F64, value: F64, k_sigma: float) -> tuple[F64, F64, F64]:
    """Columns (n, 7), mean (7,) and standard error (7,) of their coefficients.

    `above_w` (n,): fitted power above idle. `k_sigma`: standard error of the belief about k. Power
    may be nonlinear in load and in frequency. It may saturate by the cores' power as well as by
    their number. Shared power may follow the cores' frequency.
    """
    some = rows.known.any()
    top = max(float(np.quantile(above_w[rows.known], 0.98)), 1e-9) if some else 1.0
    hats = np.stack([np.interp(above_w / top, _KNOTS, row) for row in np.eye(len(_KNOTS))[1:]], 1)
    faster = _faster(rows)
    squared = faster**2
    bent = above_w * (squared - (float(squared[rows.known].mean()) if some else 0.0))
    zones = len(rows.edge_w)
    paced = rows.active * value[zones : 2 * zones][rows.zone] * faster
    columns = (
        np.column_stack([hats, bent, _by_power(rows, value, k_sigma), paced]) * rows.known[:, None]
    )
    mean = np.append(np.zeros(len(_KNOTS)), (_BY_POWER[0], _BY_PACE[0]))
    sigma = (_OVER_FREQUENCY, _BY_POWER[1], _BY_PACE[1])
    return columns, mean, np.append(rows.bend * top * _KNOTS[1:], sigma)


def _faster(rows: Rows) -> F64:
    """(n,) frequency of those who ran, over its mean, minus 1; 0 where no cycles were counted."""
    cycles, cpu_ns = (rows.features[:, :, i : i + 2].sum(axis=(1, 2)) for i in (0, 4))
    counted = rows.known & (cycles > 0) & (cpu_ns > 0)
    if not counted.any():
        return np.zeros(len(cycles))
    mean = cycles[counted].sum() / cpu_ns[counted].sum()
    return np.where(counted, cycles / np.where(counted, cpu_ns, 1.0) / mean - 1.0, 0.0)


def _by_power(rows: Rows, value: F64, k_sigma: float) -> F64:
    """(n,) extra power if it saturated by the cores' power instead of by their number.

    Cores share voltage, which falls with their current (a regulator's load line), and frequency,
    which falls with their number. Loads of one kind cannot separate the two, but the difference
    decides how much less a window draws while some cores wait for memory.
    """
    fixed = 2 * len(rows.edge_w) + len(THETA)
    theta, factor = value[fixed - len(THETA) : fixed], np.append(value[fixed:], 1.0)
    each = (rows.features @ basis(theta)) * factor
    # Where the fit finds no saturation by number, a load line by power may still be there.
    dense = (
        np.hypot(theta[_K], k_sigma)
        * (each * rows.crowd).sum(axis=1)
        / np.maximum(each.sum(axis=1), 1e-30)
    )
    power = (each / (1.0 + theta[_K] * rows.crowd)).sum(axis=1)
    cores = rows.features[:, :, 4].sum(axis=1) + 0.5 * rows.features[:, :, 5].sum(axis=1)
    mean = float(power[rows.known].sum()) / max(float(cores[rows.known].sum()), 1e-30)
    ratio = power / np.maximum(cores, 1e-9) / max(mean, 1e-30)
    return np.asarray(-power * dense / (1.0 + dense) * (ratio - 1.0))


@dataclass(frozen=True)
class Misfit:
    """`with_what` the unexplained power goes, by name, and its size relative to the power above
    rest."""

    with_what: tuple[str, ...]
    relative: float


NO_MISFIT = Misfit((), 0.0)


def misfit_of(rows: Rows, left_w: F64, above_w: F64) -> Misfit:
    """What of `left_w` (n,), unexplained power, goes with something; `above_w` (n,): above rest."""
    known = np.flatnonzero(rows.known)
    mean_w = float(above_w[known].mean()) if len(known) else 0.0
    if len(known) < _LEAST_ROWS or mean_w <= 0:
        return NO_MISFIT
    found = {
        name: _beyond_noise(values[known], left_w[known])
        for name, values in _contexts(rows, above_w)
    }
    told = {name: watts for name, watts in found.items() if watts > 0}
    most_w = max(told.values(), default=0.0)
    return Misfit(tuple(told), most_w / mean_w)


def _contexts(rows: Rows, above_w: F64) -> Iterator[tuple[str, F64]]:
    tails = [i for i, name in enumerate(EFFECTS) if "tail" in name]
    traffic = [i for i, name in enumerate(EFFECTS) if "traffic" in name]
    yield "load", above_w
    yield "wake-ups", rows.effects[:, tails].sum(axis=1)
    yield "memory traffic", rows.effects[:, traffic].sum(axis=1)
    yield "another package awake", rows.effects[:, _KEPT_AWAKE]
    ns = rows.features[:, :, _NS].sum(axis=2)
    whole = np.maximum(ns.sum(axis=1), 1e-30)
    for one in np.argsort(-ns.sum(axis=0), kind="stable")[:_CLASSES]:
        yield "who runs", ns[:, one] / whole


def _beyond_noise(values: F64, left_w: F64) -> float:
    """Watts by which quarters of the windows differ, root mean square; 0 if that may be noise."""
    edges = np.quantile(values, np.arange(1, _QUARTERS) / _QUARTERS)
    if len(np.unique(edges)) < len(edges):
        return 0.0  # it hardly varies
    quarter = np.searchsorted(edges, values, "right")
    chunk = np.arange(len(values)) * _CHUNKS // len(values)
    key = quarter * _CHUNKS + chunk
    count = np.bincount(key, minlength=_QUARTERS * _CHUNKS).reshape(_QUARTERS, _CHUNKS)
    sums = np.bincount(key, left_w, minlength=count.size).reshape(count.shape)
    total = count.sum(axis=1)
    if (total == 0).any():
        return 0.0
    means = sums.sum(axis=1) / total
    # A ratio's variance (Cochran, Sampling Techniques, 1977, section 2.11), chunks as clusters.
    spread = ((sums - means[:, None] * count) ** 2).sum(axis=1) / total**2 * _CHUNKS / (_CHUNKS - 1)
    beyond = np.maximum(means**2 - spread, 0.0) * (means**2 > _LIMIT**2 * spread)
    return float(np.sqrt((beyond * total).sum() / total.sum()))
