# SPDX-License-Identifier: Apache-2.0
"""Perf's records as the blocks of a tracer: what `stream.record.record` writes traces from."""

from __future__ import annotations

import io
import re
from collections.abc import Generator, Iterator
from dataclasses import dataclass

import numpy as np

from qjoule.api import QjouleError
from qjoule.api.traces import (
    CONTRACT_VERSION,
    CPU,
    DOMAIN,
    DOMAIN_KINDS,
    END,
    ENERGY,
    HELLO,
    LOSS_COUNT,
    TRACER_CPU,
    WHOLE_PACKAGE,
    Array,
    Block,
    Cpu,
    DomainInfo,
    Frame,
    Grade,
    Loss,
    Mode,
    Stream,
)
from qjoule_studies.import_perf.cpus import Cpus
from qjoule_studies.import_perf.energy import (
    HALF_WIDTH_NS,
    Counted,
    Estimated,
    EstimatedCounters,
    Reading,
)
from qjoule_studies.import_perf.header import Header
from qjoule_studies.import_perf.lines import Record, Recording, damaged
from qjoule_studies.import_perf.lives import BadArguments, Shapes, parse_arguments
from qjoule_studies.import_perf.queries import Queries
from qjoule_studies.import_perf.scan import PROBE, Scan
from qjoule_studies.import_perf.tasks import Imported, Tasks, parse_family, parse_lost

#: As the kernel's own format has it. Names of threads may hold any bytes, but only 15: too few for
#: what follows them here.
_KERNELS = re.compile(
    rb"prev_comm=.{0,16}? prev_pid=(\d{1,7}) prev_prio=-?\d{1,9} prev_state=\S{1,16} ==> "
    rb"next_comm=.{0,16} next_pid=(\d{1,7}) next_prio=-?\d{1,9}\s*\Z",
    re.DOTALL,
)
#: As libtraceevent's plugin for sched_switch prints it. A name could look like this.
_PLUGINS_BEFORE = re.compile(rb":(\d{1,7}) \[-?\d{1,9}\] \S{1,16} ==> ")
_PLUGINS_AFTER = re.compile(rb".{0,16}:(\d{1,7}) \[-?\d{1,9}\]\s*\Z", re.DOTALL)


def switch_of(payload: bytes, tid: int) -> tuple[int, int] | None:
    """Numbers of the thread that was switched out, and of the one that came; None: it is none.

    `tid`: whose record it is, which was switched out; -1: it had ended.
    """
    match = _KERNELS.match(payload)
    if match:
        return int(match[1]), int(match[2])
    for before in _PLUGINS_BEFORE.finditer(payload):
        after = _PLUGINS_AFTER.match(payload, before.end())
        if after and tid in (-1, int(before[1])):
            return int(before[1]), int(after[1])
    return None


WINDOW_NS = 20_000_000
#: Perf orders records well, but not perfectly: a record late by up to this is taken in the order of
#: arrival.
_LATE_NS = 10_000_000_000


@dataclass(frozen=True)
class Sources:
    """What a trace is made from."""

    recording: Recording
    header: Header
    scan: Scan
    servers: tuple[Imported, ...]
    energy: Counted | Estimated | None


