# SPDX-License-Identifier: Apache-2.0
"""What a machine's memory is worth: simulated machines on several days, with and without it.

    python studies/bench/bench_memory.py [--seeds N] [--minutes M] [--scenes A,B]

Without calibration. `error`: mean over a run's statements of |estimate - truth|, by energy;
`share`: how far the first statement's share is off, in points; `held`: how many of the 95 %
intervals contain the truth; `width`: their median half-width.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from studies.bench.accuracy import mixes
from studies.bench.accuracy.activity import Activity
from studies.bench.accuracy.history import attributed
from studies.bench.accuracy.machine import PhysicalMachine, Topology, another_day, draw_climate
from studies.bench.accuracy.machine import draw_machine as drawn
from studies.bench.accuracy.physics import simulate
from studies.bench.accuracy.rapl import Meter, draw_meter
from studies.bench.accuracy.recording import Recording, Truth
from studies.bench.accuracy.rig import idle_sources
from studies.bench.accuracy.tracer import Tracer, draw_tracer, record
from studies.bench.accuracy.tracer import truth as truth_of
from studies.bench.accuracy.workload import Source
from studies.bench.accuracy.workload import run as run_sources

from qjoule.machine.identity import Identity
from qjoule.machine.memory import Memory
from qjoule.model.fit.cells import Cell
from qjoule.model.ledger import Ledger

PACKAGE, NOW_S = "package", 1.8e9
DAY_S = 86_400.0
_BEGIN_NS = 10**12


@dataclass(frozen=True)
class Day:
    """One run: which statements are called (by name; none: all), for how long, and when.

    `factor`: what each statement's power is multiplied by on that day, by name. `clock`: frequency
    of all cores, from 0 (the least) to 1 (the highest that turbo has); None: turbo. `idle`: nothing
    is called.
    """

    called: tuple[str, ...] = ()
    seconds: float = 30.0
    when_s: float = 0.0
    factor: tuple[tuple[str, float], ...] = ()
    clock: float | None = None
    idle: bool = False


@dataclass(frozen=True)
class Run:
    recording: Recording
    truth: Truth


@dataclass(frozen=True)
class History:
    """A machine with its meter and tracer, and all statements that its server may run."""

    random: np.random.Generator
    machine: PhysicalMachine
    meter: Meter
    tracer: Tracer
    sources: list[Source]

    @staticmethod
    def draw(
        seed: int,
        *,
        shapes: int = 2,
        counters: bool = True,
        load: float = 0.35,
        steady: bool = False,
    ) -> History:
        """A machine of 4 to 8 cores, with `shapes` statements that load `load` of it together.

        `steady`: they run all the time, so that no window has one of them without the others.
        """
        random = np.random.default_rng(np.random.SeedSequence([seed, 91]))
        topology = Topology(1, int(random.integers(4, 9)), int(random.integers(1, 3)))
        machine = drawn(random, topology)
        cpus, hidden = topology.cpus, float(random.uniform(0.0, 0.12))
        sources = mixes.shapes(random, shapes, hidden, cpus * load, (3e6, 3e7))
        if steady:
            sources = [
                replace(source, swing=0.0, pace="clock", spread=0.05, parts=1.0)
                for source in sources
            ]
        sources += mixes.background(random, hidden, 0.02 * cpus)
        sources += mixes.rest(random, hidden, 0.03 * cpus)
        tracer = draw_tracer(random, counters, 0.0)
        return History(random, machine, draw_meter(random, True), tracer, sources)

    @property
    def statements(self) -> list[str]:
        return [source.group.name for source in self.sources if source.group.kind == "queries"]

    def run(self, day: Day) -> Run:
        """One day's recording."""
        random, factor = self.random, dict(day.factor)
        sources = [
            replace(source, activity=_stronger(source.activity, factor.get(source.group.name, 1.0)))
            for source in self.sources
            if not day.called or source.group.kind != "queries" or source.group.name in day.called
        ]
        sources = idle_sources(sources) if day.idle else sources
        machine, cpus = another_day(random, self.machine), self.machine.topology.cpus
        span_ns = (_BEGIN_NS, _BEGIN_NS + int(day.seconds * 1e9))
        work = run_sources(random, sources, cpus, span_ns, 0.03)
        climate = draw_climate(random, machine, span_ns)
        if day.clock is not None:
            ghz = machine.min_ghz + day.clock * (machine.max_ghz - machine.min_ghz)
            limit_ghz = np.full((machine.topology.cores, climate.idle.shape[1]), ghz)
            climate = replace(climate, limit_ghz=limit_ghz)
        simulation = simulate(machine, work.stretches, climate, span_ns)
        parts = (machine.topology.machine(), self.meter, self.tracer)
        recording = record(random, parts, simulation, work, span_ns)
        return Run(recording, truth_of(simulation, work, self.meter.domains))


def _stronger(activity: Activity, factor: float) -> Activity:
    return replace(activity, intensity=activity.intensity * factor)


Prepared = tuple[History, tuple[Cell, ...], Day]


@dataclass(frozen=True)
class Score:
    error: float
    share: float
    inside: tuple[bool, ...]
    widths: tuple[float, ...]


def score(run: Run, ledger: Ledger) -> Score:
    """The errors of a run's statements."""
    rows = [i for i, group in enumerate(run.recording.groups) if group.kind == "queries"]
    truth = run.truth.group_nj[PACKAGE][rows]
    ledger_nj = ledger.domains[PACKAGE].energy_nj[rows].astype(np.float64)
    low, high = (end[rows] for end in ledger.ci95(PACKAGE))
    return Score(
        float(np.abs(ledger_nj - truth).sum() / truth.sum()),
        float(abs(ledger_nj[0] / ledger_nj.sum() - truth[0] / truth.sum())),
        tuple(((low <= truth) & (truth <= high)).tolist()),
        tuple(((high - low) / 2 / truth).tolist()),
    )


