# SPDX-License-Identifier: Apache-2.0
"""Computes the coefficients of the machine from the windows of a calibration run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from qjoule.model.account import joined
from qjoule.model.arrays import F64, WindowBatch
from qjoule.model.coefficients import (
    DEFAULT_WEIGHT_ERROR,
    THETA,
    Coefficients,
    PowerInterval,
    Weights,
)
from qjoule.model.energy import I64, Series
from qjoule.model.fit.beliefs import belief_of
from qjoule.model.fit.block import BlockFit, Evidence, fit_block, predict
from qjoule.model.fit.observed import Rows
from qjoule.model.fit.rows import Source, itself, make_rows, thinned, width_for
from qjoule.model.interval import Z95
from qjoule.model.ledger import main_domain
from qjoule.model.power_model import PowerModel
from qjoule.model.zones import zones

_IDLE = "idle"
_MOST_ROWS = 600  #: per zone: a kernel runs unchanged for a second, so longer windows lose nothing
_LEAST_ROWS = 30
#: A coefficient counts as identified if its standard error is below this share of it.
_TOLD = 0.35
#: Kernels differ in ways that counters do not see; workloads are assumed to differ at least this
#: much.
_LEAST_SPREAD = 0.05


@dataclass(frozen=True)
class Phase:
    """A phase of a calibration run: `threads` kernels `name` ran; `smt`: two on each core."""

    name: str
    t0_ns: int
    t1_ns: int
    threads: int
    smt: bool


@dataclass(frozen=True)
class Identified:
    """A coefficient with its 95 % interval; `why` is the reason why it was not identified."""

    value: float
    low: float
    high: float
    ok: bool
    why: str = ""


@dataclass(frozen=True)
class CalibrationFit:
    """`held_out_error`: per domain, of kernels not fitted, relative to the mean power above idle.

    `identified`: named as in the coefficients, with ".domain" or "idle_w.domain.package".
    """

    coefficients: Coefficients
    held_out_error: dict[str, float]
    identified: dict[str, Identified]
    notes: tuple[str, ...] = ()


def fit_calibration(
    batches: Sequence[WindowBatch], series: Sequence[Series], phases: Sequence[Phase]
) -> CalibrationFit:
    """Fits all coefficients that the phases can identify, with the basis of each.

    Windows that are not fully within a phase are left out. Each kernel has its own power factor;
    the part common to all kernels gives the machine's coefficients. Domains without enough windows
    are left out, with a note.
    """
    whole = joined(batches)
    kernels = sorted({phase.name for phase in phases if phase.name != _IDLE})
    kernel = _kernel_of(whole.energy.boundaries_ns, phases, kernels)
    main = main_domain([one.domain for one in series])
    made: dict[str, _DomainFit] = {}
    notes: list[str] = []
    for domain in dict.fromkeys(one.domain for one in series):
        for counters in (True, False):
            fit = _fit_domain(whole, tuple(series), domain, kernel, len(kernels), counters=counters)
            name = domain if counters else f"{domain}/time"
            if fit is None:
                notes.append(f"{domain}: too few windows of the phases were measured")
                break
            made[name] = fit
            if counters and not fit.counters:
                made[f"{domain}/time"] = fit
                break
    return _result(made, main, notes)


#: Values for windows that do not belong to one kernel.
_AT_REST, _OUTSIDE = -1, -2


def _kernel_of(bounds_ns: I64, phases: Sequence[Phase], kernels: Sequence[str]) -> I64:
    """Number of the kernel that ran in each window; `_OUTSIDE` if no phase contains it wholly."""
    out = np.full(max(len(bounds_ns) - 1, 0), _OUTSIDE, np.int64)
    for phase in phases:
        inside = (bounds_ns[:-1] >= phase.t0_ns) & (bounds_ns[1:] <= phase.t1_ns)
        out[inside] = kernels.index(phase.name) if phase.name in kernels else _AT_REST
    return out


@dataclass(frozen=True)
class _DomainFit:
    """One domain's fit; `held_out` is None where no kernel could be left out."""

    domain: str
    packages: tuple[int, ...]
    fit: BlockFit
    counters: bool
    held_out: float | None
    prior_sigma: F64


def _fit_domain(
    whole: WindowBatch,
    series: tuple[Series, ...],
    domain: str,
    kernel: I64,
    kernels: int,
    *,
    counters: bool,
) -> _DomainFit | None:
    places = zones(series, whole.packages, domain)
    packages = tuple(zone.package for zone in places)
    weights = Coefficients().of(domain, counters=counters)
    # Time has the same weight for everyone, so no counters are used.
    rows, read = make_rows([whole], Source(series, places, weights, itself, 1_000_000))
    rows = thinned(_by_kernel(rows, kernel, kernels), width_for(rows, _MOST_ROWS))
    if int(rows.known.sum()) < _LEAST_ROWS * len(places) or not rows.features.any():
        return None
    if not counters or not read:
        rows = replace(rows, features=rows.features * _TIME_ALONE)
    model = PowerModel.of(Coefficients(), domain, packages, counters=counters and read)
    belief = belief_of(model, rows, weights, dram=domain == "dram")
    before = Evidence.none(len(belief.mean) + len(rows.classes))
    fit = fit_block(rows, belief, before)
    errors = []
    for one in rows.classes.tolist():
        error = _held_out(rows, one, model, weights, domain)
        if error is not None:
            errors.append(error)
    held_out = float(np.sqrt(np.mean(np.square(errors)))) if errors else None
    sigma = np.sqrt(1.0 / np.maximum(np.diag(belief.precision), 1e-300))
    return _DomainFit(domain, packages, fit, counters and read, held_out, sigma)


