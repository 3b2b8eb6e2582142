# SPDX-License-Identifier: Apache-2.0
"""A load generator that keeps running while modes change, and the results of its intervals."""

from __future__ import annotations

import queue
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.overhead.cpu import Clocks, Watched, family, read_clocks

from qjoule.errors import QjouleError
from qjoule_studies.servers.process import with_parent

#: sysbench's `--report-interval=1`, and pgbench's `--progress=1`.
REPORT = re.compile(rb"^(?:\[ \d+s \] .*?tps: |progress: [\d.]+ s, )([\d.]+)")
_PATIENCE_S = 30.0

#: Parses a line that came the given number of seconds after the last report: returns the
#: transactions since then if it is a report. Raises `QjouleError` if it shows that the load is not
#: as intended.
Reports = Callable[[bytes, float], float | None]


def read_rate(line: bytes, seconds: float) -> float | None:
    """Parses lines of sysbench and pgbench."""
    match = REPORT.match(line)
    return float(match[1]) * seconds if match else None


@dataclass(frozen=True)
class Interval:
    """About one second of load."""

    seconds: float
    transactions: float
    spent: Clocks  #: CPU time in this interval

    @property
    def rate(self) -> float:
        return self.transactions / self.seconds

    @property
    def load_ns(self) -> int:
        return self.spent.server + self.spent.client

    @property
    def tracing_ns(self) -> int:
        return self.spent.tracer + self.spent.reader

    @property
    def cpu_per_transaction_ns(self) -> float:
        return (self.load_ns + self.tracing_ns) / max(self.transactions, 1.0)


class Generator:
    """Reads the generator's reports, and the CPU clocks at the time of each report."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        server_pids: Callable[[], Sequence[int]],
        log: Path,
        reports: Reports = read_rate,
    ) -> None:
        self.tracing = Watched()  #: processes of the current mode
        self._process, self._server_pids, self._log = process, server_pids, log
        self._reports = reports
        self._intervals: queue.Queue[Interval | QjouleError] = queue.Queue()
        threading.Thread(target=self._read, name="intervals", daemon=True).start()

    def skip(self) -> None:
        """Drops the intervals until now, and the one in which something changed."""
        while not self._intervals.empty():
            self._next()
        self._next()

    def take(self, count: int) -> list[Interval]:
        return [self._next() for _ in range(count)]

    def _next(self) -> Interval:
        try:
            interval = self._intervals.get(timeout=_PATIENCE_S)
        except queue.Empty:
            lines = self._log.read_text(errors="replace").strip().splitlines()
            last = lines[-1] if lines else "it is silent"
            raise QjouleError(f"the load generator stopped reporting: {last}") from None
        if isinstance(interval, QjouleError):
            raise interval
        return interval

    def _read(self) -> None:
        try:
            self._read_reports()
        except QjouleError as error:
            self._intervals.put(error)

    def _read_reports(self) -> None:
        assert self._process.stdout is not None
        before_s, tracing, before = 0.0, self.tracing, Clocks()
        for line in self._process.stdout:
            now_s = time.monotonic()
            seconds = now_s - before_s
            transactions = self._reports(line, seconds)
            if transactions is None:
                continue
            client = family(self._process.pid)
            now = read_clocks(self._server_pids(), client, tracing)
            if before_s:
                self._intervals.put(Interval(seconds, transactions, now - before))
            if self.tracing is not tracing:  # the interval that begins now will be skipped
                tracing = self.tracing
                now = read_clocks(self._server_pids(), client, tracing)
            before_s, before = now_s, now


@contextmanager
def generating(
    command: Sequence[str],
    server_pids: Callable[[], Sequence[int]],
    log: Path,
    reports: Reports = read_rate,
) -> Iterator[Generator]:
    """Runs a load generator during the block."""
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [*with_parent(), *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if "pgbench" in command[0] else errors,
            start_new_session=True,  # Ctrl-C is handled by us: we end the generator in order
        )
    try:
        yield Generator(process, server_pids, log, reports)
    finally:
        process.kill()
        process.wait()