def after(history: History, days: list[Day]) -> tuple[Cell, ...]:
    """The memory that has learned from these days."""
    cells: tuple[Cell, ...] = ()
    for day in days:
        _, cells = attributed(history.run(day).recording, day.when_s, cells)
    return cells


def apart(seed: int, _minutes: float) -> Prepared:
    """Two statements that always run together; each ran alone once, a week before."""
    history = History.draw(seed, steady=True)
    days = [Day((name,), 30.0, NOW_S + 600 * i) for i, name in enumerate(history.statements)]
    return history, after(history, days), Day((), 30.0, NOW_S + 7 * DAY_S)


def ordinary(seed: int, minutes: float) -> Prepared:
    """Six statements after some minutes of the same ordinary load, an hour before."""
    history = History.draw(seed, shapes=6)
    cells = after(history, [Day((), 60.0 * minutes, NOW_S)])
    return history, cells, Day((), 30.0, NOW_S + 3_600.0)


def changed_plan(seed: int, minutes: float) -> Prepared:
    """The same, but one statement draws another power a day later."""
    history, cells, day = ordinary(seed, minutes)
    name = history.statements[seed % 6]
    factor = ((name, 1.3 if seed % 2 else 0.75),)
    return history, cells, replace(day, when_s=NOW_S + DAY_S, factor=factor)


def changed_hardware(seed: int, minutes: float) -> Prepared:
    """The same, but a day later the machine draws another power at rest and by its clock."""
    history, cells, day = ordinary(seed, minutes)
    machine = history.machine
    now = replace(machine, idle_w=1.15 * machine.idle_w, cycle_nj=0.85 * machine.cycle_nj)
    return replace(history, machine=now), cells, replace(day, when_s=NOW_S + DAY_S)


def after_clock(seed: int, minutes: float, clock: float | None) -> Prepared:
    """Six statements at turbo, after a minute at rest and some minutes of load at this clock."""
    history = History.draw(seed, shapes=6)
    days = [Day((), 60.0, NOW_S, idle=True), Day((), 60.0 * minutes, NOW_S + 300.0, clock=clock)]
    return history, after(history, days), Day((), 30.0, NOW_S + 3_600.0)


SCENES: dict[str, Callable[[int, float], Prepared]] = {
    "seen alone last week": apart,
    "after ordinary load": ordinary,
    "a plan changed": changed_plan,
    "hardware changed": changed_hardware,
    "rest and load at today's clock": partial(after_clock, clock=None),
    "rest and load at another clock": partial(after_clock, clock=0.2),
}


def results(scene: str, seeds: int, minutes: float) -> Iterator[tuple[Score, Score]]:
    """Results of each seed, without and with the memory."""
    for seed in range(seeds):
        history, cells, day = SCENES[scene](seed, minutes)
        run = history.run(day)
        without, with_it = (
            score(run, attributed(run.recording, day.when_s, cells_known)[0])
            for cells_known in ((), cells)
        )
        yield without, with_it


def summary_line(name: str, scores: list[Score]) -> str:
    errors = [score.error for score in scores]
    inside = [hit for score in scores for hit in score.inside]
    widths = [width for score in scores for width in score.widths]
    return (
        f"  {name:8} error {np.mean(errors):6.2%} worst {max(errors):6.2%}  "
        f"share worst {100 * max(score.share for score in scores):5.2f}  "
        f"held {np.mean(inside):6.1%}  width {np.median(widths):6.2%}"
    )


def crowd(shapes: int, seed: int) -> tuple[Cell, ...]:
    """Cells that know `shapes` shapes in each domain, up to 96 each."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests/support"))
    from calibrations import cell  # noqa: PLC0415

    cells = []
    for number, first in enumerate(range(1, shapes + 1, 96)):
        count = min(96, shapes + 1 - first)
        for at, domain in enumerate((PACKAGE, "dram")):
            shape_cell = cell(1_000 * seed + number, count, domain=domain, windows=150)
            keys = shape_cell.keys + np.uint64(first - 1)
            ident = (int(NOW_S) // 60 << 36) + 10**6 * seed + 100 * number + at
            cells.append(replace(shape_cell, keys=keys, members=np.array([ident], np.uint64)))
    return tuple(cells)


def file_figures() -> str:
    """Size of a memory of 5,000 shapes, and the time to merge two."""
    first, second = (Memory(Identity(), crowd(5_000, seed)).bounded() for seed in (1, 2))
    began = time.process_time()
    merged = first.merged(second).bounded()
    took_ms = (time.process_time() - began) * 1e3
    size_mb = len(merged.to_bytes()) / 1e6
    return f"{merged.shapes:,} shapes: {size_mb:.2f} MB, merging two such: {took_ms:.1f} ms of CPU"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--scenes", default=",".join(SCENES), help="[all: %(default)s]")
    options = parser.parse_args()
    scenes = options.scenes.split(",")
    if unknown := [scene for scene in scenes if scene not in SCENES]:
        parser.error(f"no such scene: {', '.join(unknown)}")
    print(file_figures())
    for scene in scenes:
        print(f"{scene} ({options.seeds} machines)", flush=True)
        score_pairs = list(results(scene, options.seeds, options.minutes))
        for at, name in enumerate(("without", "with")):
            print(summary_line(name, [pair[at] for pair in score_pairs]), flush=True)


if __name__ == "__main__":
    main()
