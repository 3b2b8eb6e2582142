# SPDX-License-Identifier: Apache-2.0
"""The experiment: rest, then rounds of A alone, B alone and both, each recorded separately.

Each run is a separate trace, so the attribution of the joint run cannot learn from the solo runs.
The order of the three changes from round to round, so that a drift of the machine (it warms up)
does not favour one of them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from qjoule.api import QjouleError
from qjoule.api.model import Attribution
from qjoule.api.servers import CpuInfo, read_cpu_info
from qjoule.api.traces import Trace
from qjoule_studies.physical import load
from qjoule_studies.physical.judgement import Round
from qjoule_studies.physical.load import Query, Run
from qjoule_studies.physical.recording import mean_power_w, recording, round_of
from qjoule_studies.servers.process import server_directory
from qjoule_studies.workload import Target

#: Grades of a counter that is measured, or simulated by a test. Anything else is a model, and a
#: model of time and load cannot validate another one.
TESTABLE_GRADES = ("measured", "simulated")
NOTHING_TO_MEASURE = "cannot test: this needs an energy counter that measures (RAPL)"
_REST_S = 2.0
_LEAST_CORES = 2
_LEAST_TABLE_BYTES = 64 << 20
_MOST_TABLE_BYTES = 1 << 30
_CACHES = "sys/devices/system/cpu/cpu0/cache"


@dataclass(frozen=True)
class Plan:
    """Number and length of rounds, the energy source, and the calibration for the split.

    `energy` and `calibration` as in the options of `qjoule record` and `qjoule attribute`.
    """

    rounds: int
    seconds: float
    energy: str = "auto"
    calibration: str | None = None


@dataclass(frozen=True)
class Experiment:
    """What was measured. `last` is the attribution of the last joint run."""

    rounds: tuple[Round, ...]
    rest_w: float
    table_bytes: int
    cache_bytes: int | None
    last: Attribution


def table_bytes(root: Path = Path("/")) -> tuple[int, int | None]:
    """Bytes for B's table, and of the last-level cache: twice the cache, within a quarter of
    memory."""
    cache = last_cache_bytes(root)
    wanted = max(2 * (cache or 0), _LEAST_TABLE_BYTES)
    return min(wanted, _MOST_TABLE_BYTES, max(_available_bytes(root) // 4, 1 << 20)), cache


def last_cache_bytes(root: Path = Path("/")) -> int | None:
    """Size of the largest cache of CPU 0; None if the kernel does not show it."""
    sizes = []
    for file in root.glob(f"{_CACHES}/index*/size"):
        text = file.read_text().strip()
        unit = {"K": 1 << 10, "M": 1 << 20}.get(text[-1:], 1)
        if text.rstrip("KM").isdigit():
            sizes.append(int(text.rstrip("KM")) * unit)
    return max(sizes, default=None)


def one_package(info: CpuInfo) -> set[int]:
    """One CPU of each core of the package with most cores: where the loads may run.

    On two packages the joint run would wake both of them, but a solo run only one. On one core,
    both loads would share its clock. Raises `QjouleError` if there are no two such cores.
    """
    cores: dict[int, set[int]] = {}
    for cpu in info.cpus:
        cores.setdefault(cpu.package, set()).add(min(cpu.siblings))
    most = max(cores.values(), key=len, default=set())
    if len(most) < _LEAST_CORES:
        raise QjouleError("cannot test: the two loads need two cores of one package")
    return most


def pin(pid: int, cpus: set[int]) -> None:
    """Pins a server's main thread; the threads and processes that serve connections inherit it."""
    try:
        os.sched_setaffinity(pid, cpus)
    except OSError as error:
        raise QjouleError(f"the server may not run on one package: {error.strerror}") from error


def experiment(plan: Plan, say: Callable[[str], None]) -> Experiment:
    """Runs the experiment on a server of its own; `say` is called for each step.

    Raises `QjouleError` if there is no energy to measure, or if a part of it fails. Leaves no
    process and no directory behind.
    """
    size, cache = table_bytes()
    rows = size // load.ROW_BYTES
    with server_directory() as directory:
        cpus = one_package(read_cpu_info())
        with load.mariadb(size) as server:
            pin(server.pid, cpus)
            say("at rest")
            bench = _Bench(directory, server, plan, rows)
            rest_w = bench.rest_w()
            say(f"a table of {size >> 20} MiB for load B")
            load.prepare(server, size)
            rounds = []
            for number in range(plan.rounds):
                say(f"round {number + 1} of {plan.rounds}")
                measured, last = bench.round(number)
                rounds.append(measured)
    return Experiment(tuple(rounds), rest_w, size, cache, last)


@dataclass
class _Bench:
    """One server, and recordings of its work."""

    directory: Path
    server: Target
    plan: Plan
    rows: int
    _traces: int = 0

    def rest_w(self) -> float:
        """Power at rest while being recorded. Raises if there is nothing to measure."""
        path = self._path()
        with recording(path, [self.server.pid], self.plan.energy):
            start_ns = time.monotonic_ns()
            time.sleep(_REST_S)
            end_ns = time.monotonic_ns()
        trace = Trace(path)
        info = trace.meta.energy
        if info.grade not in TESTABLE_GRADES:
            raise QjouleError(
                f"{NOTHING_TO_MEASURE}: the energy here is {info.grade or 'none'} "
                f"({info.source or 'no source'})"
            )
        return mean_power_w(trace, start_ns, end_ns)

    def round(self, number: int) -> tuple[Round, Attribution]:
        """Records A alone, B alone and both, in an order that depends on the round's number."""
        plans: list[tuple[Query, ...]] = [(load.A,), (load.B,), (load.A, load.B)]
        ordered = [plans[(number + i) % 3] for i in range(3)]
        done = {queries: self._recorded(queries) for queries in ordered}
        a, b, both = (done[queries] for queries in plans)
        measured, divided = round_of(a, b, both, self.plan.calibration)
        return measured, divided.attribution

    def _recorded(self, queries: tuple[Query, ...]) -> tuple[Trace, Run]:
        path = self._path()
        with recording(path, [self.server.pid], self.plan.energy):
            run = load.run(self.server, queries, self.rows, self.plan.seconds)
        return Trace(path), run

    def _path(self) -> Path:
        self._traces += 1
        return self.directory / f"trace-{self._traces}"


def _available_bytes(root: Path) -> int:
    for line in _lines(root / "proc/meminfo"):
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) << 10
    return _LEAST_TABLE_BYTES


def _lines(path: Path) -> Iterator[str]:
    try:
        yield from path.read_text().splitlines()
    except OSError:
        return
