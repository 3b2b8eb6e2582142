# SPDX-License-Identifier: Apache-2.0
"""Makes recordings of runs, as a tracer would have made them, and attributes them.

The energy of a run is one total. Its windows, a second each, all have the run's mean power and
mean counts: nothing is made up that the source does not have, but windows that are all alike say
more to the engine than one long one. A program's cores take turns in its idle time, so that the
socket stays awake.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from studies.bench.accuracy.engine_run import windows_of
from studies.bench.accuracy.history import attributed
from studies.bench.accuracy.recording import F64, I64, Case, Group, Recording, Truth
from studies.bench.real.pairs import Pair, Platform
from studies.bench.real.xeon import NODE, Program, Run

from qjoule.model.arrays import Machine, Segments
from qjoule.model.energy import Readings, Series
from qjoule.model.fit.cells import Cell
from qjoule.model.ledger import Ledger

PACKAGE = "package"
WINDOW_NS = 1_000_000_000
IDLE_S, TICK_S = 60.0, 0.06
#: Unix time of the first run, and from one run to the next.
FIRST_S, BETWEEN_S = 1.7e9, 600.0
_BEGIN_NS = 10**12
_UNIT_J = 2.0**-14
_CORES = 16  #: of each of the two sockets


def recording(runs: Sequence[Run], platform: Platform) -> Recording:
    """What a tracer would have recorded of runs, one after the other; their programs are query
    shapes."""
    counts = [max(round(run.seconds * 1e9 / WINDOW_NS), 1) for run in runs]
    begins_ns = _BEGIN_NS + WINDOW_NS * np.append(0, np.cumsum(counts))
    names = list(dict.fromkeys(program.name for run in runs for program in run.programs))
    parts = [
        _segments(run, names, platform, (int(begin_ns), count))
        for run, begin_ns, count in zip(runs, begins_ns[:-1], counts, strict=True)
    ]
    segments = Segments(*(np.concatenate(column) for column in zip(*parts, strict=True)))
    cpus = np.arange(2 * _CORES)
    return Recording(
        machine=Machine(cpus, cpus // _CORES),
        series=tuple(Series(node, name, _UNIT_J, 1 << 32) for name, node in _counters(runs)),
        readings=_readings(runs, counts),
        begin_ns=_BEGIN_NS,
        end_ns=int(begins_ns[-1]),
        segments=segments,
        query=np.full(0, -1, np.int64),
        groups=tuple(Group(name, "queries") for name in names),
        lost=(),
        period_ns=WINDOW_NS,
    )


def idle_run(platform: Platform, like: Run) -> Run:
    """A minute of both sockets at rest, but for a timer's tick. The source has none: R is what the
    solo runs show. (Windows in which nothing at all ran would teach the engine nothing.)
    """
    rest_w = np.full(2, platform.rest_w)
    counts = np.array([platform.ghz, platform.ghz, 0.0]) * 1e9 * TICK_S
    ticks = tuple(Program(f"tick {core}", (core,), TICK_S, counts) for core in (0, _CORES))
    return Run("idle", ticks, IDLE_S, rest_w, np.full(2, like.dram_w[1 - NODE]))


def _counters(runs: Sequence[Run]) -> dict[tuple[str, int], F64]:
    """Watts of each run (n,) by domain and socket, of counters that all runs have."""
    watts = {
        (domain, node): np.array([getattr(run, f"{domain}_w")[node] for run in runs])
        for domain in (PACKAGE, "dram")
        for node in (0, 1)
    }
    return {key: series for key, series in watts.items() if np.isfinite(series).all()}


def _readings(runs: Sequence[Run], counts: Sequence[int]) -> Readings:
    watts = np.repeat(np.column_stack(list(_counters(runs).values())), counts, axis=0)
    windows, series = watts.shape
    joules = np.vstack([np.zeros(series), np.cumsum(watts * WINDOW_NS * 1e-9, axis=0)])
    t_ns = _BEGIN_NS + np.arange(windows + 1) * WINDOW_NS
    return Readings(
        np.repeat(t_ns, series),
        np.round(joules / _UNIT_J).reshape(-1).astype(np.uint64) % (1 << 32),
        np.ones(joules.size, bool),
        np.full(joules.size, 1_000, np.int64),
        np.tile(np.arange(series), windows + 1),
    )


def _segments(
    run: Run, names: list[str], platform: Platform, span: tuple[int, int]
) -> tuple[Any, ...]:
    """Columns of `Segments`. `span`: its begin and its number of windows."""
    begin_ns, count = span
    begin, length, cpu, group, rates = [], [], [], [], []
    for program in run.programs:
        cores = len(program.cpus)
        busy = platform.busy(program) / cores * min(program.seconds / run.seconds, 1.0)
        busy_ns = max(round(busy * WINDOW_NS), 1)
        per_ns = program.counts / (program.seconds * 1e9 * platform.busy(program))
        for turn, core in enumerate(program.cpus):
            first = turn * WINDOW_NS // cores
            # The part that does not fit into the window is at its begin.
            for at, ns in (
                (first, min(busy_ns, WINDOW_NS - first)),
                (0, busy_ns - (WINDOW_NS - first)),
            ):
                if ns > 0:
                    begin.append(at)
                    length.append(ns)
                    cpu.append(core)
                    group.append(names.index(program.name))
                    rates.append(per_ns)
    parts = len(begin)
    windows = begin_ns + np.repeat(np.arange(count) * WINDOW_NS, parts)
    t0_ns = windows + np.tile(np.array(begin, np.int64), count)
    span_ns: I64 = np.tile(np.array(length, np.int64), count)
    counts = np.tile(np.array(rates).reshape(-1, 3), (count, 1)) * span_ns[:, None]
    order = np.argsort(t0_ns, kind="stable")
    return (
        t0_ns[order],
        (t0_ns + span_ns)[order],
        np.tile(np.array(cpu, np.uint16), count)[order],
        np.tile(np.array(group, np.int64), count)[order],
        np.round(counts[order]).astype(np.uint64),
        np.ones((len(t0_ns), 3), bool),
        np.ones(len(t0_ns), np.float32),
    )


def attribute(pair: Pair, platform: Platform, others: Sequence[Run]) -> dict[str, Ledger]:
    """The product's ledgers of a pair: with nothing known, with both solo runs remembered, with a
    minute of rest before them, and with `others` between."""
    pair_recording = recording([pair.whole], platform)
    earlier = [recording([run], platform) for run in pair.solo]
    rest = recording([idle_run(platform, pair.whole)], platform)
    usual = [recording([run], platform) for run in others]
    return {
        "qjoule": _after([], pair_recording),
        "qjoule, memory": _after(earlier, pair_recording),
        "qjoule, memory, rest": _after([rest, *earlier], pair_recording),
        f"qjoule, the same and {len(others)} other runs": _after(
            [rest, *usual, *earlier], pair_recording
        ),
    }


def _after(earlier: Sequence[Recording], last: Recording) -> Ledger:
    cells: tuple[Cell, ...] = ()
    when_s = FIRST_S
    for recording in earlier:
        _, cells = attributed(recording, when_s, cells)
        when_s += BETWEEN_S
    return attributed(last, when_s, cells)[0]


def predicted_w(pair: Pair, earlier: Sequence[Run], platform: Platform) -> float:
    """Power of the pair's socket by the model that the engine has after one trace of `earlier`,
    the last of which should be the solo runs."""
    before = recording(earlier, platform)
    joined = recording([*earlier, pair.whole], platform)
    ledger, _ = attributed(before, FIRST_S, ())
    model = ledger.models[PACKAGE]
    stream = windows_of(joined)
    batches = [stream.add(joined.segments), stream.finish()]
    zones = ledger.zones[PACKAGE]
    number = next(z for z, zone in enumerate(zones) if zone.package == NODE)
    total_nj = total_ns = 0.0
    for batch in batches:
        part = zones[number].take(zones[number].view(batch))
        ends_ns = batch.energy.boundaries_ns[1:]
        after_earlier = ends_ns > before.end_ns
        column = model.column(ledger.class_of(part.entries.group))
        nj = model.weight(part.features, part.crowd, column)
        nj += model.effects_nj(part.entries.effects)
        total_nj += float(nj[after_earlier[part.entries.window]].sum())
        total_nj += float(model.shared_w[number] * part.load.active_ns[after_earlier].sum())
        spent_ns = float(part.load.dt_ns[after_earlier].sum())
        total_nj += float(np.nan_to_num(model.idle_w[number])) * spent_ns
        total_ns += spent_ns
    return total_nj / total_ns


def case_of(pair: Pair, platform: Platform) -> Case:
    """A pair as the other methods of the accuracy bench take it."""
    pair_recording = recording([pair.whole], platform)
    above_nj = (pair.joint_w - platform.rest_w) * pair.whole.seconds * 1e9
    truth = Truth(
        {PACKAGE: pair.reference(platform) * above_nj}, {}, np.zeros(0, np.int64), {}, {}, {}
    )
    return Case("real", 0, pair_recording, truth, None, ())
