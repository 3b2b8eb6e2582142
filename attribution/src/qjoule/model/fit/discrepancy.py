# SPDX-License-Identifier: Apache-2.0
"""Errors of the power model's form, as columns of a regression with Gaussian priors; and a check of
a fit against its own windows: does the unexplained power correlate with anything?

The model has an explicit discrepancy term (Kennedy and O'Hagan, JRSS B 63, 2001). Without it, many
windows would make a simple model certain of values that are only approximately right.

The check is a posterior predictive one (Gelman, Meng and Stern, Statistica Sinica 6, 1996). Windows
are sorted by load, by idle tails, by memory traffic, and by the share of each class. If the mean
unexplained power differs among the quarters by more than its noise, the model lacks a term. Windows
cannot show whose that energy is, so the intervals of all owners are widened by it.
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
#: Share of saturation that is by the cores' power: mean and standard error.
_BY_POWER = (0.5, 0.5)
#: Share of shared power that follows the cores' frequency, mean and standard error: none in an
#: uncore with its own clock, all where it shares the cores' voltage (V**2 f goes with about the
#: square of f).
_BY_PACE = (0.5, 0.5)
#: Voltage has a floor and steps; coefficients of f and f**3 follow its slope, not its curvature.
_OVER_FREQUENCY = 0.5
_QUARTERS = 4
_CHUNKS = 10  #: consecutive parts of a block, whose differences give the noise of a mean
_LEAST_ROWS = 80
_CLASSES = 6  #: the classes with most CPU time
#: Standard errors by which a quarter's mean must differ; about 40 quarters are compared.
_SIGMAS = 4.0
_KEPT_AWAKE = EFFECTS.index("kept_awake")
_NS = slice(4, 6)  #: `FEATURES`: time alone, and beside a busy sibling


def discrepancy(rows: Rows, above_w: F64, value: F64, k_sigma: float) -> tuple[F64, F64, F64]:
    """Columns (n, 7), mean (7,) and standard error (7,) of their coefficients.

    `above_w` (n,): fitted power above idle. `k_sigma`: prior standard error of k. Power may be
    nonlinear in load and in frequency. It may saturate by the cores' power as well as by their
    number. Shared power may follow the cores' frequency.
    """
    any_measured = rows.known.any()
    top = max(float(np.quantile(above_w[rows.known], 0.98)), 1e-9) if any_measured else 1.0
    hats = np.stack([np.interp(above_w / top, _KNOTS, row) for row in np.eye(len(_KNOTS))[1:]], 1)
    frequency = _relative_frequency(rows)
    frequency2 = frequency**2
    voltage_curve = above_w * (
        frequency2 - (float(frequency2[rows.known].mean()) if any_measured else 0.0)
    )
    zones = len(rows.edge_w)
    frequency_shared = rows.active * value[zones : 2 * zones][rows.zone] * frequency
    columns = (
        np.column_stack([hats, voltage_curve, _by_power(rows, value, k_sigma), frequency_shared])
        * rows.known[:, None]
    )
    mean = np.append(np.zeros(len(_KNOTS)), (_BY_POWER[0], _BY_PACE[0]))
    sigma = (_OVER_FREQUENCY, _BY_POWER[1], _BY_PACE[1])
    return columns, mean, np.append(rows.model_error * top * _KNOTS[1:], sigma)


def _relative_frequency(rows: Rows) -> F64:
    """(n,) frequency of the busy cores over its mean, minus 1; 0 where no cycles were counted."""
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
    class_weight = (rows.features @ basis(theta)) * factor
    # Where the fit finds no saturation by number, a load line by power may still be there.
    saturation = (
        np.hypot(theta[_K], k_sigma)
        * (class_weight * rows.crowd).sum(axis=1)
        / np.maximum(class_weight.sum(axis=1), 1e-30)
    )
    power = (class_weight / (1.0 + theta[_K] * rows.crowd)).sum(axis=1)
    cores = rows.features[:, :, 4].sum(axis=1) + 0.5 * rows.features[:, :, 5].sum(axis=1)
    mean = float(power[rows.known].sum()) / max(float(cores[rows.known].sum()), 1e-30)
    ratio = power / np.maximum(cores, 1e-9) / max(mean, 1e-30)
    return np.asarray(-power * saturation / (1.0 + saturation) * (ratio - 1.0))


@dataclass(frozen=True)
class Misfit:
    """What the unexplained power correlates with (`contexts`), and its size relative to the power
    above rest."""

    contexts: tuple[str, ...]
    relative: float


NO_MISFIT = Misfit((), 0.0)


def misfit_of(rows: Rows, residual_w: F64, above_w: F64) -> Misfit:
    """Tests what the unexplained power `residual_w` (n,) correlates with; `above_w` (n,): power
    above rest."""
    measured = np.flatnonzero(rows.known)
    mean_w = float(above_w[measured].mean()) if len(measured) else 0.0
    if len(measured) < _LEAST_ROWS or mean_w <= 0:
        return NO_MISFIT
    excess_w = {
        name: _excess_w(values[measured], residual_w[measured])
        for name, values in _contexts(rows, above_w)
    }
    significant = {name: watts for name, watts in excess_w.items() if watts > 0}
    largest_w = max(significant.values(), default=0.0)
    return Misfit(tuple(significant), largest_w / mean_w)


def _contexts(rows: Rows, above_w: F64) -> Iterator[tuple[str, F64]]:
    tails = [i for i, name in enumerate(EFFECTS) if "tail" in name]
    traffic = [i for i, name in enumerate(EFFECTS) if "traffic" in name]
    yield "load", above_w
    yield "wake-ups", rows.effects[:, tails].sum(axis=1)
    yield "memory traffic", rows.effects[:, traffic].sum(axis=1)
    yield "another package awake", rows.effects[:, _KEPT_AWAKE]
    ns = rows.features[:, :, _NS].sum(axis=2)
    total_ns = np.maximum(ns.sum(axis=1), 1e-30)
    for class_column in np.argsort(-ns.sum(axis=0), kind="stable")[:_CLASSES]:
        yield "who runs", ns[:, class_column] / total_ns


def _excess_w(values: F64, residual_w: F64) -> float:
    """Differences between quarters of the windows in W, root mean square; 0 if they may be
    noise."""
    edges = np.quantile(values, np.arange(1, _QUARTERS) / _QUARTERS)
    if len(np.unique(edges)) < len(edges):
        return 0.0  # it hardly varies
    quarter = np.searchsorted(edges, values, "right")
    chunk = np.arange(len(values)) * _CHUNKS // len(values)
    key = quarter * _CHUNKS + chunk
    count = np.bincount(key, minlength=_QUARTERS * _CHUNKS).reshape(_QUARTERS, _CHUNKS)
    sums = np.bincount(key, residual_w, minlength=count.size).reshape(count.shape)
    total = count.sum(axis=1)
    if (total == 0).any():
        return 0.0
    means = sums.sum(axis=1) / total
    # A ratio's variance (Cochran, Sampling Techniques, 1977, section 2.11), chunks as clusters.
    spread = ((sums - means[:, None] * count) ** 2).sum(axis=1) / total**2 * _CHUNKS / (_CHUNKS - 1)
    excess2 = np.maximum(means**2 - spread, 0.0) * (means**2 > _SIGMAS**2 * spread)
    return float(np.sqrt((excess2 * total).sum() / total.sum()))
