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
from qjoule.model.fit.block import BlockFit, fit_block
from qjoule.model.fit.earlier_blocks import rest_changes_w
from qjoule.model.fit.evidence import Evidence
from qjoule.model.fit.kernel_rows import KernelRows, Phase, kernel_rows
from qjoule.model.fit.observed import predict
from qjoule.model.fit.rows import Source, itself, make_rows
from qjoule.model.interval import Z95
from qjoule.model.ledger import main_domain
from qjoule.model.power_model import PowerModel
from qjoule.model.zones import zones

__all__ = ("CalibrationFit", "Identified", "MachineInUse", "Phase", "fit_calibration")

_MOST_ROWS = 600  #: per zone: a kernel runs unchanged for a second, so longer windows lose nothing
_MOST_SHORT_ROWS = 1800  #: where phases last half a second
_LEAST_ROWS = 30
#: A coefficient counts as identified if its standard error is below this share of it.
_IDENTIFIED_ERROR = 0.35
#: Kernels differ in ways that counters do not measure; workloads are assumed to differ at least by
#: this.
_LEAST_SPREAD = 0.05
#: A run refined a coefficient if its standard error fell below this share of the earlier one.
_REFINED = 0.8
#: A coefficient is identified only if its standard error fell below this share of the prior's.
_NARROWED = 0.9


@dataclass(frozen=True)
class Identified:
    """A coefficient with its 95 % interval; `reason`: why it was not identified."""

    value: float
    low: float
    high: float
    ok: bool
    reason: str = ""


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
class MachineInUse:
    """Inputs of a calibration run on a machine in use, besides its phases.

    `load_groups` (groups,): which groups were the load of the run; None: all of them. `prior`:
    earlier coefficients of the machine, which the run refines. `idle_table`: the machine's idle
    states, if known.
    """

    load_groups: Bool | None = None
    prior: Coefficients = field(default_factory=Coefficients)
    idle_table: IdleTable | None = None


def fit_calibration(
    batches: Sequence[WindowBatch],
    series: Sequence[Series],
    phases: Sequence[Phase],
    context: MachineInUse | None = None,
) -> CalibrationFit:
    """Fits all coefficients that the phases can identify, with the basis of each.

    Windows that are not fully within a phase are left out. Each kernel has its own power factor;
    the part common to all kernels gives the machine's coefficients. Domains without enough windows
    are left out, with a note. `context`: for a run on a machine in use; None: nothing else ran, and
    there is no earlier calibration.
    """
    windows, context = joined(batches), context or MachineInUse()
    main = main_domain([counter.domain for counter in series])
    fits: dict[str, _DomainFit] = {}
    notes: list[str] = []
    for domain in dict.fromkeys(counter.domain for counter in series):
        for counters in (True, False):
            run = _Run(windows, tuple(series), phases, context, domain, counters)
            fit = _fit_domain(run)
            name = domain if counters else f"{domain}/time"
            if fit is None:
                notes.append(f"{domain}: too few windows of the phases were measured")
                break
            fits[name] = fit
            if counters and not fit.counters:
                fits[f"{domain}/time"] = fit
                break
    if context.prior.calibrated:
        notes += [
            note for name, fit in fits.items() if name == fit.domain for note in _refined(fit)
        ]
    return _result(fits, main, notes)


@dataclass(frozen=True)
class _Run:
    """Inputs of one domain's fit; `counters`: whether counters are used, or time alone."""

    windows: WindowBatch
    series: tuple[Series, ...]
    phases: Sequence[Phase]
    context: MachineInUse
    domain: str
    counters: bool


@dataclass(frozen=True)
class _DomainFit:
    """One domain's fit; `held_out` is None where no kernel could be left out.

    `rest_changes_w` (zones,): by how much power at rest may differ from that in the run.
    """

    domain: str
    packages: tuple[int, ...]
    fit: BlockFit
    counters: bool
    held_out: float | None
    prior_sigma: F64
    rest_changes_w: F64
    refines: bool = False  #: whether the prior came from a calibration


