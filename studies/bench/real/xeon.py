# SPDX-License-Identifier: Apache-2.0
"""Reads runs of one and of two programs on a Xeon E5-2683 v4 (README.md says from where).

The source has energy as totals of a run, and the counters of the programs as totals and by sample.
A run that cannot be used is left out, and `Runs.left_out` says why.
"""

from __future__ import annotations

import csv
import gzip
import math
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from studies.bench.accuracy.recording import F64

from qjoule.errors import QjouleError

RUNS, SERIES = "xeon-e5-2683v4-runs.csv", "xeon-e5-2683v4-series.csv.gz"
#: The counters of the source that are the model's: cycles, instructions, LLC misses.
COUNTS = ("cycles", "instructions", "l3miss")
#: The socket on which the programs ran. The other one was awake, but had no work.
NODE = 1
NODE_CPUS = range(16, 32)
#: The source added this many joules when it took a 32-bit counter for wrapped (2^32 * 2^-16 J).
WRAP_J = 65_536.0
#: Mean watts that a package of this machine can draw: its rated power is 120 W; awake without work
#: it drew 28 W or more.
LEAST_W, MOST_W = 20.0, 160.0
#: The source's `wall_cycles` are of this clock: they tell how long the counters counted.
CLOCK_HZ = 2.1e9
#: Cycles per second of a core, in 10^9. The slowest program slept most of its time: 0.17.
LEAST_GHZ, MOST_GHZ = 0.05, 4.0


class NotTheSource(QjouleError):
    """The folder does not hold the tables that this importer reads."""


class Unusable(Exception):
    """A run whose figures contradict themselves, or that its source marked as faulty."""


@dataclass(frozen=True)
class Program:
    """One program of a run: its CPUs, how long it ran, and its totals of `COUNTS` (3,), which are
    extrapolated from the time in which its source counted: it began a second late.
    """

    name: str
    cpus: tuple[int, ...]
    seconds: float
    counts: F64

    def rates(self) -> F64:
        """(3,) per second."""
        return self.counts / self.seconds

    def ghz(self) -> float:
        """Cycles per second of one of its cores, in 10^9."""
        return float(self.rates()[0]) / len(self.cpus) * 1e-9


@dataclass(frozen=True)
class Run:
    """`package_w` and `dram_w` (2,) are means of both sockets over `seconds`."""

    name: str
    programs: tuple[Program, ...]
    seconds: float
    package_w: F64
    dram_w: F64


@dataclass(frozen=True)
class Runs:
    """`solo` by program and number of cores; `pairs` in the source's order. `samples` (n, 3) of
    a run and program, at equal distances. `left_out`: runs and why."""

    solo: dict[tuple[str, int], Run]
    pairs: tuple[Run, ...]
    samples: dict[tuple[str, str], F64]
    left_out: tuple[tuple[str, str], ...]


def read(directory: Path) -> Runs:
    """All usable runs.

    Raises:
        NotTheSource: a table is missing or has other columns.
    """
    try:
        rows = _rows(directory / RUNS)
        samples = _samples(directory / SERIES)
    except (OSError, EOFError, KeyError, ValueError) as error:
        raise NotTheSource(f"{directory}: {error}") from error
    solo: dict[tuple[str, int], Run] = {}
    pairs: list[Run] = []
    left_out: list[tuple[str, str]] = []
    for name, members in rows.items():
        try:
            run = _run(name, members)
        except Unusable as why:
            left_out.append((name, str(why)))
            continue
        except (KeyError, ValueError) as error:
            raise NotTheSource(f"{directory / RUNS}: {name}: {error!r}") from error
        if len(run.programs) == 1:
            solo[run.programs[0].name, len(run.programs[0].cpus)] = run
        else:
            pairs.append(run)
    accepted = []
    for run in pairs:
        missing = [
            program.name
            for program in run.programs
            if (program.name, len(program.cpus)) not in solo
        ]
        if missing:
            left_out.append((run.name, f"no usable solo run of {', '.join(missing)}"))
        else:
            accepted.append(run)
    return Runs(solo, tuple(accepted), samples, tuple(left_out))


