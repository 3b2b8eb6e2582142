# SPDX-License-Identifier: Apache-2.0
"""What was measured of one load, and its form in `measured_overhead.csv`."""

from __future__ import annotations

import datetime
import platform
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from statistics import median

from bench.command import machine
from bench.overhead.inside import Inside
from bench.overhead.rounds import Samples
from bench.overhead.stats import median_interval
from bench.overhead.workloads import Workload

from qjoule.servers.measured import MeasuredOverhead, save_overheads

ROOT = Path(__file__).resolve().parents[2]
SYMBOL = "symbol"  #: at the fixed rate: `record` on that attach mode, where it is another


@dataclass
class Found:
    """One load: by mode when saturated and at the fixed rate, inside by mode, attach mode and
    options."""

    workload: Workload
    attach_mode: str
    version: str
    saturated: dict[str, Samples] = field(default_factory=dict)
    fixed: dict[str, Samples] = field(default_factory=dict)
    inside: dict[tuple[str, str, str], Inside] = field(default_factory=dict)


def save(results: Found) -> None:
    """Replaces these figures in the file."""
    save_overheads(rows(results))


def keep_only(every: Iterable[Found]) -> None:
    """Removes all other figures from the file."""
    save_overheads(chain.from_iterable(map(rows, every)), alone=True)


def rows(results: Found) -> Iterator[MeasuredOverhead]:
    """One row for each figure; CPU times in ns per query."""
    per = results.workload.statements
    for mode, sample in results.saturated.items():
        row = _Rows(results, mode, results.attach_mode, "", sample.rate)
        yield row.of("saturated", "throughput_lost_ppm", [1e6 * x for x in sample.throughput_lost])
        yield row.of("saturated", "cpu_lost_ppm", [1e6 * x for x in sample.cpu_lost])
        yield row.of("saturated", "outside_ns", [ns / per for ns in sample.places.outside_kernel])
    for way, sample in results.fixed.items():
        mode, attach_mode = ("record", way) if way == SYMBOL else (way, results.attach_mode)
        row = _Rows(results, mode, attach_mode, "", sample.rate)
        for name, values in _figures(sample).items():
            yield row.of("fixed", name, values)
    for (mode, attach_mode, options), measured in results.inside.items():
        row = _Rows(results, mode, attach_mode, options, measured.rate)
        yield row.of("inside", "programs_ns", [measured.programs_ns / per])
        yield row.of("inside", "empty_ns", [measured.empty_ns / per])
        yield row.of("inside", "tracer_ns", [ns / per for ns in measured.tracer_ns])
        yield row.of("inside", "reader_ns", [ns / per for ns in measured.reader_ns])


def _figures(sample: Samples) -> Mapping[str, Sequence[float]]:
    """Figures at the fixed rate: added CPU time, untraced CPU time, and where it is spent."""
    places = sample.places
    return {
        **{f"{name}_ns": values for name, values in places.added.items()},
        **{f"untraced_{name}_ns": values for name, values in places.untraced.items()},
        "tracer_ns": places.tracer,
        "reader_ns": places.reader,
        "outside_ns": places.outside_kernel,
        "tracer_runs_per_s": places.tracer_runs_per_s,
        "reader_runs_per_s": places.reader_runs_per_s,
        "busy_ppm": [1e6 * share for share in places.busy],
    }


class _Rows:
    """Rows that have everything but the figure in common."""

    def __init__(
        self, results: Found, mode: str, attach_mode: str, options: str, rate: Sequence[float]
    ) -> None:
        self._found, self._mode, self._attach_mode, self._options = (
            results,
            mode,
            attach_mode,
            options,
        )
        self._rate = round(median(rate) * results.workload.statements) if rate else 0

    def of(self, load: str, figure: str, values: Sequence[float]) -> MeasuredOverhead:
        facts, workload = machine(), self._found.workload
        per = workload.statements if load == "fixed" and figure.endswith("_ns") else 1
        estimate = median_interval([value / per for value in values])
        return MeasuredOverhead(
            server=workload.server,
            version=self._found.version,
            workload=workload.name,
            mode={"live": "top"}.get(self._mode, self._mode),
            attach_mode=self._attach_mode,
            options=self._options,
            load=load,
            figure=figure,
            median=round(estimate.median),
            low=round(estimate.low),
            high=round(estimate.high),
            rounds=estimate.count,
            queries_per_s=self._rate,
            load_average=f"{facts['load_average'][0]:.2f}",
            cpu=f"{facts['cpus']} x {facts['cpu']}",
            kernel=platform.release(),
            date=datetime.date.today().isoformat(),
            tree=_revision(),
        )


def _revision() -> str:
    """The commit that was measured, `+` if files differ from it."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty=+", "--exclude=*"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"
