# SPDX-License-Identifier: Apache-2.0
"""Fits package power over threads, kernels and frequencies on 2 x EPYC 7502 (README.md).

Threads fill the cores of the first socket, then those of the second, then the siblings. (The source
also has runs with another placement, which its table does not name: they begin with 16 threads, and
are left out.) Each way below adds one thing that such a machine does; these are regressions beside
the engine, not the engine's own model. Every third number of threads is kept from the fit, and the
errors are of those.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np
from scipy.optimize import nnls
from studies.bench.accuracy.recording import F64, I64

from qjoule.errors import QjouleError
from qjoule.model.coefficients import DEFAULT_ALPHA
from qjoule.model.energy import Bool

PHASES = "rome-epyc-7502-phases.tsv.gz"
PACKAGE_W, CORES_W = "'AMD RAPL PCKG'", "'AMD RAPL SINGLE_CORE'"
CORES_PER_SOCKET, SOCKETS = 32, 2
CORES = SOCKETS * CORES_PER_SOCKET
CORES_PER_DIE = 8  #: they share a link to memory
FIRST_THREADS = 4  #: a series with the placement that is fitted begins with as many
#: Kernels with fewer phases were not run over all numbers of threads.
LEAST_PHASES = 100
#: Watts that the two packages can draw together: 180 W is the rated power of one.
LEAST_W, MOST_W = 20.0, 600.0
#: Mean errors to reach, at one frequency and over all.
AT_ONE, OVER_ALL = 0.015, 0.03


class NotTheSource(QjouleError):
    """The file is not the source's table."""


@dataclass(frozen=True)
class Phases:
    """n phases: kernel, threads, frequency in GHz, limit of C-states, watts of both packages, and
    watts of all cores together by counters of single cores.

    `left_out`: phases of another placement, and phases whose counter stood still or jumped.
    """

    kernel: I64
    threads: F64
    ghz: F64
    limit: I64
    package_w: F64
    cores_w: F64
    left_out: tuple[int, int] = (0, 0)

    def take(self, rows: Bool) -> Phases:
        columns = {
            f.name: getattr(self, f.name)[rows] for f in fields(self) if f.name != "left_out"
        }
        return Phases(**columns, left_out=self.left_out)

    @property
    def cores(self) -> F64:
        return np.minimum(self.threads, CORES)

    @property
    def siblings(self) -> F64:
        return self.threads - self.cores

    @property
    def sockets(self) -> F64:
        """Sockets with a thread."""
        return np.ceil(self.cores / CORES_PER_SOCKET)

    @property
    def dies(self) -> F64:
        """Dies with a thread."""
        return np.ceil(self.cores / CORES_PER_DIE)

    @property
    def held_out(self) -> Bool:
        is_held_out: Bool = self.threads.astype(np.int64) // 4 % 3 == 1
        return is_held_out


def read(directory: Path) -> Phases:
    """Raises `NotTheSource` if the table is missing or has other columns."""
    path = directory / PHASES
    try:
        with gzip.open(path, "rt", newline="") as file:
            rows = list(csv.DictReader(file, delimiter="\t"))
        names = ("experiment", "thread_count", "frequency", "cstate", PACKAGE_W, CORES_W, "begin")
        columns = [np.array([float(row[name]) for row in rows]) for name in names]
    except (OSError, EOFError, KeyError, TypeError, ValueError) as error:
        raise NotTheSource(f"{path}: {error!r}") from error
    order = np.lexsort((columns[-1], *columns[:1], *columns[2:4]))
    kernel, threads, hz, limit, *watts = (column[order] for column in columns[:-1])
    package_w, cores_w = watts
    phases = Phases(
        kernel.astype(np.int64), threads, hz * 1e-9, limit.astype(np.int64), package_w, cores_w
    )
    numbers, count = np.unique(phases.kernel, return_counts=True)
    placed = _placed(phases) & np.isin(phases.kernel, numbers[count >= LEAST_PHASES])
    sound = (phases.package_w >= LEAST_W) & (phases.package_w <= MOST_W)
    left_out = (int((~placed).sum()), int((placed & ~sound).sum()))
    return replace(phases.take(placed & sound), left_out=left_out)


def _placed(phases: Phases) -> Bool:
    """Whether each phase is of a series with the placement that is fitted. Phases are in order of
    kernel, frequency and limit, and of time in these; in a series the threads become more."""
    point = np.stack([phases.kernel, phases.ghz, phases.limit])
    begins = np.append(True, np.any(np.diff(point) != 0, axis=0) | (np.diff(phases.threads) <= 0))
    placed: Bool = (phases.threads[begins] == FIRST_THREADS)[np.cumsum(begins) - 1]
    return placed


Columns = Callable[[Phases], F64]


def _of_kernels(phases: Phases, kernels: I64, *amounts: F64) -> list[F64]:
    """A column for each kernel and amount."""
    return [
        np.where(phases.kernel == kernel, amount, 0.0) for kernel in kernels for amount in amounts
    ]


