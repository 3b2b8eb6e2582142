# SPDX-License-Identifier: Apache-2.0
"""A simulated package whose cores have energy counters of their own, read once a second."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from qjoule.engine.accounts import divided
from qjoule.model.account import Account, AccountSettings
from qjoule.model.arrays import F64, Machine, Segments
from qjoule.model.batches import joined
from qjoule.model.coefficients import THETA, Coefficients
from qjoule.model.energy import ONE_CORE, UPDATE_PERIOD_NS, Cause, Series, WindowEnergy
from qjoule.model.fit.core_evidence import CoreEvidence
from qjoule.model.fit.rows import Source, itself, make_rows
from qjoule.model.ledger import Ledger
from qjoule.model.per_core import CoreCounters, of_cores
from qjoule.model.windows import SegmentWindows
from qjoule.model.zones import zones

WINDOW_NS, PER_SECOND = 20_000_000, 50
CORES = 8
REST_W, SHARED_W, LEAK_W = 20.0, 8.0, 0.4
#: nJ per cycle, instruction and miss; and the part of each that a core's counter covers.
COSTS_NJ, ON_CORE = np.array([1.5, 0.4, 30.0]), np.array([0.85, 0.8, 0.2])
#: Counts per ns of groups 0 to 3; two cores run each.
RATES = np.array([[2.5, 2.0, 0.004], [2.5, 1.5, 0.012], [2.5, 2.5, 0.006], [2.5, 1.0, 0.02]])
GROUP = np.repeat(np.arange(4), 2)  #: of each core


@dataclass(frozen=True)
class Simulated:
    """A recording; `energy_nj` (groups,): what each group drew in truth."""

    machine: Machine
    segments: Segments
    package: WindowEnergy
    cores: WindowEnergy
    energy_nj: F64


def simulated(
    seed: int, factors: tuple[float, float, float, float], *, seconds: int = 40
) -> Simulated:
    """Groups 0 and 1 run at the same times, on cores of their own, so that no window of the
    package tells which of them draws what. Groups 2 and 3 run at times of their own.

    `factors`: by how much each group's cores draw more than its counts say. What it draws outside
    of them deviates half as much. Cores differ by 2 %, and groups by 2 % from second to second.
    """
    random = np.random.default_rng(seed)
    phase = np.repeat(random.uniform(0.05, 0.95, (3, 2 * seconds)), PER_SECOND // 2, axis=1)
    share = np.clip(phase + random.normal(0, 0.1, phase.shape), 0.02, 0.98)
    busy_ns = np.rint(np.stack([share[0], 0.6 * share[0], *share[1:]])[GROUP] * WINDOW_NS)
    counts = np.rint(busy_ns[:, :, None] * RATES[GROUP][:, None])
    own = np.array(factors)[GROUP][:, None]
    lasting = np.repeat(random.normal(1, 0.02, (CORES, seconds)), PER_SECOND, axis=1)
    lasting *= random.normal(1, 0.02, (CORES, 1))
    on_nj = own * lasting * (counts @ (COSTS_NJ * ON_CORE))
    off_nj = (1 + own) / 2 * (counts @ (COSTS_NJ * (1 - ON_CORE)))
    shared_nj = SHARED_W * _shared_ns(busy_ns)
    leak_nj = LEAK_W * random.uniform(0.8, 1.2, (CORES, 1)) * WINDOW_NS
    each_nj = on_nj + off_nj + shared_nj
    package = each_nj.sum(axis=0) + leak_nj.sum() + REST_W * WINDOW_NS
    cores = (on_nj + leak_nj).reshape(CORES, seconds, PER_SECOND).sum(axis=2)
    return Simulated(
        Machine(np.arange(CORES), np.zeros(CORES, np.int64), np.arange(CORES)),
        _segments(busy_ns, counts),
        _energy((Series(0, "package", 2.0**-16, 2**32),), package[None], 1, random),
        _energy(
            tuple(Series(core, ONE_CORE, 2.0**-32) for core in range(CORES)),
            cores,
            PER_SECOND,
            random,
        ),
        np.bincount(GROUP, each_nj.sum(axis=1)).astype(np.float64),
    )


def _shared_ns(busy_ns: F64) -> F64:
    """(cores, windows) each core's part of the time with any busy; all begin with the window."""
    order = np.argsort(busy_ns, axis=0)
    steps = np.diff(np.take_along_axis(busy_ns, order, 0), axis=0, prepend=0.0)
    parts = np.cumsum(steps / np.arange(len(busy_ns), 0, -1)[:, None], axis=0)
    out = np.empty_like(busy_ns)
    np.put_along_axis(out, order, parts, 0)
    return out


