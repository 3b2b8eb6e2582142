# SPDX-License-Identifier: Apache-2.0
"""Reads the blocks of a stream, for a recording, a capture or a live view.

`BlockReader` does what all of them share. It completes the trace's `Meta` from what the stream
announces before its records (the machine, its energy source and its domains), sums losses (running
sums per CPU and cause, from LOSS blocks), and passes tasks and sessions to the watch. Subclasses
have a method for each other kind of block.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from qjoule.contract import COUNTER_NAMES, TRACER_CPU, WHOLE_PACKAGE, Block, DomainKind, Grade, Loss
from qjoule.errors import QjouleError
from qjoule.stream.blocks import TIME_LIMIT_NS, Frame, Records, valid_tasks
from qjoule.stream.context import StreamContext
from qjoule.trace.columns import Array
from qjoule.trace.meta import Cpu, DomainInfo, EnergyInfo, Meta, Server
from qjoule.trace.vocabulary import CAUSES, DOMAIN_KINDS

_CPUS, _PACKAGES = 1 << 16, 1 << 16
_APPEARED = DOMAIN_KINDS[DomainKind.APPEARED]
_MOST_APPEARED = 64
_DIES = (1 << 16) - 1  #: the dataset has 16 bits for them, and the engine takes all ones as none


class Announced:
    """Takes HELLO, CPU and DOMAIN blocks. The caller may replace `meta` at any time.

    `meta` starts with what the caller knows (host, servers, ...); these blocks complete it.
    Counters that appear are announced later than all others.
    """

    def __init__(self, meta: Meta | None = None) -> None:
        self.meta = meta or Meta()
        self.domains: dict[int, DomainInfo] = {}  #: by the domain number that readings carry
        self.packages: npt.NDArray[np.int32] = np.full(_CPUS, -1, np.int32)  #: by CPU; -1 unknown
        self.invalid = 0  #: records that contradict the contract
        self.begun = False  #: a hello was taken in

    def add(self, frame: Frame) -> bool:
        """Takes in a block. Returns false if it is of another kind."""
        match frame.kind:
            case Block.HELLO:
                if not self.begun:  # each segment of a ring repeats it
                    self._hello(frame.records[0])
                self.begun = True
            case Block.CPU:
                self._cpus(frame.records)
            case Block.DOMAIN:
                self._domains(frame.records)
            case _:
                return False
        return True

    def follow(self, server: Server) -> None:
        """Adds a followed server to `meta`, in place of its former entry."""
        others = (other for other in self.meta.servers if other.id != server.id)
        servers = sorted((*others, server), key=lambda other: other.id)
        self.meta = replace(self.meta, servers=tuple(servers))

    def _hello(self, hello: Any) -> None:
        t_ns = int(hello["t_ns"])
        grade = int(hello["grade"])
        counters = int(hello["counters"])
        self.meta = replace(
            self.meta,
            begin_ns=t_ns,
            realtime_offset_ns=int(hello["realtime_ns"]) - t_ns,
            window_ns=int(hello["window_ns"]),
            counters=tuple(name for bit, name in enumerate(COUNTER_NAMES) if counters >> bit & 1),
            energy=EnergyInfo(
                source=_text(hello["energy_source"]),
                grade=Grade(grade).name.lower() if grade in set(Grade) else "none",
                reason=_text(hello["energy_reason"]),
            ),
        )

    def _cpus(self, records: Records) -> None:
        cpus = {cpu.cpu: cpu for cpu in self.meta.cpus}
        for record in records.tolist():
            cpu = Cpu(*record)
            cpus[cpu.cpu] = cpu
            if cpu.cpu < _CPUS and cpu.package < _PACKAGES:
                self.packages[cpu.cpu] = cpu.package
            else:
                self.invalid += 1
        self.meta = replace(self.meta, cpus=tuple(cpus[cpu] for cpu in sorted(cpus)))

    def _domains(self, records: Records) -> None:
        by_number = domains(records)
        self.invalid += len(records) - len(by_number)
        appeared = [domain.name for domain in by_number.values() if domain.kind == _APPEARED]
        self.domains |= {
            index: domain for index, domain in by_number.items() if domain.kind != _APPEARED
        }
        in_order = tuple(self.domains[number] for number in sorted(self.domains))
        names = tuple(dict.fromkeys((*self.meta.energy.appeared, *appeared)))[:_MOST_APPEARED]
        energy = replace(self.meta.energy, appeared=names)
        self.meta = replace(self.meta, domains=in_order, energy=energy)


def read_announced(frames: Iterator[Frame], meta: Meta) -> tuple[Announced, Frame | None]:
    """The announcement at the start of a stream, and the first block after it (None: no such
    block).

    Raises:
        QjouleError: the stream is empty.
    """
    announced = Announced(meta)
    first = next((frame for frame in frames if not announced.add(frame)), None)
    if announced.meta.begin_ns is None:
        raise QjouleError("qjoule-tracer ended before it began: see its messages")
    return announced, first


def domains(records: Records) -> dict[int, DomainInfo]:
    """Energy domains by their number in the stream. Invalid records are left out."""
    by_number = {}
    for record in records.tolist():
        index, package, counts, unit_j, idle_w, period_ns, kind, error, die, name = record
        die = None if die == WHOLE_PACKAGE else die
        if index < 1 << 16 and math.isfinite(unit_j) and name and (die is None or die < _DIES):
            idle = idle_w if math.isfinite(idle_w) and idle_w >= 0 else None
            period = period_ns if 0 < period_ns < TIME_LIMIT_NS else None
            how = DOMAIN_KINDS[kind] if 0 < kind < len(DOMAIN_KINDS) else None
            by_number[index] = DomainInfo(
                package,
                _text(name),
                unit_j,
                counts or None,
                idle,
                period,
                how,
                error / 1000 or None,
                die,
            )
    return by_number


def _text(raw: bytes) -> str:
    return bytes(raw).decode("utf-8", "replace")


class Losses:
    """Keeps the largest sum per CPU and cause, since records can arrive out of order."""

    def __init__(self) -> None:
        self._sums: dict[tuple[int, int], tuple[int, int]] = {}

    def add(self, records: Records) -> list[tuple[int, int, int]]:
        """Takes in records of known causes, see `known_causes`.

        Returns (t_ns, cpu, ns) for CPU time that was lost since the CPU's record before.
        """
        newly_lost = []
        for t_ns, count, lost_ns, cpu, cause in records.tolist():
            count_before, ns_before = self._sums.get((cpu, cause), (0, 0))
            self._sums[cpu, cause] = (max(count_before, count), max(ns_before, lost_ns))
            if lost_ns > ns_before and cpu != TRACER_CPU:
                newly_lost.append((t_ns, cpu, lost_ns - ns_before))
        return newly_lost

    @property
    def sums(self) -> dict[tuple[int, int], tuple[int, int]]:
        """The running sums (count, lost_ns) by CPU and cause."""
        return dict(self._sums)

    def counts(self) -> dict[str, int]:
        """Lost records by cause, in the contract's order. Only causes that occurred."""
        counts: dict[str, int] = {}
        for (_, cause), (count, _) in sorted(self._sums.items(), key=lambda item: item[0][1]):
            if count:
                counts[CAUSES[cause]] = counts.get(CAUSES[cause], 0) + count
        return counts

    @property
    def lost_ns(self) -> int:
        """CPU time whose segments were lost, summed over all CPUs."""
        return sum(lost_ns for _, lost_ns in self._sums.values())