#: The part of `features.FEATURES` that is known without counters.
_TIME_ALONE = np.array([0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0])


def _by_kernel(rows: Rows, kernel: I64, kernels: int) -> Rows:
    """Rows with one class per kernel, which holds all that ran in its phase. Windows outside of
    any phase are unknown."""
    kernel = np.tile(kernel, len(rows.edge_w))
    total = rows.features.sum(axis=1)
    here = np.arange(len(total)), np.where(kernel >= 0, kernel, kernels)
    features = np.zeros((len(total), kernels + 1, total.shape[1]))
    features[here] = total
    ns = rows.features[:, :, 4:6].sum(axis=2)
    crowd = np.zeros(features.shape[:2])
    crowd[here] = (rows.crowd * ns).sum(axis=1) / np.maximum(ns.sum(axis=1), 1e-30)
    return replace(
        rows,
        known=rows.known & (kernel != _OUTSIDE),
        features=features,
        crowd=crowd,
        classes=np.arange(kernels),
    )


def _held_out(
    rows: Rows, kernel: int, model: PowerModel, weights: Weights, domain: str
) -> float | None:
    """Relative error of one kernel's power above idle, as predicted by a fit of the others."""
    mine = rows.known & (rows.features[:, kernel].sum(axis=1) > 0)
    mine &= rows.features[:, kernel].sum(axis=1) > 0.5 * rows.features.sum(axis=(1, 2))
    others = replace(rows, known=rows.known & ~mine)
    if not mine.any() or int(others.known.sum()) < _LEAST_ROWS * model.zones:
        return None
    belief = belief_of(model, others, weights, dram=domain == "dram")
    fit = fit_block(others, belief, Evidence.none(len(belief.mean) + len(rows.classes)))
    plain = fit.value.copy()
    plain[len(belief.mean) :] = 1.0
    power, _ = predict(rows, plain)
    idle = (rows.zone[:, None] == np.arange(model.zones)) @ plain[: model.zones]
    above = float((rows.power_w - idle)[mine].sum())
    return abs(float((power - rows.power_w)[mine].sum())) / above if above > 0 else None


def _result(made: dict[str, _DomainFit], main: str, notes: list[str]) -> CalibrationFit:
    """Fits of all domains as one set of coefficients."""
    idle: dict[tuple[int, str], PowerInterval] = {}
    shared: dict[tuple[int, str], float] = {}
    shared_error: dict[tuple[int, str], float] = {}
    others: dict[str, Weights] = {}
    held_out: dict[str, float] = {}
    identified: dict[str, Identified] = {}
    for name, one in made.items():
        count, value = len(one.packages), one.fit.value
        sigma = np.sqrt(np.maximum(np.diag(one.fit.covariance), 0.0))
        others[name] = _weights(one)
        if one.held_out is not None:
            held_out[name] = one.held_out
        if name != one.domain:
            continue
        for z, package in enumerate(one.packages):
            key = (package, one.domain)
            half = Z95 * sigma[z]
            idle[key] = PowerInterval(value[z], max(value[z] - half, 0.0), value[z] + half)
            shared[key] = float(value[count + z])
            shared_error[key] = float(sigma[count + z])
        identified |= _identified(one, sigma)
    if main not in made:
        return CalibrationFit(Coefficients(), held_out, identified, (*notes, "nothing was fitted"))
    weights = others.pop(main)
    coefficients = Coefficients(
        **dict(zip(THETA, weights.vector, strict=True)),
        idle_w=idle,
        shared_w=shared,
        shared_error_w=shared_error,
        weight_error=weights.error,
        held_out_error=held_out.get(main),
        calibrated=True,
        covariance=weights.covariance,
        others=others,
    )
    return CalibrationFit(coefficients, held_out, identified, tuple(notes))


def _weights(one: _DomainFit) -> Weights:
    """Weights of one domain; the spread of its kernels becomes the error for later workloads."""
    first = 2 * len(one.packages)
    last = first + len(THETA)
    theta = np.maximum(one.fit.value[first:last], 0.0)
    if not theta[:5].any():
        return Weights(t=1.0, a=0.0)
    cov = one.fit.covariance[first:last, first:last]
    spread = max(one.fit.spread, _LEAST_SPREAD)
    if one.held_out is not None:
        spread = max(spread, one.held_out / 2)
    return Weights(
        **dict(zip(THETA, map(float, theta), strict=True)),
        covariance=tuple(tuple(map(float, row)) for row in cov),
        error=min(Z95 * spread, DEFAULT_WEIGHT_ERROR),
        calibrated=True,
    )


def _identified(one: _DomainFit, sigma: F64) -> dict[str, Identified]:
    """What the phases found for each coefficient of a domain."""
    count = len(one.packages)
    names = [f"idle_w.{one.domain}.{package}" for package in one.packages]
    names += [f"shared_w.{one.domain}.{package}" for package in one.packages]
    names += [f"{name}.{one.domain}" for name in THETA]
    out = {}
    for i, name in enumerate(names):
        value, error = float(one.fit.value[i]), float(sigma[i])
        told = error < _TOLD * value or (i >= 2 * count and error < 0.5 * one.prior_sigma[i])
        why = "" if told else "other coefficients explain the same windows as well"
        out[name] = Identified(value, max(value - Z95 * error, 0.0), value + Z95 * error, told, why)
    return out
