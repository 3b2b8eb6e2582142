# SPDX-License-Identifier: Apache-2.0
"""Uses the schedules of real servers as workloads: real segments with simulated power.

How threads interact in time is real: who runs at the same time as whom, for how long, and how often
nothing runs. Their power is drawn by seed, as in the other scenarios, so the truth is known.
"""

from __future__ import annotations

import os
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pymysql
from bench.overhead.generator import generating
from bench.overhead.workloads import WORKLOADS, command, started
from studies.bench.accuracy.recording import I64, KINDS, Case, Group
from studies.bench.accuracy.scenarios import simulate_on

from qjoule.engine import recorded
from qjoule.engine.grouped import Grouped
from qjoule.errors import QjouleError
from qjoule.model.arrays import Machine, Segments
from qjoule.model.labels import GroupLabel
from qjoule.trace.reader import Trace
from qjoule_studies.servers.prerequisites import Unavailable
from qjoule_studies.servers.process import DatabaseServer
from tracing.recording import Recorder

SCENARIO = "recorded"
#: Long compared with the sysbench point queries, and of another kind.
ANALYTIC = (
    "SELECT k % 16 AS bucket, COUNT(*), SUM(CRC32(CONCAT(c, pad))), MAX(id) FROM sbtest.sbtest1 "
    "GROUP BY bucket ORDER BY 3"
)


ANALYTIC_PAUSE_S = 0.1
#: Transactions per second, of 16 statements each: the server is idle at times, as servers are.
RATE = 300


@dataclass(frozen=True)
class Schedule:
    """Who ran when on which CPU: the input of `simulate_on`. `query` (n,) from 0, -1 none."""

    machine: Machine
    segments: Segments
    groups: tuple[Group, ...]
    query: I64
    span_ns: tuple[int, int]

    def case(self, scenario: str, seed: int) -> Case:
        """This schedule on a machine drawn by `seed`."""
        return simulate_on(
            self.machine,
            self.segments,
            self.groups,
            self.query,
            span_ns=self.span_ns,
            seed=seed,
            scenario=scenario,
        )


def schedule_of(directory: Path) -> Schedule:
    """The schedule of a trace. Raises `QjouleError` if it is not a trace or contains no query."""
    trace = Trace(directory)
    grouped = Grouped(recorded.read(trace), ("fingerprint",), counters=False)
    table = trace.table("segments")
    plain = grouped.reader.read(table)
    ids = np.nan_to_num(table.column("query").to_numpy().astype(np.float64)).astype(np.uint64)
    kinds = np.array([label.kind for label in grouped.labels])
    serving = (ids > 0) & (kinds[plain.group] == "queries")
    if not serving.any():
        raise QjouleError(f"{directory}: no segment of this trace ran for a query")
    query = np.full(len(ids), -1, np.int64)
    query[serving] = np.unique(ids[serving], return_inverse=True)[1].reshape(-1)
    machine = _machine(trace)
    rows, times = _disjoint(plain, machine, (trace.begin_ns, trace.end_ns))
    used, group = np.unique(plain.group[rows], return_inverse=True)
    segments = Segments(*times, plain.cpu[rows].astype(np.int64), group.reshape(-1))
    order = np.argsort(segments.t0_ns, kind="stable")
    return Schedule(
        machine,
        Segments(
            segments.t0_ns[order],
            segments.t1_ns[order],
            segments.cpu[order],
            segments.group[order],
        ),
        tuple(_group(grouped.labels[g]) for g in used.tolist()),
        query[rows][order],
        (trace.begin_ns, trace.end_ns),
    )


def _group(label: GroupLabel) -> Group:
    kind = label.kind if label.kind in KINDS else "other_processes"
    return Group(" ".join(value for _, value in label.keys), kind)