def _segments(busy_ns: F64, counts: F64) -> Segments:
    windows = busy_ns.shape[1]
    begin = np.repeat(np.arange(windows) * WINDOW_NS, CORES)
    cpu = np.tile(np.arange(CORES), windows)
    return Segments(
        begin,
        begin + busy_ns.T.reshape(-1).astype(np.int64),
        cpu,
        GROUP[cpu],
        counts.transpose(1, 0, 2).reshape(-1, 3).astype(np.uint64),
        np.ones((len(cpu), 3), bool),
    )


def _energy(
    series: tuple[Series, ...], drawn_nj: F64, windows: int, random: np.random.Generator
) -> WindowEnergy:
    """Counters that move once in a millisecond, read every so many windows."""
    count = drawn_nj.shape[1]
    late = random.uniform(0, 1e6, (len(series), count + 1)) / (windows * WINDOW_NS)
    late[:, [0, -1]] = 0.0
    mean = drawn_nj.mean(axis=1, keepdims=True)
    nj = np.rint(drawn_nj + mean * (late[:, :-1] - late[:, 1:])).astype(np.int64)
    bounds = np.arange(count + 1) * (windows * WINDOW_NS)
    cause, half = np.full(nj.shape, Cause.NONE, np.uint8), np.zeros(nj.shape, np.int64)
    return WindowEnergy(series, bounds, np.maximum(nj, 0), cause, half)


def with_cores(case: Simulated, energy_nj: F64) -> Simulated:
    """The same with other energies of cores, (cores, seconds)."""
    return replace(case, cores=replace(case.cores, energy_nj=energy_nj.astype(np.int64)))


def evidence_of(case: Simulated) -> tuple[CoreEvidence, F64]:
    """The cores' evidence, and values of all parameters at which to evaluate it."""
    stream = SegmentWindows(of_cores(case.machine), case.cores, of_cores=True)
    batch = joined([stream.add(case.segments), stream.finish()])
    places = zones(case.cores.series, batch.packages, ONE_CORE)
    plain = Coefficients().of("package")
    source = Source(case.cores.series, places, plain, itself, UPDATE_PERIOD_NS)
    rows, _ = make_rows([batch], source, np.arange(4))
    theta = np.zeros(len(THETA))
    theta[:9] = *COSTS_NJ, 0.1, 0.05, 0.55, 0.01, 1.0, 0.35
    value = np.concatenate([[REST_W, SHARED_W], theta, np.ones(4)])
    return CoreEvidence(rows, 2 + len(THETA), 0.15), value


def ledger_of(
    case: Simulated, coefficients: Coefficients | None = None, *, cores: bool = True, cuts: int = 1
) -> Ledger:
    """The ledger of a recording whose segments come in `cuts` pieces."""
    account = Account(
        AccountSettings(
            case.package.series,
            (0,),
            coefficients or Coefficients(),
            period_ns=UPDATE_PERIOD_NS,
            cores=CoreCounters(case.cores.series, (0,) * CORES),
        )
    )
    s = case.segments
    assert s.counters is not None
    assert s.valid is not None
    pieces = [
        Segments(s.t0_ns[i], s.t1_ns[i], s.cpu[i], s.group[i], s.counters[i], s.valid[i])
        for i in np.array_split(np.arange(len(s.cpu)), cuts)
    ]
    every = SegmentWindows(of_cores(case.machine), case.cores, of_cores=True) if cores else None
    return divided(account, SegmentWindows(case.machine, case.package), pieces, cores=every)
