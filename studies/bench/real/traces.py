# SPDX-License-Identifier: Apache-2.0
"""Makes recordings of runs, as a tracer would have made them, and attributes them.

The energy of a run is one total. Its windows, a second each, all have the run's mean power and
mean counts: nothing is made up that the source does not have, but windows that are all alike say
more to the engine than one long one. A program's cores take turns in its idle time, so that the
socket stays awake.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from studies.bench.accuracy.history import attributed
from studies.bench.accuracy.recording import I64, Case, Group, Recording, Truth
from studies.bench.real.pairs import Pair, Platform
from studies.bench.real.xeon import NODE, Program, Run

from qjoule.model.arrays import Machine, Segments
from qjoule.model.energy import Readings, Series
from qjoule.model.fit.cells import Cell
from qjoule.model.ledger import Ledger

PACKAGE = "package"
WINDOW_NS = 1_000_000_000
IDLE_S, TICK_CPUS = 60, 0.001
#: Unix time of the first run, and from one run to the next.
FIRST_S, BETWEEN_S = 1.7e9, 600.0
_BEGIN_NS = 10**12
_UNIT_J = 2.0**-14
_CORES = 16  #: of each of the two sockets


def recording(run: Run, platform: Platform) -> Recording:
    """What a tracer would have recorded of a run; its programs are two query shapes."""
    count = max(round(run.seconds * 1e9 / WINDOW_NS), 1)
    end_ns = _BEGIN_NS + count * WINDOW_NS
    cpus = np.arange(2 * _CORES)
    return Recording(
        machine=Machine(cpus, cpus // _CORES),
        series=_series(run),
        readings=_readings(run, count),
        begin_ns=_BEGIN_NS,
        end_ns=end_ns,
        segments=_segments(run.programs, platform, count),
        query=np.full(0, -1, np.int64),
        groups=tuple(Group(one.name, "queries") for one in run.programs),
        lost=(),
        period_ns=WINDOW_NS,
    )


def idle_run(platform: Platform, like: Run) -> Run:
    """A minute of both sockets at rest, but for a timer's tick. The source has none: R is what the
    solo runs show. (Windows in which nothing at all ran would teach the engine nothing.)
    """
    rest_w = np.full(2, platform.rest_w)
    counts = np.array([platform.ghz, platform.ghz, 0.0]) * 1e9 * IDLE_S * TICK_CPUS
    ticks = tuple(Program(f"tick {core}", (core,), IDLE_S, counts) for core in (0, _CORES))
    return Run("idle", ticks, IDLE_S, rest_w, np.full(2, like.dram_w[1 - NODE]))


def _watts(run: Run) -> list[tuple[str, int, float]]:
    """The counters that a run has."""
    found = [(PACKAGE, node, float(run.package_w[node])) for node in (0, 1)]
    found += [("dram", node, float(run.dram_w[node])) for node in (0, 1)]
    return [one for one in found if np.isfinite(one[2])]


def _series(run: Run) -> tuple[Series, ...]:
    return tuple(Series(node, domain, _UNIT_J, 1 << 32) for domain, node, _ in _watts(run))


def _readings(run: Run, count: int) -> Readings:
    watts = np.array([w for _, _, w in _watts(run)])
    t_ns = _BEGIN_NS + np.arange(count + 1) * WINDOW_NS
    raw = np.outer(np.arange(count + 1) * (WINDOW_NS * 1e-9 / _UNIT_J), watts)
    n = raw.size
    return Readings(
        np.repeat(t_ns, len(watts)),
        np.round(raw).reshape(-1).astype(np.uint64) % (1 << 32),
        np.ones(n, bool),
        np.full(n, 1_000, np.int64),
        np.tile(np.arange(len(watts)), count + 1),
    )


def _segments(programs: Sequence[Program], platform: Platform, count: int) -> Segments:
    begin, length, cpu, group, rates = [], [], [], [], []
    for number, program in enumerate(programs):
        cores = len(program.cpus)
        busy = platform.busy(program) / cores
        busy_ns = max(round(busy * WINDOW_NS), 1)
        per_ns = program.counts / (program.seconds * 1e9 * platform.busy(program))
        for turn, core in enumerate(program.cpus):
            first = turn * WINDOW_NS // cores
            # The part that does not fit into the window is at its begin.
            for at, span in (
                (first, min(busy_ns, WINDOW_NS - first)),
                (0, busy_ns - (WINDOW_NS - first)),
            ):
                if span > 0:
                    begin.append(at)
                    length.append(span)
                    cpu.append(core)
                    group.append(number)
                    rates.append(per_ns)
    parts = len(begin)
    windows = _BEGIN_NS + np.repeat(np.arange(count) * WINDOW_NS, parts)
    t0_ns = windows + np.tile(np.array(begin, np.int64), count)
    span_ns: I64 = np.tile(np.array(length, np.int64), count)
    counts = np.tile(np.array(rates).reshape(-1, 3), (count, 1)) * span_ns[:, None]
    order = np.argsort(t0_ns, kind="stable")
    return Segments(
        t0_ns[order],
        (t0_ns + span_ns)[order],
        np.tile(np.array(cpu, np.uint16), count)[order],
        np.tile(np.array(group, np.int64), count)[order],
        np.round(counts[order]).astype(np.uint64),
        np.ones((len(t0_ns), 3), bool),
        np.ones(len(t0_ns), np.float32),
    )


@dataclass(frozen=True)
class Attributed:
    """A pair's ledger, and what the engine knew before of R + S in watts, None for nothing."""

    ledger: Ledger
    awake_w: float | None = None


def attribute(pair: Pair, platform: Platform) -> dict[str, Attributed]:
    """The product's ledgers of a pair: with nothing known, with both solo runs remembered, and
    with a minute of rest before them."""
    whole = recording(pair.whole, platform)
    earlier = [recording(run, platform) for run in pair.solo]
    rest = recording(idle_run(platform, pair.solo[0]), replace(platform, held=False))
    return {
        "qjoule": _after([], whole),
        "qjoule, memory": _after(earlier, whole),
        "qjoule, memory, rest": _after([rest, *earlier], whole),
    }


def _after(earlier: Sequence[Recording], last: Recording) -> Attributed:
    cells: tuple[Cell, ...] = ()
    when_s, awake_w = FIRST_S, None
    for one in earlier:
        ledger, cells = attributed(one, when_s, cells)
        model = ledger.models[PACKAGE]
        awake_w = float(model.idle_w[NODE] + model.shared_w[NODE])
        when_s += BETWEEN_S
    return Attributed(attributed(last, when_s, cells)[0], awake_w)


def case_of(pair: Pair, platform: Platform) -> Case:
    """A pair as the other methods of the accuracy bench take it."""
    whole = recording(pair.whole, platform)
    above_nj = (pair.joint_w - platform.rest_w) * pair.whole.seconds * 1e9
    truth = Truth(
        {PACKAGE: pair.reference(platform) * above_nj}, {}, np.zeros(0, np.int64), {}, {}, {}
    )
    return Case("real", 0, whole, truth, None, ())
