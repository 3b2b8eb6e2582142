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


def save(found: Found) -> None:
    """Replaces what is known of these figures."""
    save_overheads(rows(found))


def keep_only(every: Iterable[Found]) -> None:
    """Forgets all figures but these."""
    save_overheads(chain.from_iterable(map(rows, every)), alone=True)


def rows(found: Found) -> Iterator[MeasuredOverhead]:
    """One row for each figure; CPU times in ns per query."""
    per = found.workload.statements
    for mode, one in found.saturated.items():
        row = _Rows(found, mode, found.attach_mode, "", one.rate)
        yield row.of("saturated", "throughput_lost_ppm", [1e6 * x for x in one.throughput_lost])
        yield row.of("saturated", "cpu_lost_ppm", [1e6 * x for x in one.cpu_lost])
        yield row.of("saturated", "outside_ns", [ns / per for ns in one.places.outside_kernel])
    for way, one in found.fixed.items():
        mode, attach_mode = ("record", way) if way == SYMBOL else (way, found.attach_mode)
        row = _Rows(found, mode, attach_mode, "", one.rate)
        for name, values in _figures(one).items():
            yield row.of("fixed", name, values)
    for (mode, attach_mode, options), seen in found.inside.items():
        row = _Rows(found, mode, attach_mode, options, seen.rate)
        yield row.of("inside", "programs_ns", [seen.programs_ns / per])
        yield row.of("inside", "empty_ns", [seen.empty_ns / per])
        yield row.of("inside", "tracer_ns", [ns / per for ns in seen.tracer_ns])
        yield row.of("inside", "reader_ns", [ns / per for ns in seen.reader_ns])


def _figures(one: Samples) -> Mapping[str, Sequence[float]]:
    """At the fixed rate: what is added, what there is untraced, and who does it."""
    places = one.places
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
        self, found: Found, mode: str, attach_mode: str, options: str, rate: Sequence[float]
    ) -> None:
        self._found, self._mode, self._attach_mode, self._options = (
            found,
            mode,
            attach_mode,
            options,
        )
        self._rate = round(median(rate) * found.workload.statements) if rate else 0

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
    words = ["git", "-C", str(ROOT), "describe", "--always", "--dirty=+", "--exclude=*"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"