def _fit_domain(run: _Run) -> _DomainFit | None:
    domain_zones = zones(run.series, run.windows.packages, run.domain)
    packages = tuple(zone.package for zone in domain_zones)
    uncalibrated, dram = Coefficients().of(run.domain, counters=run.counters), run.domain == "dram"
    # These weights use time only, so that fitting does not depend on counters.
    rows, read = make_rows(
        [run.windows], Source(run.series, domain_zones, uncalibrated, itself, 1_000_000)
    )
    bounds_ns, load_groups = run.windows.energy.boundaries_ns, run.context.load_groups
    max_rows = _MOST_ROWS if load_groups is None else _MOST_SHORT_ROWS
    by_kernel = kernel_rows(rows, bounds_ns, run.phases, max_rows, load_groups)
    rows, counters = by_kernel.rows, run.counters and read
    if int(rows.known.sum()) < _LEAST_ROWS * len(domain_zones) or not rows.features.any():
        return None
    if not counters:
        rows = replace(rows, features=rows.features * _TIME_ALONE)
        by_kernel = replace(by_kernel, rows=rows)
    model = PowerModel.of(run.context.prior, run.domain, packages, counters=counters)
    weights = run.context.prior.of(run.domain, counters=counters)
    table = run.context.idle_table
    belief = belief_of(model, rows, weights, dram=dram, table=table, long_tails=True)
    fit = fit_block(rows, belief, Evidence.none(len(belief.mean) + len(rows.classes)))
    held_out_errors = (
        _held_out(by_kernel, kernel, model, run) for kernel in range(by_kernel.kernels)
    )
    errors = [error for error in held_out_errors if error is not None]
    held_out = float(np.sqrt(np.mean(np.square(errors)))) if errors else None
    sigma = np.sqrt(1.0 / np.maximum(np.diag(belief.precision), 1e-300))
    changes_w, refines = rest_changes_w(rows, fit), weights.calibrated
    return _DomainFit(run.domain, packages, fit, counters, held_out, sigma, changes_w, refines)


#: The features that are known without counters.
_TIME_ALONE = np.array(
    [not name.startswith(("cycles", "instructions", "llc_misses")) for name in FEATURES], np.float64
)


def _held_out(by_kernel: KernelRows, kernel: int, model: PowerModel, run: _Run) -> float | None:
    """Relative error of one kernel's power above idle, as predicted by a fit of the others.

    On a machine in use, the error is relative to the kernel's own power. None: it cannot be tested.
    """
    rows, tested = by_kernel.rows, by_kernel.tested(kernel)
    others = replace(rows, known=rows.known & ~tested)
    if not tested.any() or int(others.known.sum()) < _LEAST_ROWS * model.zones:
        return None
    weights = run.context.prior.of(run.domain, counters=run.counters)
    belief = belief_of(
        model,
        others,
        weights,
        dram=run.domain == "dram",
        table=run.context.idle_table,
        long_tails=True,
    )
    fit = fit_block(others, belief, Evidence.none(len(belief.mean) + len(rows.classes)))
    value = fit.value.copy()
    value[len(belief.mean) + kernel] = 1.0
    power, _ = predict(rows, value)
    background_w = (rows.zone[:, None] == np.arange(model.zones)) @ value[: model.zones]
    if by_kernel.kernels < len(rows.classes):
        foreign = rows.features.copy()
        foreign[:, kernel] = 0.0
        background_w, _ = predict(replace(rows, features=foreign), value)
    load_w = float((rows.power_w - background_w)[tested].sum())
    return abs(float((power - rows.power_w)[tested].sum())) / load_w if load_w > 0 else None


