# SPDX-License-Identifier: Apache-2.0
"""Every load with its server: what is measured of it, and how to run it.

Servers for which sysbench and pgbench have no load run YCSB's workload A.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from bench.overhead.generator import Generator, Reports, generating, read_rate
from bench.overhead.workloads import WORKLOADS, Workload, command, started
from bench.ycsb.servers import SERVED, Served, reports

from qjoule_studies.servers.process import DatabaseServer

SATURATED, FIXED, INSIDE = PARTS = ("saturated", "fixed", "inside")
YCSB = "YCSB A"
_TARGET = 0.02
#: Options of `record` that need no server of their own.
_OPTIONS = {
    "mariadb": (("--client-tags",), ("--children",), ("--ids",), ("--compress",)),
    "postgres": (("--client-tags",), ("--ids",), ("--compress",)),
    "cassandra": (("--agent",),),
}


@dataclass(frozen=True)
class Load:
    """A workload and its parts. `served`: the server's settings, if the load is YCSB's."""

    workload: Workload
    served: Served | None = None

    @property
    def name(self) -> str:
        return self.workload.name if self.served is None else f"ycsb-{self.served.name}"

    @property
    def parts(self) -> tuple[str, ...]:
        """Throughput is measured where CPU time or the disk is the limit, and cost per query where
        queries are smallest."""
        if self.served is not None:
            return (FIXED, INSIDE)
        return PARTS if self.workload.extreme else (SATURATED,)

    @property
    def options(self) -> tuple[tuple[str, ...], ...]:
        if self.served is None and not self.workload.extreme:
            return ()
        return _OPTIONS.get(self.workload.server, ())

    @property
    def place(self) -> tuple[str, bool]:
        """Loads of one place share a server."""
        return self.workload.server, self.workload.disk

    def started(self) -> AbstractContextManager[DatabaseServer]:
        """The load's server, with the data."""
        if self.served is not None:
            return self.served.loaded()
        return started(self.workload.server, disk=self.workload.disk)

    @contextmanager
    def running(self, server: DatabaseServer, rate: int = 0) -> Iterator[Generator]:
        """At full speed, or at `rate` a second."""
        read: Reports = read_rate
        if self.served is None:
            generator_command = command(self.workload, server, rate)
        else:
            generator_command, read = self.served.command(server, "run", rate), reports()
        log = server.directory / "generator.log"
        with generating(generator_command, lambda: server.tgids, log, read) as generator:
            generator.take(2)  # caches warm, connections made
            yield generator


_THEIR_OWN = {workload.server for workload in WORKLOADS}
LOADS = (
    *(Load(workload) for workload in WORKLOADS),
    *(
        Load(Workload(YCSB, served.name, (), _TARGET), served)
        for served in SERVED
        if served.name not in _THEIR_OWN
    ),
)
