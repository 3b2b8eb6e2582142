# SPDX-License-Identifier: Apache-2.0
"""Other attribution methods, each implemented from its published formula.

They see the same recording as qjoule, and the power at rest that their own calibration would have
measured. Some methods sample less often than the recording does. They are given the finer windows
as well, in their favour: their shares then follow what ran at each moment.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import nnls
from studies.bench.accuracy.observed import Observed
from studies.bench.accuracy.recording import F64


def divide(energy_nj: F64, weight: F64) -> F64:
    """`energy_nj` (p, k) to groups in proportion to `weight` (k, p, g) of each window: (g,) in nJ.

    A window and package without any weight charges nobody.
    """
    total = weight.sum(axis=2)
    rate = np.divide(energy_nj.T, total, out=np.zeros_like(total), where=total > 0)
    charged: F64 = np.einsum("kp,kpg->g", rate, weight)
    return charged


# ---- CPU time ------------------------------------------------------------------------------------
#
# Energy in proportion to CPU time, as most tools in the field divide it.

#: Weight of CPU time beside a busy sibling: half of what HaPPy measured for both, 1.1 of one
#: (Zhai et al., USENIX ATC 2014).
SIBLING_WEIGHT = 0.55


def kepler(observed: Observed) -> F64:
    """Kepler 0.10 and later: active = energy * usage ratio of all CPUs; active energy by CPU time.

    The rest is Kepler's idle energy and appears in no target's figure
    (sustainable-computing-io/kepler, internal/monitor/node.go and process.go). The method neither
    needs nor knows a power at rest.
    """
    busy_ns = observed.cpu_ns.sum(axis=2).T
    usage = np.minimum(busy_ns / np.maximum(observed.dt_ns * observed.cpus[:, None], 1.0), 1.0)
    return divide(observed.energy_nj * usage, observed.cpu_ns)


def scaphandre(observed: Observed) -> F64:
    """All energy, including idle, by share of the CPU time in use (Scaphandre's book, "How
    scaphandre computes per process power consumption").
    """
    return divide(observed.energy_nj, observed.cpu_ns)


def time_above_idle(observed: Observed) -> F64:
    """Energy above the measured power at rest, by CPU time: Kepler and Scaphandre at their best."""
    return divide(observed.above_idle_nj(), observed.cpu_ns)


def time_above_least(observed: Observed) -> F64:
    """Energy above the least power of any window (2 % quantile), by CPU time.

    What a user without a calibration can subtract.
    """
    least_w = np.zeros(len(observed.energy_nj))
    for package, energy_nj in enumerate(observed.energy_nj):
        usable = observed.known[package] & (observed.dt_ns > 0)
        if usable.any():
            least_w[package] = np.quantile(energy_nj[usable] / observed.dt_ns[usable], 0.02)
    return divide(replace(observed, idle_w=least_w).above_idle_nj(), observed.cpu_ns)


def smt_time(observed: Observed) -> F64:
    """`time_above_idle` with HaPPy's weight for time beside a busy sibling.

    No tool publishes this for CPU time. It is what a careful user of the tools could compute.
    """
    weight = observed.cpu_ns - (1 - SIBLING_WEIGHT) * observed.overlap_ns
    return divide(observed.above_idle_nj(), weight)


# ---- cycles --------------------------------------------------------------------------------------
#
# Energy in proportion to unhalted cycles, and to cycles weighted for SMT.
#
# HaPPy: Zhai et al., "HaPPy: Hyperthread-aware Power Profiling Dynamically", USENIX ATC 2014: two
# busy threads of a core draw about 1.1 times one, so a cycle beside a busy sibling weighs 1.1 / 2;
# active power (above idle) is divided by weighted cycles. DEEP-mon: Brondolin et al., "DEEP-mon:
# Dynamic and Energy Efficient Power monitoring for container-based infrastructures", IPDPSW 2018,
# divides the whole RAPL figure by the same weighted cycles.

#: Power of a core with two busy threads over that with one.
SMT_RATIO = 1.1


def cycles_all(observed: Observed) -> F64 | None:
    """All energy by cycles."""
    return None if observed.counts is None else divide(observed.energy_nj, observed.counts[..., 0])


def cycles_above_idle(observed: Observed) -> F64 | None:
    """Energy above the measured power at rest, by cycles."""
    return (
        None
        if observed.counts is None
        else divide(observed.above_idle_nj(), observed.counts[..., 0])
    )


def deep_mon(observed: Observed) -> F64 | None:
    """All energy by SMT-weighted cycles."""
    weight = _smt_cycles(observed)
    return None if weight is None else divide(observed.energy_nj, weight)


def happy(observed: Observed) -> F64 | None:
    """Energy above the measured power at rest, by SMT-weighted cycles."""
    weight = _smt_cycles(observed)
    return None if weight is None else divide(observed.above_idle_nj(), weight)


def _smt_cycles(observed: Observed) -> F64 | None:
    if observed.counts is None or observed.overlap_counts is None:
        return None
    return observed.counts[..., 0] - (1 - SMT_RATIO / 2) * observed.overlap_counts[..., 0]


# ---- EnergAt -------------------------------------------------------------------------------------
#
# EnergAt: Hè, Friedman, Rekatsinas, "EnergAt: Fine-Grained Energy Attribution for Multi-Tenancy",
# HotCarbon 2023 (arXiv:2307.05647), and its implementation HongyuHe/energat.
#
# Per socket and interval: static energy, measured on the idle machine, is subtracted; a target is
# credited with (its share of the socket's CPU time in use) ** gamma of the rest, gamma = 0.3. An
# interval is at least 50 ms. DRAM is credited by resident memory, which a CPU trace does not
# contain.

ENERGAT_GAMMA = 0.3
ENERGAT_INTERVAL_NS = 50_000_000


def energat(observed: Observed) -> F64:
    """Credits of all groups. They need not add up to the energy."""
    energy_nj, credit = _energat_intervals(observed)
    charged: F64 = np.einsum("pk,kpg->g", energy_nj, credit)
    return charged


def energat_normalised(observed: Observed) -> F64:
    """The same credits, scaled to add up to the energy, in the method's favour."""
    energy_nj, credit = _energat_intervals(observed)
    return divide(energy_nj, credit)


def _energat_intervals(observed: Observed) -> tuple[F64, F64]:
    """Energy above idle (p, n) and credits (n, p, g) of every interval."""
    number = (np.cumsum(observed.dt_ns) - observed.dt_ns).astype(np.int64) // ENERGAT_INTERVAL_NS
    starts = np.flatnonzero(np.diff(number, prepend=-1))
    energy_nj = np.add.reduceat(observed.above_idle_nj(), starts, axis=1)
    cpu_ns = np.add.reduceat(observed.cpu_ns, starts, axis=0)
    total_ns = cpu_ns.sum(axis=2, keepdims=True)
    return energy_nj, (cpu_ns / np.maximum(total_ns, 1.0)) ** ENERGAT_GAMMA


# ---- SmartWatts ----------------------------------------------------------------------------------
#
# SmartWatts: Fieni, Rouvoy, Seinturier, "SmartWatts: Self-Calibrating Software-Defined Power Meter
# for Containers", CCGRID 2020 (arXiv:2001.02505), and powerapi-ng/smartwatts-formula.
#
# Reports come twice a second. Power above static power is regressed on the events of all targets,
# one model for every 100 MHz of the package's mean frequency, with coefficients >= 0 (the formula's
# ElasticNet(positive=True); events are in the billions, so its penalty does nothing). A target's
# share of dynamic power is the prediction for its events divided by the prediction for all events.
#
# The published meter learns as it goes and reports nothing for a layer's first ten reports. Here
# every layer is fitted to the whole run beforehand, in its favour. A layer with fewer than ten
# reports takes the model of all layers together.

REPORT_NS = 500_000_000
LAYER_GHZ = 0.1
MIN_REPORTS = 10


def smartwatts(observed: Observed) -> F64 | None:
    """Energy above idle by predicted power."""
    if observed.counts is None:
        return None
    number = (np.cumsum(observed.dt_ns) - observed.dt_ns).astype(np.int64) // REPORT_NS
    starts = np.flatnonzero(np.diff(number, prepend=-1))
    energy_nj = np.add.reduceat(observed.above_idle_nj(), starts, axis=1)
    dt_ns = np.add.reduceat(observed.known * observed.dt_ns, starts, axis=1)
    counts = np.add.reduceat(observed.counts, starts, axis=0)
    cpu_ns = np.add.reduceat(observed.cpu_ns, starts, axis=0).sum(axis=2)
    weight = np.zeros(counts.shape[:3])
    for package in range(energy_nj.shape[0]):
        events = counts[:, package].sum(axis=1)
        ghz = events[:, 0] / np.maximum(cpu_ns[:, package], 1.0)
        model = _layers(energy_nj[package], dt_ns[package], events, ghz)
        weight[:, package] = np.einsum("kgc,kc->kg", counts[:, package], model)
    return divide(energy_nj, weight)


def _layers(energy_nj: F64, dt_ns: F64, events: F64, ghz: F64) -> F64:
    """Coefficients (n, 3) in nJ per event that apply to each report."""
    usable = dt_ns > 0
    layer = np.floor(ghz / LAYER_GHZ)
    model = np.tile(_fit(energy_nj[usable], dt_ns[usable], events[usable]), (len(layer), 1))
    for number in np.unique(layer):
        rows = usable & (layer == number)
        if rows.sum() >= MIN_REPORTS:
            fitted = _fit(energy_nj[rows], dt_ns[rows], events[rows])
            if fitted.any():
                model[layer == number] = fitted
    return model


def _fit(energy_nj: F64, dt_ns: F64, events: F64) -> F64:
    """Non-negative least squares of power on event rates, with an intercept that is dropped."""
    if not len(energy_nj):
        return np.zeros(events.shape[1])
    scale = np.maximum(events.max(axis=0), 1.0) / dt_ns.mean()
    rates = np.column_stack([events / dt_ns[:, None] / scale, np.ones(len(dt_ns))])
    coefficients: F64 = nnls(rates, energy_nj / dt_ns)[0][:-1] / scale
    return coefficients


# ---- all of them ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Peer:
    """`estimate` gives nanojoules (g,) per group, or None where the recording lacks its inputs.

    `told_rest`: it is given the power at rest that a calibration run measured.
    """

    name: str
    by_counters: bool
    about: str
    estimate: Callable[[Observed], F64 | None]
    told_rest: bool = True


#: "+idle": as published, power at rest is charged too; the other figure has it subtracted.
PEERS = (
    Peer("kepler", False, "active part of the energy by CPU time", kepler, False),
    Peer("scaphandre+idle", False, "all energy by CPU time", scaphandre, False),
    Peer("cpu_time-least", False, "above the least power seen", time_above_least, False),
    Peer("cpu_time", False, "energy above idle by CPU time", time_above_idle),
    Peer("smt_time", False, "the same, time beside a sibling weighs 0.55", smt_time),
    Peer("energat", False, "energy above idle by CPU time to the 0.3", energat),
    Peer("energat=1", False, "the same, shares made to add up to 1", energat_normalised),
    Peer("cycles+idle", True, "all energy by cycles", cycles_all, False),
    Peer("cycles", True, "energy above idle by cycles", cycles_above_idle),
    Peer("smt_cycles+idle", True, "DEEP-mon: all energy by SMT-weighted cycles", deep_mon),
    Peer("smt_cycles", True, "HaPPy: energy above idle by SMT-weighted cycles", happy),
    Peer("smartwatts", True, "energy above idle by a regression per frequency", smartwatts),
)
