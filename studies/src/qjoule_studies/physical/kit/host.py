# SPDX-License-Identifier: Apache-2.0
"""The kit on this machine: starts servers, records runs of their loads and reads their traces."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from qjoule.api import QjouleError
from qjoule.api.attribution import attribute, for_trace
from qjoule.api.model import Attribution, Row
from qjoule.api.servers import read_cpu_info
from qjoule.api.traces import Trace
from qjoule_studies.physical import recording as reading
from qjoule_studies.physical.kit.document import KINDS, Load, Part, Run
from qjoule_studies.physical.kit.loads import KitServer, repeating, starters
from qjoule_studies.physical.machine import one_package, table_bytes
from qjoule_studies.physical.recording import recording
from qjoule_studies.servers.process import server_directory

_OTHERS = ("queries", "background", "other_processes", "kernel", "tracer")


@dataclass(frozen=True)
class Traced:
    """How a load is found in a trace.

    `fingerprints`: of its statements, the one that counts calls first; None: all statements of its
    server. `server`: the server's kind. `client`: name of the client process.
    """

    server: str
    fingerprints: tuple[str, ...] | None
    client: str


def read_run(
    trace: Trace,
    span_ns: tuple[int, int],
    loads: Sequence[tuple[int, Traced]],
    *,
    number: int,
    calibration: str | None,
) -> tuple[Run, Attribution]:
    """One run. `span_ns`: when its loads began and ended; `loads`: with their positions.

    Powers of loads are means over that span; they run at no other time. Raises `QjouleError` if a
    load is not in the trace.
    """
    begin_ns, end_ns = span_ns
    settled_ns = min(begin_ns + reading.SETTLE_NS, end_ns) if loads else begin_ns
    power_w = reading.mean_power_w(trace, settled_ns, end_ns)
    result = attribute(trace, calibrated=for_trace(trace, calibration, "none"))
    kinds = {server.name or server.kind: server.kind for server in trace.meta.servers}
    dt_ns = max(end_ns - begin_ns, 1)
    parts, taken = [], 0
    for position, wanted in loads:
        queries = [row for row in result.rows if _is_of(row, wanted, kinds)]
        if not queries:
            raise QjouleError(f"a recording has no query of {wanted.server}: see 'qjoule doctor'")
        client = [row for row in result.fixed if row.keys.get("process") == wanted.client]
        parts.append(_part(position, queries, client, dt_ns, wanted))
        taken += sum(row.energy_nj for row in (*queries, *client))
    all_nj = sum(row.energy_nj for row in (*result.rows, *result.fixed) if row.kind in _OTHERS)
    others_w = max(all_nj - taken, 0) / dt_ns
    return Run(number, dt_ns * 1e-9, power_w, others_w, tuple(parts)), result


def _is_of(row: Row, wanted: Traced, kinds: dict[str, str]) -> bool:
    if row.kind != "queries" or kinds.get(row.server) != wanted.server:
        return False
    return wanted.fingerprints is None or row.keys.get("fingerprint") in wanted.fingerprints


def _part(
    position: int, queries: Sequence[Row], client: Sequence[Row], dt_ns: int, wanted: Traced
) -> Part:
    rows = [*queries, *client]
    counted = [
        row
        for row in queries
        if wanted.fingerprints is None or row.keys.get("fingerprint") == wanted.fingerprints[0]
    ]
    energy_nj = sum(row.energy_nj for row in rows)
    shared_nj = sum(row.shared_nj or 0 for row in rows)
    low_nj = min(max(sum(row.energy_nj_ci95[0] for row in rows), 0.0), energy_nj)
    high_nj = max(sum(row.energy_nj_ci95[1] for row in rows), energy_nj)
    return Part(
        load=position,
        calls_per_s=sum(row.calls for row in counted) * 1e9 / dt_ns,
        energy_w=energy_nj / dt_ns,
        shared_w=min(shared_nj, energy_nj) / dt_ns,
        low_w=low_nj / dt_ns,
        high_w=high_nj / dt_ns,
        client_w=sum(row.energy_nj for row in client) / dt_ns,
    )


_SECOND_TABLE_BYTES = 256 << 20  #: the second server's table need not be larger


@dataclass(frozen=True)
class Recorded:
    """A run's trace, and when its loads began and ended (CLOCK_MONOTONIC, ns)."""

    trace: Trace
    span_ns: tuple[int, int]
    traced: tuple[Traced, ...]


