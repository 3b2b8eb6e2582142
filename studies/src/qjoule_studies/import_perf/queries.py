# SPDX-License-Identifier: Apache-2.0
"""Which query each server thread works for, from uprobes on the server's functions.

A server whose probes perf's recordings may have has a module here, with its `SUPPORT`: how to set
and read its probes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Protocol

from qjoule.api.servers import PlannedServer, registry
from qjoule.api.traces import Array, Command, QueryFlag
from qjoule_studies.import_perf.cpus import Cpus
from qjoule_studies.import_perf.lives import Arguments, Lives, Shapes, Thread
from qjoule_studies.import_perf.tasks import Imported


@dataclass(frozen=True)
class Hook:
    """A uprobe that is wanted: its event's name (`FAMILY_WORD`), and what it reads."""

    event: str
    arguments: str = ""
    is_return: bool = False


class Rules(Protocol):
    """Turns hits of one server's probes into the lives of queries."""

    def take(
        self, event: bytes, thread: Thread, at: tuple[int, int, int], arguments: Arguments
    ) -> None:
        """Takes one hit of a probe, `at` (time, CPU, thread). Raises `BadArguments`."""


@dataclass(frozen=True)
class PerfSupport:
    """How a server's probes are set and read."""

    families: tuple[str, ...]  #: what stands before the `_` in the names of its events
    hooks: Callable[[PlannedServer], dict[str, Hook]]  #: by role
    rules: Callable[[Lives], Rules]
    flavour: Callable[[bytes], str]  #: by the name of the main process
    by_process: bool = False  #: each client has a process, which belongs to its parent
    missing: tuple[str, ...] = ()  #: what an import of it cannot say


@cache
def by_server() -> Mapping[str, PerfSupport]:
    """By name of the server."""
    modules = {server: f"{__package__}.{server}" for server in registry.servers()}
    return {
        server: import_module(module).SUPPORT
        for server, module in modules.items()
        if find_spec(module) is not None
    }


@cache
def by_family() -> Mapping[str, PerfSupport]:
    """Supports by the part before the `_` of their events' names."""
    return {family: support for support in by_server().values() for family in support.families}


def family_of(event: bytes) -> str:
    """The part of an event's name before the `_`."""
    return event.partition(b"_")[0].decode("ascii", "replace")


def support_of(event: bytes) -> PerfSupport:
    """The support whose event it is. Raises `KeyError` if it is no server's."""
    return by_family()[family_of(event)]


class Queries:
    """Turns hits of probes into queries. Do not pass hits from before the trace's beginning."""

    def __init__(self, servers: Sequence[Imported], shapes: Shapes, cpus: Cpus) -> None:
        self._lives = Lives(servers, shapes, cpus)
        self._rules: dict[str, Rules] = {}  #: by family of the events
        for support in by_server().values():
            self._rules |= dict.fromkeys(support.families, support.rules(self._lives))
        self.hit: set[int] = set()  #: servers whose probes were

    def take(
        self, event: bytes, server: int, of: tuple[int, int, int, int], arguments: Arguments
    ) -> None:
        """Takes one hit of a probe, `of` (time, CPU, thread, process). Raises `BadArguments`."""
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
            self._lives.add_record(thread, tid, t_ns)
        self._lives.cpus.forget(tid)

    def finish(self, t_ns: int) -> None:
        """Ends the trace: sends the queries that are still running, unfinished."""
        for tid, thread in self._lives.threads.items():
            if thread.begin_ns:
                thread.flags |= QueryFlag.OPEN
                self._lives.add_record(thread, tid, t_ns)

    def take_records(self) -> Array:
        """QUERY records since the last call."""
        return self._lives.take_records()

    def take_losses(self, t_ns: int) -> Array:
        """LOSS records of what has changed since the last call."""
        return self._lives.take_losses(t_ns)
