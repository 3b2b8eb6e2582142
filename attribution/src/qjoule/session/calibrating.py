# SPDX-License-Identifier: Apache-2.0
"""A calibration run: runs the phases one after the other while everything is recorded."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa

from qjoule.errors import QjouleError
from qjoule.machine.load import BusyWatch, running
from qjoule.machine.steps import Step
from qjoule.model.fit.known_loads import Phase
from qjoule.servers.decoding import fingerprint
from qjoule.session.power_watch import PowerWatch
from qjoule.session.tracing import Tracing
from qjoule.stream.context import StreamContext
from qjoule.stream.recording import record
from qjoule.trace.meta import Meta
from qjoule.trace.writer import TraceWriter

#: Time for a core's clock and the fans to settle. It belongs to no phase.
SETTLE_S = 0.15
_ANNOUNCE_SECONDS = 30.0


class _Watched(TraceWriter):
    """Shows a watch what it writes."""

    def __init__(self, directory: str, power: PowerWatch) -> None:
        self._power = power
        super().__init__(directory)

    def write(self, tables: Mapping[str, pa.Table]) -> None:
        self._power.see(tables)
        super().write(tables)


@dataclass
class Recording:
    """A trace being written to the working directory by a thread of its own."""

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
        """The tracer's announcement of the machine. Raises `QjouleError` if the tracer fails before
        it.
        """
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
                _Watched(".", self.power),
                StreamContext(fingerprint, self.meta),
                annotate=self._announce,
            )
            if self.meta.stopped:
                self.error = QjouleError(f"the recording was cut off: {self.meta.stopped}")
        except QjouleError as error:
            self.error = error
        except Exception as error:  # a thread's exception would get lost: `check` raises it
            self.error = QjouleError(f"the recording failed: {error!r}")
        finally:
            self._announced.set()

    def _announce(self, meta: Meta) -> Meta:
        if meta.begin_ns is not None:  # before that, the meta contains only what we put there
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
    """A phase that has been run. `busy_cpus`: how many were busy, this program's included."""

    step: Step
    phase: Phase
    busy_cpus: float
    exceeds_cache: bool


def run_steps(
    steps: Sequence[Step], check: Callable[[], None], after: Callable[[Done], None]
) -> list[Done]:
    """Runs the steps. `check` is called now and then, `after` after each; either may raise."""
    done = []
    for step in steps:
        with running(step) as load:
            time.sleep(SETTLE_S)
            watch, t0_ns = BusyWatch(), time.monotonic_ns()
            time.sleep(step.seconds)
            t1_ns, busy = time.monotonic_ns(), watch.cpus()
        check()
        phase = Phase(step.kernel, t0_ns, t1_ns, step.threads, step.smt)
        done.append(Done(step, phase, busy, load.exceeds_cache))
        after(done[-1])
    return done