def _rows(path: Path) -> dict[str, list[dict[str, str]]]:
    rows: dict[str, list[dict[str, str]]] = defaultdict(list)
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            rows[row["run"]].append(row)
    return rows


def _samples(path: Path) -> dict[tuple[str, str], F64]:
    rows: dict[tuple[str, str], list[list[float]]] = defaultdict(list)
    if path.exists():
        with gzip.open(path, "rt", newline="") as file:
            for row in csv.DictReader(file):
                rows[row["run"], row["program"]].append([float(row[name]) for name in COUNTS])
    return {key: np.array(values) for key, values in rows.items()}


def _run(name: str, rows: list[dict[str, str]]) -> Run:
    first = rows[0]
    if any(row["marked_error"] not in ("", "0") for row in rows):
        raise Unusable("its source marked it as faulty")
    if len(rows) > 2 or any(row["node"] != str(NODE) for row in rows):
        raise Unusable(f"not one or two programs on socket {NODE}")
    seconds = float(first["window_s"])
    if not seconds > 0:
        raise Unusable("it has no time")
    package_w = [_watts(float(first[f"package{n}_j"]), seconds, f"package {n}") for n in (0, 1)]
    dram_w = [float(first[f"dram{n}_j"] or "nan") / seconds for n in (0, 1)]
    programs = tuple(_program(row) for row in rows)
    if any(program.seconds > seconds * 1.01 for program in programs):
        raise Unusable("a program ran longer than its energy was measured")
    if len({cpu for program in programs for cpu in program.cpus}) < sum(
        len(program.cpus) for program in programs
    ):
        raise Unusable("two programs on one core")
    return Run(name, programs, seconds, np.array(package_w), np.array(dram_w))


def _watts(joules: float, seconds: float, counter: str) -> float:
    """Mean power, without wraps that the source added.

    A wrap added to a run of 8 minutes could be real power: such runs are refused, as are counters
    that stood still or jumped by something else than wraps.
    """
    if not math.isfinite(joules):
        raise Unusable(f"{counter}: no number")
    if seconds * (MOST_W - LEAST_W) > WRAP_J:
        raise Unusable(f"{seconds:.0f} s: too long to tell whether its source added a wrap")
    while joules > seconds * MOST_W and joules >= WRAP_J:
        joules -= WRAP_J
    watts = joules / seconds
    if watts < LEAST_W:
        raise Unusable(f"{counter}: {watts:.1f} W, its counter stood still or jumped")
    if watts > MOST_W:
        raise Unusable(f"{counter}: {watts:.0f} W, its counter jumped")
    return watts


def _program(row: dict[str, str]) -> Program:
    low, _, high = row["cores"].partition("-")
    first, last = int(low), int(high or low)
    if first > last or first not in NODE_CPUS or last not in NODE_CPUS:
        raise Unusable(f"{row['program']}: cores {row['cores']} are not of socket {NODE}")
    cpus = tuple(range(first, last + 1))
    counts = np.array([float(row[name] or 0) for name in COUNTS])
    seconds, counted_s = float(row["runtime_s"]), float(row["wall_cycles"] or 0) / CLOCK_HZ
    if not 0.5 * seconds < counted_s < 1.05 * seconds:
        raise Unusable(f"{row['program']}: counted in {counted_s:.1f} of {seconds:.1f} s")
    program = Program(row["program"], cpus, seconds, counts * (seconds / counted_s))
    if program.ghz() < LEAST_GHZ:
        raise Unusable(f"{program.name}: {program.ghz():.3f} GHz, its cycles stood still")
    if program.ghz() > MOST_GHZ:
        raise Unusable(f"{program.name}: {program.ghz():.1f} GHz, its cycles jumped")
    return program