def _ways(kernels: I64) -> dict[str, Columns]:
    """Features of one operating point."""

    def per_socket(phases: Phases) -> F64:
        busy = phases.cores + DEFAULT_ALPHA * phases.siblings
        first = [np.ones(len(busy)), phases.sockets]
        return np.column_stack([*first, *_of_kernels(phases, kernels, busy)])

    def once(phases: Phases) -> F64:
        busy = phases.cores + DEFAULT_ALPHA * phases.siblings
        return np.column_stack([np.ones(len(busy)), *_of_kernels(phases, kernels, busy)])

    def by_kernel(phases: Phases) -> F64:
        columns = _of_kernels(phases, kernels, phases.cores, phases.siblings)
        return np.column_stack([np.ones(len(phases.threads)), *columns])

    def by_die(phases: Phases) -> F64:
        columns = _of_kernels(phases, kernels, phases.cores, phases.siblings, phases.dies)
        return np.column_stack([np.ones(len(phases.threads)), *columns])

    return {
        f"shared once per socket, siblings {DEFAULT_ALPHA:.2f}": per_socket,
        f"shared once per machine, siblings {DEFAULT_ALPHA:.2f}": once,
        "shared once per machine, siblings by kernel": by_kernel,
        "the same, and power of a die by kernel": by_die,
    }


def _everywhere(columns: Columns, levels: F64, limits: I64) -> Columns:
    """Features of all operating points: what is shared has a level at each; what a thread draws
    grows with f and with f**3, as voltage does."""

    def features(phases: Phases) -> F64:
        own = columns(phases)[:, 1:]
        points = [
            ((phases.ghz == ghz) & (phases.limit == limit)).astype(np.float64)
            for ghz in levels
            for limit in limits
        ]
        f = phases.ghz[:, None]
        return np.column_stack([*points, own * f, own * f**3])

    return features


def errors(phases: Phases, columns: Columns) -> F64:
    """|predicted / measured - 1| of the phases that are kept from the fit."""
    fitted, held_out = phases.take(~phases.held_out), phases.take(phases.held_out)
    # Relative errors count, so rows are divided by their power.
    features = columns(fitted) / fitted.package_w[:, None]
    scale = np.maximum(np.abs(features).max(axis=0), 1e-12)
    theta = nnls(features / scale, np.ones(len(fitted.threads)))[0] / scale
    errors: F64 = np.abs(columns(held_out) @ theta / held_out.package_w - 1)
    return errors


def sibling_factors(phases: Phases) -> dict[int, float]:
    """Slope of power over threads beyond the cores, over the slope before, by kernel."""
    kernels = np.unique(phases.kernel)
    features = _ways(kernels)["shared once per machine, siblings by kernel"](phases)
    theta = nnls(features, phases.package_w)[0][1:].reshape(-1, 2)
    return {int(k): float(s / max(c, 1e-9)) for k, (c, s) in zip(kernels, theta, strict=True)}


def parts_on_cores(phases: Phases) -> dict[int, float]:
    """How much of each further watt of the packages is in the counters of single cores, as cores of
    a socket become busy, by kernel."""
    filling = phases.take(phases.threads <= CORES)
    return {
        int(kernel): float(np.polyfit(rows.package_w, rows.cores_w, 1)[0])
        for kernel in np.unique(phases.kernel)
        for rows in (filling.take(filling.kernel == kernel),)
    }


def table(phases: Phases) -> Iterator[str]:
    """Errors by way, at each frequency and over all; by kernel, sibling factors and what counters
    of single cores show."""
    kernels, levels = np.unique(phases.kernel), np.unique(phases.ghz)
    limits, (placement, wrong) = np.unique(phases.limit), phases.left_out
    yield (
        f"Package power of 2 x EPYC 7502: {len(phases.threads):,} phases, {len(kernels)} kernels; "
        f"left out: {placement:,} of another placement, {wrong} whose counter stood still or jumped"
    )
    yield ""
    level_names = " | ".join(f"{ghz:.1f} GHz" for ghz in levels)
    yield f"| off on other numbers of threads, mean | {level_names} | over all |"
    yield f"|---|{'--:|' * (len(levels) + 1)}"
    for name, columns in _ways(kernels).items():
        at = [_at_one(phases.take(phases.ghz == ghz), columns, limits) for ghz in levels]
        everywhere = float(errors(phases, _everywhere(columns, levels, limits)).mean())
        yield f"| {name} | {' | '.join(f'{error:.1%}' for error in [*at, everywhere])} |"
    goals = [f"{AT_ONE:.1%}"] * len(levels) + [f"{OVER_ALL:.1%}"]
    yield f"| goal | {' | '.join(goals)} |"
    yield ""
    top = phases.take(phases.ghz == levels[-1])
    top = top.take(top.limit == limits[-1])
    yield f"sibling factor by kernel at {levels[-1]:.1f} GHz: {_by_kernel(sibling_factors(top))}"
    yield ""
    most = float((phases.cores_w / phases.package_w).max())
    yield (
        f"counters of single cores: at most {most:.0%} of the packages' power in a phase; of each "
        f"further watt, by kernel at {levels[-1]:.1f} GHz: {_by_kernel(parts_on_cores(top))}"
    )


def _by_kernel(values: Mapping[int, float]) -> str:
    return ", ".join(f"{kernel}: {value:.2f}" for kernel, value in values.items())


def _at_one(phases: Phases, columns: Columns, limits: Sequence[int] | I64) -> float:
    """Mean error at one frequency, each limit of C-states by itself."""
    by_limit = [errors(phases.take(phases.limit == limit), columns) for limit in limits]
    return float(np.concatenate(by_limit).mean())