class PerfStream(Stream):
    """Iterates once. Raises `QjouleError` naming the line that cannot be understood."""

    def __init__(self, sources: Sources) -> None:
        super().__init__(io.BytesIO())
        self._from = sources
        scan = sources.scan
        self._begin_ns, self._end_ns = scan.begin_ns, scan.end_ns
        self._now_ns = scan.begin_ns
        self._tasks = Tasks(sources.servers, scan.tracers, scan.begin_ns)
        cpus = {cpu.cpu: cpu.package for cpu in sources.header.cpus}
        self._cpus = Cpus(cpus, self._tasks, scan.begin_ns)
        self._shapes = Shapes()
        self.queries = Queries(sources.servers, self._shapes, self._cpus)
        self._cpu_numbers = set(cpus)
        self._lost_readings = 0
        self._lost = np.empty(0, LOSS_COUNT)
        self.late = 0  #: records out of order
        self.unread = 0  #: perf's own records that say nothing that can be read

    @property
    def domains(self) -> tuple[DomainInfo, ...]:
        energy = self._from.energy
        if isinstance(energy, Estimated):
            return energy.domains(sorted({cpu.package for cpu in self._from.header.cpus}))
        return energy.domains if energy is not None else ()

    def __iter__(self) -> Iterator[Frame]:
        yield self._hello()
        yield Frame(Block.CPU, 0, _cpu_records(self._from.header.cpus))
        if self.domains:
            yield Frame(Block.DOMAIN, 0, _domain_records(self.domains))
        readings = self._readings()
        next(readings)
        due_ns = self._begin_ns + WINDOW_NS
        yield from self._energy(readings.send(self._begin_ns))
        for record in self._from.recording.records():
            if record.t_ns > self._end_ns:
                break
            while record.t_ns >= due_ns:
                yield from self._window(due_ns, readings)
                due_ns += WINDOW_NS
            self._take(record)
        while due_ns < self._end_ns:
            yield from self._window(due_ns, readings)
            due_ns += WINDOW_NS
        self._cpus.finish(self._end_ns)
        self.queries.finish(self._end_ns)
        yield from self._window(self._end_ns, readings)
        yield Frame(Block.END, self._end_ns, np.array([(self._end_ns, 0, 0)], END))
        self.complete, self.stop_errno = True, 0

    # ---- records --------------------------------------------------------------------------------

    def _take(self, record: Record) -> None:
        event = record.event
        if 0 < record.t_ns < self._now_ns:
            if self._now_ns - record.t_ns > _LATE_NS:
                raise self._wrong(record, "its time lies far before that of the line before")
            self.late += record.t_ns >= self._begin_ns
            record = record._replace(t_ns=self._now_ns)
        self._now_ns = max(self._now_ns, record.t_ns)
        if record.t_ns and record.cpu not in self._cpu_numbers:
            raise self._wrong(record, f"CPU {record.cpu} is none of those in its header")
        if event == b"sched:sched_switch":
            before, after = self._switch(record)
            self._cpus.switch(record.cpu, record.t_ns, before, record.pid, after)
        elif event.startswith(b"qjoule"):
            self._probe(record)
        elif event == b"LOST":
            count = parse_lost(record) or 1
            self._cpus.lose(record.cpu, record.t_ns, count, record.tid, record.pid)
        elif event in (b"FORK", b"COMM", b"EXIT"):
            self._task(record)

    def _switch(self, record: Record) -> tuple[int, int]:
        switch = switch_of(record.payload, record.tid)
        if switch is None:
            raise self._wrong(record, "this is no context switch")
        return switch

    def _task(self, record: Record) -> None:
        if record.t_ns:
            self._cpus.saw(record.cpu, record.t_ns, record.tid, record.pid)
        if not self._tasks.take(record):
            self.unread += 1
            return
        if record.event == b"EXIT" and (of := parse_family(record)):
            self.queries.exited(of.tid, record.t_ns)

    def _probe(self, record: Record) -> None:
        match = PROBE.match(record.event)
        if match is None or record.tid <= 0:
            return
        self._cpus.saw(record.cpu, record.t_ns, record.tid, record.pid)
        task = self._tasks.of(record.tid, record.pid)
        if not task.server or record.t_ns < self._begin_ns:
            return  # a process of another server's file, which is not asked for
        of = (record.t_ns, record.cpu, record.tid, record.pid)
        try:
            arguments = parse_arguments(record.payload)
            self.queries.take(match[1], task.server, of, arguments)
        except BadArguments as error:
            raise self._wrong(record, str(error)) from None

    def _wrong(self, record: Record, reason: str) -> QjouleError:
        return damaged(self._from.recording.path, record.line, reason)

    # ---- blocks ---------------------------------------------------------------------------------

    def _hello(self) -> Frame:
        energy = self._from.energy
        source, grade, reason = (
            energy.source if energy else ("none", Grade.NONE, "no energy was imported")
        )
        offset_ns = self._from.header.realtime_offset_ns or 0
        row = (
            *(CONTRACT_VERSION, Mode.RECORD, self._begin_ns),
            *(max(self._begin_ns + offset_ns, 0), WINDOW_NS),
            *(len(self._from.header.cpus), 0, len(self.domains), grade),
            *(source.encode()[:32], reason.encode()[:192]),
        )
        return Frame(Block.HELLO, self._begin_ns, np.array([row], HELLO))

    def _window(self, t_ns: int, readings: Generator[list[Reading], int, None]) -> Iterator[Frame]:
        """The blocks of everything known so far."""
        sent_ns = self._cpus.count_busy_until(t_ns)
        yield Frame(Block.TASK, t_ns, self._tasks.take_records())
        yield from self._shapes.take_frames()
        yield Frame(Block.SEGMENT, t_ns, self._cpus.take_segments())
        yield Frame(Block.QUERY, t_ns, self.queries.take_records())
        yield Frame(Block.LOSS, t_ns, self._cpus.take_losses())
        yield Frame(Block.LOSS, t_ns, self.queries.take_losses(t_ns))
        yield from self._energy(readings.send(t_ns))
        yield Frame(Block.FLUSH, sent_ns, np.empty(0, np.uint8))

    def _energy(self, readings: list[Reading]) -> Iterator[Frame]:
        if not readings:
            return
        yield Frame(Block.ENERGY, readings[-1].t_ns, self._energy_records(readings))
        failed = sum(1 for reading in readings if reading.status)
        if failed:
            self._lost_readings += failed
            row = (readings[-1].t_ns, self._lost_readings, 0, TRACER_CPU, Loss.ENERGY)
            yield Frame(Block.LOSS, readings[-1].t_ns, np.array([row], LOSS_COUNT))

    def _energy_records(self, readings: list[Reading]) -> Array:
        domains = self.domains
        half_ns = HALF_WIDTH_NS if isinstance(self._from.energy, Counted) else 0
        rows = [
            (
                reading.t_ns,
                reading.raw,
                half_ns,
                reading.status,
                domains[reading.domain].package,
                reading.domain,
                0,
            )
            for reading in readings
        ]
        return np.array(rows, ENERGY)

    def _readings(self) -> Generator[list[Reading], int, None]:
        """Sent a time, yields the readings up to then. The first `next` only starts it."""
        energy = self._from.energy
        t_ns = yield []
        if isinstance(energy, Counted):
            waiting: Reading | None = None
            source = energy.readings()
            while True:
                due: list[Reading] = []
                waiting = waiting or next(source, None)
                while waiting is not None and waiting.t_ns <= t_ns:
                    if waiting.t_ns >= self._begin_ns:
                        due.append(waiting)
                    waiting = next(source, None)
                t_ns = yield due
        cpus_of: dict[int, int] = {}
        for cpu in self._from.header.cpus:
            cpus_of[cpu.package] = cpus_of.get(cpu.package, 0) + 1
        ordered = dict(sorted(cpus_of.items()))
        counters = EstimatedCounters(energy, ordered, self._begin_ns) if energy else None
        while True:
            read = (
                counters.read(t_ns, self._cpus.busy_ns, self._cpus.unknown_ns) if counters else ()
            )
            t_ns = yield list(read)


def _cpu_records(cpus: tuple[Cpu, ...]) -> Array:
    return np.array([(cpu.cpu, cpu.package, cpu.core, cpu.sibling) for cpu in cpus], CPU)


def _domain_records(domains: tuple[DomainInfo, ...]) -> Array:
    nan = float("nan")
    rows = [
        (
            *(number, domain.package, domain.range or 0, domain.unit_j),
            *(nan if domain.idle_w is None else domain.idle_w, domain.period_ns or 0),
            *(DOMAIN_KINDS.index(domain.kind or "unknown"), 0),
            *(WHOLE_PACKAGE if domain.die is None else domain.die, domain.name.encode()),
        )
        for number, domain in enumerate(domains)
    ]
    return np.array(rows, DOMAIN)
