# SPDX-License-Identifier: Apache-2.0
"""Reads what a stream announces before its records: the machine, its energy source and its domains.

Recordings and the live view both read these blocks here, so both get the same `Meta`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from qjoule.contract import COUNTER_NAMES, WHOLE_PACKAGE, Block, DomainKind, Grade
from qjoule.errors import QjouleError
from qjoule.stream.blocks import TIME_LIMIT_NS, Frame, Records
from qjoule.trace.meta import Cpu, DomainInfo, EnergyInfo, Meta, Server
from qjoule.trace.vocabulary import DOMAIN_KINDS

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
        """Puts a server that is followed in the place of the one that it was."""
        others = (one for one in self.meta.servers if one.id != server.id)
        servers = sorted((*others, server), key=lambda one: one.id)
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
        known = {cpu.cpu: cpu for cpu in self.meta.cpus}
        for record in records.tolist():
            cpu = Cpu(*record)
            known[cpu.cpu] = cpu
            if cpu.cpu < _CPUS and cpu.package < _PACKAGES:
                self.packages[cpu.cpu] = cpu.package
            else:
                self.invalid += 1
        self.meta = replace(self.meta, cpus=tuple(known[cpu] for cpu in sorted(known)))

    def _domains(self, records: Records) -> None:
        known = domains(records)
        self.invalid += len(records) - len(known)
        appeared = [one.name for one in known.values() if one.kind == _APPEARED]
        self.domains |= {index: one for index, one in known.items() if one.kind != _APPEARED}
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
    known = {}
    for record in records.tolist():
        index, package, counts, unit_j, idle_w, period_ns, kind, error, die, name = record
        die = None if die == WHOLE_PACKAGE else die
        if index < 1 << 16 and math.isfinite(unit_j) and name and (die is None or die < _DIES):
            idle = idle_w if math.isfinite(idle_w) and idle_w >= 0 else None
            period = period_ns if 0 < period_ns < TIME_LIMIT_NS else None
            how = DOMAIN_KINDS[kind] if 0 < kind < len(DOMAIN_KINDS) else None
            known[index] = DomainInfo(
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
    return known


def _text(raw: bytes) -> str:
    return bytes(raw).decode("utf-8", "replace")
