# SPDX-License-Identifier: Apache-2.0
"""CPU clocks of everybody who has a part in a load, read at the same time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from bench.overhead.cpu import all_tasks_ns, busy_ns, cpu_ns, runs


@dataclass(frozen=True)
class Watched:
    """The processes of a mode. Without a tracer, all of them count as reader."""

    pids: tuple[int, ...] = ()
    tracer: int = 0

    @property
    def others(self) -> tuple[int, ...]:
        """The reader and the root part."""
        return tuple(pid for pid in self.pids if pid != self.tracer)


@dataclass(frozen=True)
class Clocks:
    """CPU time in ns: of processes, of all tasks, and of the machine's CPUs outside idle."""

    server: int = 0
    client: int = 0
    tracer: int = 0
    reader: int = 0
    tasks: int = 0
    machine: int = 0
    tracer_runs: int = 0  #: how often the tracer got a CPU
    reader_runs: int = 0

    def __sub__(self, before: Clocks) -> Clocks:
        names = (field.name for field in fields(self))
        return Clocks(*(getattr(self, name) - getattr(before, name) for name in names))


def read_clocks(server: Sequence[int], client: Sequence[int], watched: Watched) -> Clocks:
    tracer = [watched.tracer] if watched.tracer else []
    return Clocks(
        cpu_ns(server),
        cpu_ns(client),
        cpu_ns(tracer),
        cpu_ns(watched.others),
        all_tasks_ns(),
        busy_ns(),
        sum(map(runs, tracer)),
        sum(map(runs, watched.others)),
    )
