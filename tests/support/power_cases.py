# SPDX-License-Identifier: Apache-2.0
"""Windows of a machine whose power is given by a formula, to test what is learned from them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

import model_cases
from qjoule.model.arrays import EFFECTS, F64, SMALL, Entries, WindowBatch, real_sums
from qjoule.model.coefficients import Coefficients, PowerInterval
from qjoule.model.energy import I64, Cause, Series, WindowEnergy
from qjoule.model.ledger import Ledger

WINDOW_NS = 20_000_000
IDLE_W, SHARED_W = 20.0, 8.0
#: nJ per cycle, instruction, LLC miss
CYCLE_NJ, INSTRUCTION_NJ, MISS_NJ = 1.5, 0.4, 30.0
FACTORS = (1.25, 0.8, 1.0, 1.1)  #: of four statements


@dataclass(frozen=True)
class Known:
    """A batch, and the energy (groups,) that each group drew, without idle power."""

    batch: WindowBatch
    series: tuple[Series, ...]
    energy_nj: F64


def known(
    seed: int,
    factors: tuple[float, ...],
    *,
    windows: int = 1500,
    counters: bool = True,
    together: bool = False,
    idle_w: float = IDLE_W,
    load: float = 1.0,
    awake: bool = False,
) -> Known:
    """`windows` windows of one package of 4 cores; group g draws `factors[g]` times its weight.

    Groups run at random, each in about half of the windows. With `together` the first two always
    run at once, in the same proportion. `load`: they run for this part of that time. `awake`: the
    package never sleeps, so that windows cannot tell idle from shared power. Readings have the
    errors of an update period of 1 ms.
    """
    random = np.random.default_rng(seed)
    groups = len(factors)
    share = random.uniform(0.05, 0.9, (windows, groups)) * (random.random((windows, groups)) < 0.5)
    share *= load
    if together:
        share[:, 1] = 0.5 * share[:, 0]
    window, group = np.nonzero(share)
    cpu_ns = np.rint(share[window, group] * WINDOW_NS).astype(np.int64)
    rates = np.stack([np.full(groups, 2.5), np.linspace(1.0, 4.0, groups)], axis=1)
    rates = np.column_stack([rates, np.linspace(0.03, 0.002, groups)])
    counts = np.rint(rates[group] * cpu_ns[:, None])
    weight = counts @ np.array([CYCLE_NJ, INSTRUCTION_NJ, MISS_NJ])
    active_ns = np.rint(share.max(axis=1) * WINDOW_NS).astype(np.int64)
    if awake:
        active_ns[:] = WINDOW_NS
    busy_ns = np.bincount(window, cpu_ns, minlength=windows)
    shared_ns = cpu_ns * (active_ns / np.where(busy_ns > 0, busy_ns, 1.0))[window]
    weighted = weight * np.array(factors)[group] + SHARED_W * shared_ns
    power = idle_w * WINDOW_NS + np.bincount(window, weighted, minlength=windows)
    edges = random.uniform(0, 1_000_000, windows + 1)[1:-1] * power.mean() / WINDOW_NS
    late = np.concatenate([[0.0], edges, [0.0]])
    energy = np.rint(power + late[:-1] - late[1:]).astype(np.int64)[None, :]
    zeros = np.zeros(len(window))
    entries = Entries(
        window=window,
        package=np.zeros(len(window), np.int64),
        group=group,
        cpu_ns=cpu_ns,
        overlap_ns=np.zeros(len(window), np.int64),
        shared_ns=shared_ns,
        counters=counts if counters else np.zeros_like(counts),
        counted_ns=np.repeat(cpu_ns[:, None] * counters, 3, axis=1).astype(np.float64),
        overlap_counters=np.zeros_like(counts),
        scaled_ns=zeros,
        stolen_ns=zeros,
        small=np.zeros((len(window), SMALL)),
        effects=np.zeros((len(window), len(EFFECTS))),
    )
    series = (Series(0, "package", 2.0**-14, 2**32),)
    batch = _batch(series, energy, entries, active_ns, busy_ns.astype(np.int64))
    return Known(batch, series, real_sums(group, weighted, groups))


def _batch(
    series: tuple[Series, ...], energy: I64, entries: Entries, active_ns: I64, busy_ns: I64
) -> WindowBatch:
    windows = energy.shape[1]
    nothing = np.zeros((windows, 1), np.int64)
    return WindowBatch(
        0,
        WindowEnergy(
            series,
            np.arange(windows + 1) * WINDOW_NS,
            energy,
            np.full(energy.shape, Cause.NONE, np.uint8),
            np.zeros(energy.shape, np.int64),
        ),
        (0,),
        4 * WINDOW_NS - busy_ns[:, None],
        nothing,
        entries,
        active_ns[:, None],
        busy_ns[:, None],
    )


def with_energy(case: Known, energy_nj: I64) -> WindowBatch:
    """The batch with other energies, (series, windows)."""
    return replace(case.batch, energy=replace(case.batch.energy, energy_nj=energy_nj))


def learned(case: Known, coefficients: Coefficients | None = None, *, refit: bool = True) -> Ledger:
    """The ledger of a case after learning from it, or split by the coefficients alone."""
    account = model_cases.account(case.series, (0,), coefficients or Coefficients(), refit=refit)
    account.add(case.batch)
    return account.finish()


def calibrated(**changed: object) -> Coefficients:
    """The calibration that fits this machine."""
    plain: dict[str, object] = {"a": 1.5, "b": 0.4, "c": 30.0, "calibrated": True}
    covariance = np.diag([0.05, 0.02, 2.0, 0.01, 0.01, 0.05, 0.01]) ** 2
    plain["covariance"] = tuple(tuple(map(float, row)) for row in covariance)
    plain["idle_w"] = {(0, "package"): PowerInterval(IDLE_W, IDLE_W - 0.4, IDLE_W + 0.4)}
    plain["shared_w"] = {(0, "package"): SHARED_W}
    plain["shared_error_w"] = {(0, "package"): 0.5}
    return Coefficients(**{**plain, **changed})  # type: ignore[arg-type]