def _machine(trace: Trace) -> Machine:
    """CPUs with their cores, from meta.json. Raises `QjouleError` if it lists none."""
    cpus = sorted(trace.meta.cpus, key=lambda info: info.cpu)
    if not cpus:
        raise QjouleError(f"{trace.path}: the trace does not say which CPUs the machine has")
    pairs = np.array([(info.package, info.core) for info in cpus])
    core = np.unique(pairs, axis=0, return_inverse=True)[1].reshape(-1)
    return Machine(np.array([info.cpu for info in cpus]), pairs[:, 0], core)


def _disjoint(
    segments: Segments, machine: Machine, span_ns: tuple[int, int]
) -> tuple[I64, tuple[I64, I64]]:
    """Rows with time inside the span, ordered by CPU, and their times without overlaps."""
    rows = np.flatnonzero(machine.slots(segments.cpu) >= 0)
    rows = rows[np.lexsort((segments.t0_ns[rows], segments.cpu[rows]))]
    t0 = np.clip(segments.t0_ns[rows], *span_ns)
    t1 = np.clip(segments.t1_ns[rows], *span_ns)
    cpu = segments.cpu[rows]
    for number in np.unique(cpu):
        of_cpu = np.flatnonzero(cpu == number)
        latest_end = np.maximum.accumulate(t1[of_cpu])
        t0[of_cpu[1:]] = np.maximum(t0[of_cpu[1:]], latest_end[:-1])
    some = t1 > t0
    return rows[some], (t0[some], t1[some])


@contextmanager
def recorded_trace(seconds: float) -> Iterator[Path]:
    """Records a new trace of MariaDB under sysbench and an analytic query; deletes it afterwards.

    Raises `QjouleError` or `Unavailable` with the reason if it cannot be recorded here.
    """
    if os.geteuid() != 0:
        raise QjouleError("recording needs root")
    read_only = next(workload for workload in WORKLOADS if workload.name == "oltp_read_only")
    with tempfile.TemporaryDirectory(prefix="qjoule-bench-") as scratch:
        directory = Path(scratch) / "trace"
        with started("mariadb") as server:
            load_command, log = command(read_only, server, RATE), server.directory / "generator.log"
            recorder = Recorder(directory, "--energy", "none", "--pid", str(server.pid))
            try:
                # Start before the clients: the tracer sees a prepared statement's text only when it
                # is prepared.
                recorder.attached()
                with (
                    generating(load_command, lambda: server.tgids, log) as generator,
                    analytic(server),
                ):
                    generator.take(max(round(seconds), 1))
                if code := recorder.stop(signal.SIGINT):
                    raise QjouleError(f"qjoule record ended with {code}: {recorder.messages}")
            finally:
                recorder.end()
        yield directory


@contextmanager
def analytic(server: DatabaseServer) -> Iterator[None]:
    """Runs `ANALYTIC` over and over, on one connection."""
    stop = threading.Event()

    def run() -> None:
        with suppress(pymysql.Error), closing(server.connect()) as connection:
            while not stop.wait(ANALYTIC_PAUSE_S):
                cursor = connection.cursor()
                cursor.execute(ANALYTIC)
                cursor.fetchall()

    thread = threading.Thread(target=run, name="analytic", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def a_schedule(trace: Path | None, seconds: float) -> Schedule | str:
    """The schedule of `trace`, or of a new recording; or the reason why there is none."""
    try:
        if trace is not None:
            return schedule_of(trace)
        with recorded_trace(seconds) as directory:
            return schedule_of(directory)
    except (QjouleError, Unavailable, AssertionError) as error:
        return str(error)


def shortened(schedule: Schedule, seconds: float) -> Schedule:
    """The first seconds of a schedule, so that a long trace takes no longer than other cases."""
    begin_ns, end_ns = schedule.span_ns
    end_ns = min(end_ns, begin_ns + int(seconds * 1e9))
    rows = schedule.segments.t0_ns < end_ns
    segments = schedule.segments
    cut = Segments(
        segments.t0_ns[rows],
        np.minimum(segments.t1_ns[rows], end_ns),
        segments.cpu[rows],
        segments.group[rows],
    )
    return replace(schedule, segments=cut, query=schedule.query[rows], span_ns=(begin_ns, end_ns))
