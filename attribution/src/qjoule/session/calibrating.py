# SPDX-License-Identifier: Apache-2.0
"""Runs a calibration: the phases one after the other, while everything is recorded.

On a machine in use the loads are short. They end at once if the load of others rises, or if the
power that the recording measures exceeds a limit.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa

from qjoule.errors import QjouleError
from qjoule.machine.load import (
    BusyWatch,
    Guard,
    Limits,
    LoadRose,
    Reading,
    Running,
    load_reader,
    running,
)
from qjoule.machine.steps import ENOUGH, IDLE, QUICK_SETTLE_S, Step, Use
from qjoule.model.fit.known_loads import Phase
from qjoule.servers.decoding import fingerprint
from qjoule.session.tracing import Tracing
from qjoule.stream.context import StreamContext
from qjoule.stream.record import record
from qjoule.trace.meta import Meta
from qjoule.trace.writer import TraceWriter

#: Domains that are watched: the packages, or the platform if only that is measured.
_DOMAINS = ("package", "psys")
#: Time for a core's clock and the fans to settle; no phase includes it.
SETTLE_S = 0.15
_ANNOUNCE_SECONDS = 30.0
_POLL_S = 0.1


class _Counter(NamedTuple):
    package: int
    domain: str
    die: int | None


@dataclass
class PowerWatch:
    """Mean power of the last readings that were written to disk, about every two seconds.

    `start_w`: mean power until `begun` was called.
    """

    last_w: float | None = None
    start_w: float | None = None
    _begun: bool = False
    _before: dict[_Counter, tuple[int, int]] = field(default_factory=dict)
    _sum: list[float] = field(default_factory=list)

    def begun(self) -> None:
        """Marks the begin of our own load."""
        self._begun = True

    def above_w(self) -> float | None:
        """Returns by how much the power exceeds that of the start; None: not known yet."""
        if self.last_w is None or self.start_w is None:
            return None
        return self.last_w - self.start_w

    def see(self, tables: Mapping[str, pa.Table]) -> None:
        """Adds the energy of a batch of rows that is written to disk."""
        table = tables.get("energy")
        if table is None or not table.num_rows:
            return
        watts = dict[str, float]()
        for key, rows in _by_counter(table.to_pylist()).items():
            power = self._power(rows, key)
            if power is not None:
                watts[key.domain] = watts.get(key.domain, 0.0) + power
        drawn_w = next((watts[name] for name in _DOMAINS if name in watts), None)
        if drawn_w is None:
            return
        self.last_w = drawn_w
        if not self._begun:
            self._sum.append(drawn_w)
            self.start_w = sum(self._sum) / len(self._sum)

    def _power(self, rows: list[dict[str, Any]], key: _Counter) -> float | None:
        """Returns the mean power in W since the reading before these."""
        begin_ns, before = self._before.get(key, (rows[0]["t_ns"], rows[0]["raw"]))
        joules = 0.0
        for row in rows:
            counts = row["raw"] - before
            if counts < 0 and row["range"]:
                counts += row["range"]
            joules += max(counts, 0) * row["unit_j"]
            before = row["raw"]
        self._before[key] = (rows[-1]["t_ns"], before)
        length_s = (rows[-1]["t_ns"] - begin_ns) * 1e-9
        return joules / length_s if length_s > 0 else None


def _by_counter(rows: list[dict[str, Any]]) -> dict[_Counter, list[dict[str, Any]]]:
    by_counter = dict[_Counter, list[dict[str, Any]]]()
    for row in rows:
        if row["raw"] is not None and row["domain"] in _DOMAINS:
            key = _Counter(row["package"], row["domain"], row["die"])
            by_counter.setdefault(key, []).append(row)
    return by_counter


class _ObservedWriter(TraceWriter):
    """A writer that also passes its rows to a watch."""

    def __init__(self, directory: str, power: PowerWatch) -> None:
        self._power = power
        super().__init__(directory)

    def write(self, tables: Mapping[str, pa.Table]) -> None:
        self._power.see(tables)
        super().write(tables)


@dataclass
class Recording:
    """A thread that writes a trace to the working directory."""

    of: Tracing
    power: PowerWatch = field(default_factory=PowerWatch)
    meta: Meta = field(init=False)
    error: QjouleError | None = None
    _announced: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.meta = self.of.meta
        self._thread = threading.Thread(target=self._run, name="qjoule-record", daemon=True)
        self._thread.start()

    def announced(self) -> Meta:
        """Returns the tracer's announcement of the machine. Raises `QjouleError` if the tracer
        fails before that."""
        self._announced.wait(_ANNOUNCE_SECONDS)
        self.check()
        return self.meta

    def check(self) -> None:
        """Raises `QjouleError` if the recording has failed."""
        if self.error is not None:
            raise self.error

    def finish(self) -> None:
        """Ends the trace and waits until it is on disk."""
        self.of.tracer.stop()
        self._thread.join()

    def _run(self) -> None:
        try:
            self.meta = record(
                self.of.stream,
                _ObservedWriter(".", self.power),
                StreamContext(fingerprint, self.meta),
                annotate=self._announce,
            )
            if self.meta.stopped:
                self.error = QjouleError(f"the recording was cut off: {self.meta.stopped}")
        except QjouleError as error:
            self.error = error
        except Exception as error:  # would get lost in this thread: `check` raises it
            self.error = QjouleError(f"the recording failed: {error!r}")
        finally:
            self._announced.set()

    def _announce(self, meta: Meta) -> Meta:
        if meta.begin_ns is not None:  # earlier meta is only our own
            self.meta = meta
            self._announced.set()
        return meta


@contextmanager
def recording(of: Tracing) -> Iterator[Recording]:
    """Records into the working directory while the block runs, and a little longer if it fails."""
    run = Recording(of)
    try:
        yield run
    finally:
        run.finish()


@dataclass(frozen=True)
class Done:
    """A phase that was run. `busy_cpus`: number of busy CPUs, with those of this program."""

    step: Step
    phase: Phase
    busy_cpus: float
    exceeds_cache: bool


def run_steps(
    steps: Sequence[Step], check: Callable[[], None], after: Callable[[Done], None]
) -> list[Done]:
    """Runs the steps. `check` is called repeatedly, `after` after each; either may raise."""
    done = []
    for step in steps:
        with running(step) as load:
            done.append(_measured(step, load, SETTLE_S, time.sleep))
        check()
        after(done[-1])
    return done


def _measured(step: Step, load: Running, settle_s: float, wait: Callable[[float], None]) -> Done:
    wait(settle_s)
    watch, t0_ns = BusyWatch(), time.monotonic_ns()
    wait(step.seconds)
    t1_ns, busy = time.monotonic_ns(), watch.cpus()
    phase = Phase(step.kernel, t0_ns, t1_ns, step.threads, step.smt)
    return Done(step, phase, busy, load.exceeds_cache)


@dataclass(frozen=True)
class Bounds:
    """Limits that end a run early. `most_w`: most power of the load; None: no limit."""

    limits: Limits
    most_w: float | None = None


class QuickRun:
    """Runs the steps of one calibration. `check` raises if the recording failed."""

    def __init__(
        self,
        bounds: Bounds,
        power: PowerWatch,
        check: Callable[[], None],
        read: Callable[[], Reading] | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._bounds, self._power, self._check, self._sleep = bounds, power, check, sleep
        self._pids: tuple[int, ...] = ()
        self._guard = Guard(bounds.limits, read or load_reader(lambda: self._pids))

    def begin(self, seconds: float) -> Use:
        """Measures for `seconds` how busy the machine is without our load."""
        use = self._guard.begin(seconds, self._sleep)
        self._check()
        self._power.begun()
        return use

    def run(self, steps: Sequence[Step], after: Callable[[Done], None]) -> tuple[list[Done], str]:
        """Runs the steps; returns those that ran to their end, and why the others did not (empty:
        all did).

        Raises `LoadRose` if too few ran for a calibration.
        """
        done: list[Done] = []
        try:
            for step in steps:
                done.append(self._run_step(step))
                after(done[-1])
        except LoadRose as error:
            planned = sum(step.kernel != IDLE for step in steps)
            ran = sum(phase.step.kernel != IDLE for phase in done)
            words = f"stopped after {ran} of {planned} loads: {error}"
            if ran < ENOUGH * planned:
                raise LoadRose(words) from None
            return done, words
        return done, ""

    def _run_step(self, step: Step) -> Done:
        with running(step) as load:
            self._pids = load.pids
            try:
                return _measured(step, load, QUICK_SETTLE_S, self._wait)
            finally:
                self._pids = ()

    def _wait(self, seconds: float) -> None:
        """Sleeps in short pieces, and checks the load after each. Raises `LoadRose`."""
        while seconds > 0:
            self._sleep(min(seconds, _POLL_S))
            seconds -= _POLL_S
            self._check()
            self._guard.check()
            above_w = self._power.above_w()
            if self._bounds.most_w is not None and (above_w or 0.0) > self._bounds.most_w:
                raise LoadRose(
                    f"{above_w:.1f} W more than at the start are drawn, "
                    f"and {self._bounds.most_w:g} W are allowed"
                )
