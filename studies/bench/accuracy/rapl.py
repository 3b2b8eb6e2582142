# SPDX-License-Identifier: Apache-2.0
"""Simulates energy counters: 32 bits, updated about every millisecond, read in turn.

Updates come every 976 us with jitter, each domain at its own times (Haehnel et al., "Measuring
Energy Consumption for Short Code Paths Using RAPL", SIGMETRICS PER 2012; Khan et al., "RAPL in
Action", TOMPECS 2018); units and wraps as in the Intel SDM, volume 3B, 15.10.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from studies.bench.accuracy.physics import Power
from studies.bench.accuracy.recording import F64, I64

from qjoule.model.energy import Readings, Series

UPDATE_NS = 976_000
REGISTER = 2**32
MICROJOULE = 1e-6


@dataclass(frozen=True)
class Meter:
    """How a machine's counters are made and read.

    `unit_j` is the unit of the register. `powercap`: the counter is shown in microjoules with the
    range that follows from that, as in the kernel's powercap tree. `noise` is the relative error of
    a millisecond.
    """

    domains: tuple[str, ...]
    unit_j: dict[str, float]
    powercap: bool
    noise: float
    period_ns: int = 20_000_000


def draw_meter(random: np.random.Generator, dram: bool = True) -> Meter:
    """A server's counters: 61 or 15 uJ, DRAM often finer, a core domain on some."""
    unit = 2.0 ** -int(random.choice([14, 16]))
    domains = ["package"]
    if random.random() < 0.3:
        domains.append("core")
    if dram:
        domains.append("dram")
    return Meter(
        domains=tuple(domains),
        unit_j={"package": unit, "core": unit, "dram": float(random.choice([unit, 2.0**-16]))},
        powercap=bool(random.integers(2)),
        noise=random.uniform(0.002, 0.02),
    )


def read_meter(
    random: np.random.Generator, meter: Meter, power: tuple[Power, ...], span_ns: tuple[int, int]
) -> tuple[tuple[Series, ...], Readings]:
    """Readings of all counters, about every `period_ns`, from the begin to the end of the span.

    A round reads one counter after another. It is late by microseconds, at times by milliseconds.
    Every counter begins near its maximum so that it wraps during the run.
    """
    power = tuple(package_power.seen() for package_power in power)
    pairs = [(package, domain) for package in range(len(power)) for domain in meter.domains]
    rounds_ns = _rounds(random, meter.period_ns, span_ns, len(pairs))
    shape = (len(rounds_ns), len(pairs))
    half_ns = random.integers(300, 3_000, shape)
    # The reader was interrupted: the moment of the reading is known less precisely.
    half_ns[random.random(shape) < 0.002] *= 20
    t_ns = rounds_ns[:, None] + np.cumsum(2 * half_ns, axis=1) - half_ns
    series, raw = [], np.zeros(shape, np.uint64)
    for column, (package, domain) in enumerate(pairs):
        at_ns = t_ns[:, column] + half_ns[:, column] * random.uniform(-1, 1, len(rounds_ns))
        counter, raw[:, column] = _counter(random, meter, power[package], (package, domain), at_ns)
        series.append(counter)
    flat = (t_ns.reshape(-1), raw.reshape(-1), np.ones(raw.size, bool), half_ns.reshape(-1))
    return tuple(series), Readings(*flat, np.tile(np.arange(len(pairs)), len(rounds_ns)))


def _rounds(
    random: np.random.Generator, period_ns: int, span_ns: tuple[int, int], counters: int
) -> I64:
    """When each round of readings begins: the first at once, the last just before the end."""
    begin_ns, end_ns = span_ns
    count = (end_ns - begin_ns) // period_ns
    late = random.exponential(period_ns / 400, count + 1)
    late[random.random(count + 1) < 0.003] += period_ns / 4
    times = begin_ns + np.arange(count + 1) * period_ns + late.astype(np.int64)
    times[0] = begin_ns
    room_ns = 130_000 * counters
    result: I64 = np.append(times[times < end_ns - 2 * period_ns], end_ns - room_ns)
    return result


def _counter(
    random: np.random.Generator, meter: Meter, power: Power, which: tuple[int, str], at_ns: F64
) -> tuple[Series, I64]:
    """One counter and its value at each time."""
    package, domain = which
    begin_ns, end_ns = int(power.edges_ns[0]), int(power.edges_ns[-1])
    updates = (end_ns - begin_ns) // UPDATE_NS + 2
    phase = random.uniform(-1, 0) * UPDATE_NS
    updates_ns = begin_ns + phase + np.arange(updates) * UPDATE_NS
    updates_ns = np.maximum(updates_ns + random.normal(0, 15_000, updates), begin_ns)
    energy_nj = power.at(domain, updates_ns)
    steps = np.diff(energy_nj, prepend=0.0)
    energy_nj = np.cumsum(steps * (1 + meter.noise * random.normal(0, 1, updates).clip(-4, 4)))
    unit_j = meter.unit_j[domain]
    counted = energy_nj / (unit_j * 1e9)
    start = REGISTER - int(random.uniform(0.1, 0.9) * counted[-1]) - 1
    register = (start + counted.astype(np.int64)) % REGISTER
    last = np.searchsorted(np.maximum.accumulate(updates_ns), at_ns, "right") - 1
    value = register[np.maximum(last, 0)]
    if not meter.powercap:
        return Series(package, domain, unit_j, REGISTER), value
    # Units are powers of two, at least 2**-16 J: times 10**6 stays far below 2**63.
    per_j = round(1 / unit_j)
    return (
        Series(package, domain, MICROJOULE, REGISTER * 1_000_000 // per_j),
        value * 1_000_000 // per_j,
    )