def _refined(domain_fit: _DomainFit) -> Iterator[str]:
    """Notes on what a run added to an earlier calibration of a domain."""
    names = [name.replace(f".{domain_fit.domain}", "") for name in _names(domain_fit)]
    sigma = np.sqrt(np.maximum(np.diag(domain_fit.fit.covariance)[: len(names)], 0.0))
    narrower = sigma < _REFINED * domain_fit.prior_sigma
    if refined := [name for name, is_narrower in zip(names, narrower, strict=True) if is_narrower]:
        yield f"this run refined what was known of {domain_fit.domain}: {', '.join(refined)}"
    if unchanged := [
        name for name, is_narrower in zip(names, narrower, strict=True) if not is_narrower
    ]:
        yield f"as known before, of {domain_fit.domain}: {', '.join(unchanged)}"


def _result(fits: dict[str, _DomainFit], main: str, notes: list[str]) -> CalibrationFit:
    """Combines the fits of all domains into one set of coefficients."""
    idle: dict[tuple[int, str], PowerInterval] = {}
    shared: dict[tuple[int, str], float] = {}
    shared_error: dict[tuple[int, str], float] = {}
    others: dict[str, Weights] = {}
    held_out: dict[str, float] = {}
    identified: dict[str, Identified] = {}
    for name, domain_fit in fits.items():
        count, value = len(domain_fit.packages), domain_fit.fit.value
        sigma = np.sqrt(np.maximum(np.diag(domain_fit.fit.covariance), 0.0))
        sigma[:count] = np.hypot(sigma[:count], domain_fit.rest_changes_w)
        others[name] = _weights(domain_fit)
        if domain_fit.held_out is not None:
            held_out[name] = domain_fit.held_out
        if name != domain_fit.domain:
            continue
        for z, package in enumerate(domain_fit.packages):
            key = (package, domain_fit.domain)
            half_width = Z95 * sigma[z]
            idle[key] = PowerInterval(
                value[z], max(value[z] - half_width, 0.0), value[z] + half_width
            )
            shared[key] = float(value[count + z])
            shared_error[key] = float(sigma[count + z])
        identified |= _identified(domain_fit, sigma)
    if main not in fits:
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


def _weights(domain_fit: _DomainFit) -> Weights:
    """Weights of one domain; the spread of its kernels becomes the error for later workloads."""
    first = 2 * len(domain_fit.packages)
    last = first + len(THETA)
    theta = np.maximum(domain_fit.fit.value[first:last], 0.0)
    if not theta[:5].any():
        return Weights(t=1.0, a=0.0)
    cov = domain_fit.fit.covariance[first:last, first:last]
    spread = max(domain_fit.fit.spread, _LEAST_SPREAD)
    if domain_fit.held_out is not None:
        spread = max(spread, domain_fit.held_out / 2)
    return Weights(
        **dict(zip(THETA, map(float, theta), strict=True)),
        covariance=tuple(tuple(map(float, row)) for row in cov),
        error=min(Z95 * spread, DEFAULT_WEIGHT_ERROR),
        calibrated=True,
    )


def _identified(domain_fit: _DomainFit, sigma: F64) -> dict[str, Identified]:
    """Each coefficient of a domain with its interval, and whether the phases identified it."""
    count = len(domain_fit.packages)
    coefficients = {}
    for i, name in enumerate(_names(domain_fit)):
        value, error = float(domain_fit.fit.value[i]), float(sigma[i])
        identified = error < _IDENTIFIED_ERROR * value
        if i >= 2 * count and not domain_fit.refines:
            # A narrow prior alone does not mean that the phases identified the coefficient.
            identified = identified and error < _NARROWED * domain_fit.prior_sigma[i]
        identified = identified or (i >= 2 * count and error < 0.5 * domain_fit.prior_sigma[i])
        reason = "" if identified else "other coefficients explain the same windows as well"
        coefficients[name] = Identified(
            value, max(value - Z95 * error, 0.0), value + Z95 * error, identified, reason
        )
    return coefficients


def _names(domain_fit: _DomainFit) -> list[str]:
    """The names of a domain's fixed parameters, in the order of its fit."""
    names = [f"idle_w.{domain_fit.domain}.{package}" for package in domain_fit.packages]
    names += [f"shared_w.{domain_fit.domain}.{package}" for package in domain_fit.packages]
    return names + [f"{name}.{domain_fit.domain}" for name in THETA]
