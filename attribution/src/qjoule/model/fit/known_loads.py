# SPDX-License-Identifier: Apache-2.0
"""Computes the coefficients of the machine from the windows of a calibration run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from qjoule.model.arrays import F64, WindowBatch
from qjoule.model.batches import joined
from qjoule.model.coefficients import (
    DEFAULT_WEIGHT_ERROR,
    THETA,
    Coefficients,
    IdleTable,
    PowerInterval,
    Weights,
)
from qjoule.model.energy import Bool, Series
from qjoule.model.features import FEATURES
from qjoule.model.fit.beliefs import belief_of
from qjoule.model.fit.block import BlockFit, Evidence, fit_block
from qjoule.model.fit.earlier_blocks import rest_changes_w
from qjoule.model.fit.kernel_rows import KernelRows, Phase, kernel_rows
from qjoule.model.fit.observed import predict
from qjoule.model.fit.rows import Source, itself, make_rows
from qjoule.model.interval import Z95
from qjoule.model.ledger import main_domain
from qjoule.model.power_model import PowerModel
from qjoule.model.zones import zones

__all__ = ("CalibrationFit", "Identified", "Phase", "Surroundings", "fit_calibration")

_MOST_ROWS = 600  #: per zone: a kernel runs unchanged for a second, so longer windows lose nothing
_MOST_SHORT_ROWS = 1800  #: where phases last half a second
_LEAST_ROWS = 30
#: A coefficient counts as identified if its standard error is below this share of it.
_TOLD = 0.35
#: Kernels differ in ways that counters do not see; workloads are assumed to differ at least this
#: much.
_LEAST_SPREAD = 0.05
#: A run refined a coefficient if its standard error fell below this share of what it was.
_REFINED = 0.8
#: A coefficient is identified only if its standard error fell below this share of the belief's.
_MOVED = 0.9


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


@dataclass(frozen=True)
class Surroundings:
    """What a calibration run on a machine in use has besides its phases.

    `own` (groups,): which groups were the load of the run; None: all that ran was. `known`: what
    was known of the machine before, which the run refines. `idle_table`: the machine's idle states,
    if known.
    """

    own: Bool | None = None
    known: Coefficients = field(default_factory=Coefficients)
    idle_table: IdleTable | None = None


def fit_calibration(
    batches: Sequence[WindowBatch],
    series: Sequence[Series],
    phases: Sequence[Phase],
    around: Surroundings | None = None,
) -> CalibrationFit:
    """Fits all coefficients that the phases can identify, with the basis of each.

    Windows that are not fully within a phase are left out. Each kernel has its own power factor;
    the part common to all kernels gives the machine's coefficients. Domains without enough windows
    are left out, with a note. `around`: for a run on a machine in use; None: nothing else ran, and
    nothing was known.
    """
    whole, around = joined(batches), around or Surroundings()
    main = main_domain([one.domain for one in series])
    made: dict[str, _DomainFit] = {}
    notes: list[str] = []
    for domain in dict.fromkeys(one.domain for one in series):
        for counters in (True, False):
            run = _Run(whole, tuple(series), phases, around, domain, counters)
            fit = _fit_domain(run)
            name = domain if counters else f"{domain}/time"
            if fit is None:
                notes.append(f"{domain}: too few windows of the phases were measured")
                break
            made[name] = fit
            if counters and not fit.counters:
                made[f"{domain}/time"] = fit
                break
    if around.known.calibrated:
        notes += [
            note for name, fit in made.items() if name == fit.domain for note in _refined(fit)
        ]
    return _result(made, main, notes)


@dataclass(frozen=True)
class _Run:
    """What a domain is fitted from, and whether by counters or by time alone."""

    whole: WindowBatch
    series: tuple[Series, ...]
    phases: Sequence[Phase]
    around: Surroundings
    domain: str
    counters: bool


@dataclass(frozen=True)
class _DomainFit:
    """One domain's fit; `held_out` is None where no kernel could be left out.

    `rest_changes_w` (zones,): by how much power at rest may be another than in the run.
    """

    domain: str
    packages: tuple[int, ...]
    fit: BlockFit
    counters: bool
    held_out: float | None
    prior_sigma: F64
    rest_changes_w: F64
    refines: bool = False  #: what was known before came from a calibration


def _fit_domain(run: _Run) -> _DomainFit | None:
    places = zones(run.series, run.whole.packages, run.domain)
    packages = tuple(zone.package for zone in places)
    plain, dram = Coefficients().of(run.domain, counters=run.counters), run.domain == "dram"
    # Time has the same weight for everyone, so no counters are used.
    rows, read = make_rows([run.whole], Source(run.series, places, plain, itself, 1_000_000))
    bounds_ns, own = run.whole.energy.boundaries_ns, run.around.own
    most = _MOST_ROWS if own is None else _MOST_SHORT_ROWS
    mine = kernel_rows(rows, bounds_ns, run.phases, most, own)
    rows, counters = mine.rows, run.counters and read
    if int(rows.known.sum()) < _LEAST_ROWS * len(places) or not rows.features.any():
        return None
    if not counters:
        rows = replace(rows, features=rows.features * _TIME_ALONE)
        mine = replace(mine, rows=rows)
    model = PowerModel.of(run.around.known, run.domain, packages, counters=counters)
    weights = run.around.known.of(run.domain, counters=counters)
    table = run.around.idle_table
    belief = belief_of(model, rows, weights, dram=dram, table=table, long_tails=True)
    fit = fit_block(rows, belief, Evidence.none(len(belief.mean) + len(rows.classes)))
    found = (_held_out(mine, one, model, run) for one in range(mine.kernels))
    errors = [error for error in found if error is not None]
    held_out = float(np.sqrt(np.mean(np.square(errors)))) if errors else None
    sigma = np.sqrt(1.0 / np.maximum(np.diag(belief.precision), 1e-300))
    changes_w, refines = rest_changes_w(rows, fit), weights.calibrated
    return _DomainFit(run.domain, packages, fit, counters, held_out, sigma, changes_w, refines)


#: The features that are known without counters.
_TIME_ALONE = np.array(
    [not name.startswith(("cycles", "instructions", "llc_misses")) for name in FEATURES], np.float64
)


def _held_out(made: KernelRows, kernel: int, model: PowerModel, run: _Run) -> float | None:
    """Relative error of one kernel's power above idle, as predicted by a fit of the others.

    On a machine in use, relative to the kernel's own power.
    """
    rows, mine = made.rows, made.tested(kernel)
    others = replace(rows, known=rows.known & ~mine)
    if not mine.any() or int(others.known.sum()) < _LEAST_ROWS * model.zones:
        return None
    weights = run.around.known.of(run.domain, counters=run.counters)
    belief = belief_of(
        model,
        others,
        weights,
        dram=run.domain == "dram",
        table=run.around.idle_table,
        long_tails=True,
    )
    fit = fit_block(others, belief, Evidence.none(len(belief.mean) + len(rows.classes)))
    plain = fit.value.copy()
    plain[len(belief.mean) + kernel] = 1.0
    power, _ = predict(rows, plain)
    rest = (rows.zone[:, None] == np.arange(model.zones)) @ plain[: model.zones]
    if made.kernels < len(rows.classes):
        foreign = rows.features.copy()
        foreign[:, kernel] = 0.0
        rest, _ = predict(replace(rows, features=foreign), plain)
    above = float((rows.power_w - rest)[mine].sum())
    return abs(float((power - rows.power_w)[mine].sum())) / above if above > 0 else None


def _refined(one: _DomainFit) -> Iterator[str]:
    """What a run added to an earlier calibration of a domain."""
    names = [name.replace(f".{one.domain}", "") for name in _names(one)]
    sigma = np.sqrt(np.maximum(np.diag(one.fit.covariance)[: len(names)], 0.0))
    narrower = sigma < _REFINED * one.prior_sigma
    if some := [name for name, yes in zip(names, narrower, strict=True) if yes]:
        yield f"this run refined what was known of {one.domain}: {', '.join(some)}"
    if rest := [name for name, yes in zip(names, narrower, strict=True) if not yes]:
        yield f"as known before, of {one.domain}: {', '.join(rest)}"


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
        sigma[:count] = np.hypot(sigma[:count], one.rest_changes_w)
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
    out = {}
    for i, name in enumerate(_names(one)):
        value, error = float(one.fit.value[i]), float(sigma[i])
        told = error < _TOLD * value
        if i >= 2 * count and not one.refines:
            # A belief that is narrow already is nothing that the phases told.
            told = told and error < _MOVED * one.prior_sigma[i]
        told = told or (i >= 2 * count and error < 0.5 * one.prior_sigma[i])
        why = "" if told else "other coefficients explain the same windows as well"
        out[name] = Identified(value, max(value - Z95 * error, 0.0), value + Z95 * error, told, why)
    return out


def _names(one: _DomainFit) -> list[str]:
    """The names of a domain's fixed parameters, in the order of its fit."""
    names = [f"idle_w.{one.domain}.{package}" for package in one.packages]
    names += [f"shared_w.{one.domain}.{package}" for package in one.packages]
    return names + [f"{name}.{one.domain}" for name in THETA]