class Host(Protocol):
    """Where loads run. `absent`: products that could not be started as second server."""

    @property
    def loads(self) -> tuple[Load, ...]: ...

    @property
    def one_at_a_time(self) -> frozenset[str]:
        """Products of which only one load may run."""

    @property
    def absent(self) -> tuple[str, ...]: ...

    def record(self, loads: Sequence[int], seconds: float) -> Recorded:
        """Records some of `loads`, by position, at the same time; none: the machine at rest."""


@dataclass
class ThisHost:
    """This machine, with servers of its own on the cores of one package."""

    directory: Path
    cpus: set[int]
    energy: str
    servers: tuple[KitServer, ...]
    absent: tuple[str, ...]
    loads: tuple[Load, ...] = field(init=False)
    _traces: int = 0

    def __post_init__(self) -> None:
        self.loads = tuple(Load(server.product, kind) for server in self.servers for kind in KINDS)

    @property
    def one_at_a_time(self) -> frozenset[str]:
        return frozenset(server.product for server in self.servers if server.dialect is None)

    def record(self, loads: Sequence[int], seconds: float) -> Recorded:
        """See `Host`. The trace of the run before is removed."""
        chosen = [(at, self._server_of(self.loads[at])) for at in loads]
        shutil.rmtree(self.directory / f"trace-{self._traces}", ignore_errors=True)
        self._traces += 1
        path = self.directory / f"trace-{self._traces}"
        pids = [server.pid for server in self.servers]
        with recording(path, pids, self.energy), ExitStack() as stack:
            checks = [
                stack.enter_context(
                    repeating(self.directory, server, self.loads[at].kind, _client(at), self.cpus)
                )
                for at, server in chosen
            ]
            begin_ns = time.monotonic_ns()
            time.sleep(seconds)
            end_ns = time.monotonic_ns()
            for check in checks:
                check()
        traced = tuple(
            Traced(server.product, server.fingerprints(self.loads[at].kind), _client(at))
            for at, server in chosen
        )
        return Recorded(Trace(path), (begin_ns, end_ns), traced)

    def _server_of(self, load: Load) -> KitServer:
        return next(server for server in self.servers if server.product == load.server)


@contextmanager
def this_host(
    energy: str, say: Callable[[str], None], *, second: bool = True
) -> Iterator[ThisHost]:
    """Starts MariaDB and, with `second`, the first other server that this machine has.

    Raises `QjouleError` if there are no two cores, or if the first server cannot be started.
    Leaves no process and no directory behind.
    """
    cpus = one_package(read_cpu_info())
    size, _ = table_bytes()
    with server_directory() as directory, ExitStack() as stack:
        required, *others = starters()
        say(f"starting {required.PRODUCT}, with a table of {size >> 20} MiB")
        servers = [stack.enter_context(required.start(directory, size, cpus))]
        absent: list[str] = []
        for other in others if second else ():
            try:
                say(f"starting {other.PRODUCT} as second server")
                small = min(size, _SECOND_TABLE_BYTES)
                servers.append(stack.enter_context(other.start(directory, small, cpus)))
                break
            except (QjouleError, ModuleNotFoundError) as error:
                say(f"there is no {other.PRODUCT} here: {error}")
                absent.append(other.PRODUCT)
        if second and len(servers) == 1:
            say("there is no second server: only loads of the first one run")
        host = ThisHost(directory, cpus, energy, tuple(servers), tuple(absent))
        yield host


def _client(position: int) -> str:
    """A process name, at most 15 bytes (prctl(2), PR_SET_NAME)."""
    return f"qjoule-load-{position}"