def known_causes(records: Records) -> Records:
    """Mask of the LOSS records whose cause the contract defines."""
    mask: Records = records["cause"] < len(Loss)
    return mask


class BlockReader:
    """Calls a method for each block; subclasses override those of the kinds that they use.

    `announced`: what was read of the stream before; None: it is read from its begin.
    """

    def __init__(self, context: StreamContext, announced: Announced | None = None) -> None:
        self._watch = context.watch
        self._announced = announced or Announced(context.meta)
        if self._watch is not None and announced is None:
            self._watch.learnt.append(self._announced.follow)
        self._losses = Losses()
        self._invalid = 0  #: records that contradict themselves or the contract

    def add(self, frame: Frame) -> None:
        """Takes in one block."""
        if self._announced.add(frame):
            self._on_announced(frame)
            return
        match frame.kind:
            case Block.TEXT:
                self._on_text(frame)
            case Block.SESSION:
                if self._on_session(frame) and self._watch is not None:
                    self._watch.sessions(frame.records)
            case Block.TASK:
                self._on_tasks(frame.records)
                if self._watch is not None:
                    self._watch.tasks(frame.records[valid_tasks(frame.records)])
            case Block.LOSS:
                self._on_loss(frame.records)
            case Block.FLUSH:
                self._on_flush(frame.t_ns)
            case Block.END:
                self._on_end(int(frame.records["t_ns"][0]))
            case _:
                self._on_records(frame)

    def _on_announced(self, frame: Frame) -> None:
        """A HELLO, CPU or DOMAIN block has been taken in."""

    def _on_text(self, frame: Frame) -> None:
        """A statement, or tags that a client sent."""

    def _on_session(self, frame: Frame) -> bool:
        """An event of a session. Returns whether it is valid."""
        del frame
        return True

    def _on_tasks(self, records: Array) -> None:
        """Events of processes and threads (`contract.TASK`)."""

    def _on_loss(self, records: Array) -> list[tuple[int, int, int]]:
        """Running sums of loss; returns what is new, as `Losses.add`."""
        valid = known_causes(records)
        self._invalid += int(np.count_nonzero(~valid))
        return self._losses.add(records[valid])

    def _on_flush(self, t_ns: int) -> None:
        """Called when everything that happened before `t_ns` has been sent."""

    def _on_end(self, t_ns: int) -> None:
        """The stream's last block."""

    def _on_records(self, frame: Frame) -> None:
        """Any other kind."""
