# SPDX-License-Identifier: Apache-2.0
"""Which query each server thread works for, from uprobes on the server's functions."""

from __future__ import annotations

from collections.abc import Sequence

from qjoule.api.capture import Command, QueryFlag
from qjoule.api.traces import Array
from qjoule_studies.import_perf.arguments import Arguments
from qjoule_studies.import_perf.cpus import Cpus
from qjoule_studies.import_perf.imported import Imported
from qjoule_studies.import_perf.lives import Lives, Shapes, Thread
from qjoule_studies.import_perf.support import Rules
from qjoule_studies.import_perf.supported import BY_SERVER, family_of


class Queries:
    """Turns hits of probes into queries. Do not pass hits from before the trace's beginning."""

    def __init__(self, servers: Sequence[Imported], shapes: Shapes, cpus: Cpus) -> None:
        self._lives = Lives(servers, shapes, cpus)
        self._rules: dict[str, Rules] = {}  #: by family of the events
        for support in BY_SERVER.values():
            self._rules |= dict.fromkeys(support.families, support.rules(self._lives))
        self.hit: set[int] = set()  #: servers whose probes were

    def take(
        self, event: bytes, server: int, of: tuple[int, int, int, int], arguments: Arguments
    ) -> None:
        """One hit of a probe, `of` (time, CPU, thread, process). Raises `BadArguments`."""
        t_ns, cpu, tid, tgid = of
        thread = self._lives.threads.get(tid)
        if thread is None or thread.tgid != tgid:
            thread = self._lives.threads[tid] = Thread(tgid, server)
        self.hit.add(server)
        self._rules[family_of(event)].take(event, thread, (t_ns, cpu, tid), arguments)

    def exited(self, tid: int, t_ns: int) -> None:
        """The thread has ended, and so has its query."""
        thread = self._lives.threads.pop(tid, None)
        if thread is not None and thread.begin_ns:
            thread.flags |= 0 if thread.command == Command.OTHER else QueryFlag.OPEN
            self._lives.tell(thread, tid, t_ns)
        self._lives.cpus.forget(tid)

    def finish(self, t_ns: int) -> None:
        """Ends the trace: sends the queries that are still running, unfinished."""
        for tid, thread in self._lives.threads.items():
            if thread.begin_ns:
                thread.flags |= QueryFlag.OPEN
                self._lives.tell(thread, tid, t_ns)

    def take_records(self) -> Array:
        """QUERY records since the last call."""
        return self._lives.take_records()

    def take_losses(self, t_ns: int) -> Array:
        """LOSS records of what has changed since the last call."""
        return self._lives.take_losses(t_ns)
