# SPDX-License-Identifier: Apache-2.0
"""What a capture kept of untraced servers, of applications and of a meter, for its conversion."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from qjoule.spool.names import CaptureEvent, Counted, Metered, MeterReading, Untraced
from qjoule.stream.context import untraced_cpu_ns
from qjoule.tags.kept_calls import KeptCall, KeptCalls
from qjoule.tags.reported_calls import Call
from qjoule.trace.columns import Array
from qjoule.trace.meta import Change, Meta, MeterInfo, Server


class CapturedInputs(KeptCalls):
    """Answers `qjoule.stream.ingest` in place of the live sources: all is known from the start.

    The CPU time of untraced servers is counted here, from the segments.
    """

    def __init__(self, meta: Meta, lines: Iterable[CaptureEvent]) -> None:
        calls: list[KeptCall] = []
        counted = Counted()
        self._readings: list[MeterReading] = []
        self._unseen: list[Call] = []
        self._untraced: dict[int, str] = {}
        for line in lines:
            match line:
                case KeptCall():
                    calls.append(line)
                case Call():
                    self._unseen.append(line)
                case Untraced():
                    self._untraced |= dict.fromkeys(line.tgids, line.process)
                case Metered():
                    self._readings += line.rows
                case Counted():
                    counted = line
        super().__init__(calls)
        self._changes = meta.changes
        self._cpu_ns: Counter[str] = Counter()
        self.info: MeterInfo | None = meta.meter
        self.lost, self.unverified = counted.lost_calls, counted.unverified_calls
        self.bad = counted.bad_meter_lines
        self.learnt: list[Callable[[Server], object]] = []
        self.news = 0

    # ---- untraced servers: qjoule.stream.ingest.Watching -----------------------------------------

    @property
    def changes(self) -> tuple[Change, ...]:
        return tuple(
            replace(one, cpu_ns=self._cpu_ns[one.process]) if one.process else one
            for one in self._changes
        )

    def process_of(self, tgid: int) -> str:
        return self._untraced.get(tgid, "")

    untraced_now = process_of

    def tasks(self, records: Array) -> None:
        """They were looked at when they came."""

    sessions = tasks

    def ran(self, segments: Array) -> None:
        if not self._untraced:
            return
        for tgid, cpu_ns in untraced_cpu_ns(segments, self._untraced):
            self._cpu_ns[self._untraced[tgid]] += cpu_ns

    def advance(self, t_ns: int, *, everything: bool = False) -> set[int]:
        del t_ns, everything
        return set()

    # ---- applications: qjoule.stream.client_reports.CallReports ----------------------------------

    def reported(self, opaque: Mapping[str, int], *, everything: bool = False) -> list[Call]:
        """All calls to servers whose queries no probe sees, at once."""
        del opaque, everything
        unseen, self._unseen = self._unseen, []
        return unseen

    # ---- meter: qjoule.stream.context.Metering --------------------------------------------------

    def readings(self) -> list[MeterReading]:
        """All readings, at once."""
        readings, self._readings = self._readings, []
        return readings
