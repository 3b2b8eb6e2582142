# SPDX-License-Identifier: Apache-2.0
"""Finds servers with an unknown protocol: any process that listens. They have named threads, but no
queries.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from qjoule.contract import AttachMode
from qjoule.errors import QjouleError
from qjoule.servers.attach_plan import AttachPlan
from qjoule.servers.choice import Case, Choice
from qjoule.servers.discovery import server_of
from qjoule.servers.hosts import DirectHost, Host
from qjoule.servers.processes import Process, asking_user, order_fairly
from qjoule.servers.resolution import without_probes
from qjoule.servers.support import Mode, Running, ServerSupport, Settings, Supported
from qjoule.servers.types import NO_PROTOCOL, Examined, Fact, Facts, Restart, Server

_TRACER = "qjoule-tracer"
#: Service managers hold the sockets of services that they have not started yet, but do not do
#: their work.
_SERVICE_MANAGERS = ("systemd", "init")
_BY_EXECUTABLE = Restart("executable", "a restart is known by its executable")


def find_generic(
    known: Iterable[Server], host: Host | None, itself: int | None = None
) -> list[Server]:
    """Returns the listening processes that are not among the `known` servers; ids are 0.

    Those with ports come before those with only unix sockets, then by CPU time used, most first.
    Workers that share their parent's executable and sockets belong to its server.

    Args:
        host: how to access processes; None: with this process's rights.
        itself: the process to leave out, by default this one.
    """
    left_out = {tgid for server in known for tgid in server.tgids}
    left_out.add(os.getpid() if itself is None else itself)
    host = host or DirectHost()
    port_range = host.port_range()
    strangers = [
        process
        for process in host.processes().processes
        if process.pid not in left_out and process.base_name not in (_TRACER, *_SERVICE_MANAGERS)
    ]
    results = host.examine_all(
        [
            Facts(
                process.exe_name,
                process.exe_id,
                process.pid,
                any_protocol=True,
                port_range=port_range,
            )
            for process in strangers
        ]
    )
    candidates = {
        process.pid: _Candidate(process, examined)
        for process, examined in zip(strangers, results, strict=True)
        if examined.flavour is not None
    }
    families: dict[int, list[_Candidate]] = {}
    for candidate in candidates.values():
        families.setdefault(_main_of(candidate, candidates), []).append(candidate)
    servers = [_server(candidates[pid], members) for pid, members in families.items()]
    ticks = {pid: sum(m.examined.cpu_ticks for m in ms) for pid, ms in families.items()}
    servers.sort(
        key=lambda server: (
            not (server.ports or server.udp_ports),
            -ticks[server.tgids[0]],
            server.tgids,
        ),
    )
    return order_fairly(servers, lambda server: server.owner, asking_user())


def with_generic(
    known: Sequence[Server], pids: Collection[int], everything: bool, host: Host | None
) -> list[Server]:
    """Returns the known servers, then the generic ones: all (`everything`), or those of `pids`.

    Raises:
        QjouleError: no process with one of these pids could be traced.
    """
    servers = list(known)
    strangers = set(pids) - {tgid for server in servers for tgid in server.tgids}
    if not everything and not strangers:
        return servers
    host = host or DirectHost()
    listening = find_generic(known, host)
    servers += [s for s in listening if everything or strangers & set(s.tgids)]
    strangers -= {tgid for server in listening for tgid in server.tgids}
    every = host.processes().processes if strangers else ()
    problems: dict[int, str] = {}
    for process in every:
        if process.pid in strangers and process.base_name != _TRACER:
            facts = Facts(
                process.exe_name, process.exe_id, process.pid, any_protocol=True, silent=True
            )
            examined = host.examine(facts)
            if examined.flavour is not None:
                strangers.discard(process.pid)
                servers.append(server_of(examined, [process]))
            elif examined.problem:
                problems[process.pid] = examined.problem
    if strangers:
        pid = min(strangers)
        hidden = "it is the kernel's, or hidden" if host.has(pid) else "it has ended"
        why = problems.get(pid, hidden)
        raise QjouleError(f"there is no process {pid} to trace: {why}; give another --pid")
    return servers


def by_thread_instead(servers: Sequence[Server], plan: AttachPlan) -> list[Server]:
    """Replaces running servers that `plan` cannot trace by generic ones."""
    hopeless = {planned.server.tgids for planned in plan.servers if not planned.traced} - {()}
    return [
        replace(server, flavour=NO_PROTOCOL, name=server.flavour, restart=_BY_EXECUTABLE)
        if server.tgids in hopeless and server.flavour != NO_PROTOCOL
        else server
        for server in servers
    ]


@dataclass(frozen=True)
class _Candidate:
    process: Process
    examined: Examined


def _main_of(candidate: _Candidate, candidates: dict[int, _Candidate]) -> int:
    seen = {candidate.process.pid}
    while True:
        parent = candidates.get(candidate.process.parent)
        if (
            parent is None
            or parent.process.pid in seen  # pids were reused between two reads
            or parent.process.exe_id != candidate.process.exe_id
            or not candidate.examined.inodes <= parent.examined.inodes
        ):
            return candidate.process.pid
        seen.add(parent.process.pid)
        candidate = parent


def _server(main: _Candidate, members: list[_Candidate]) -> Server:
    workers = sorted((m.process for m in members if m is not main), key=lambda p: p.pid)
    return server_of(main.examined, [main.process, *workers])


_BY_THREAD = Choice(
    AttachMode.NONE,
    "where its queries begin is not known: CPU time and energy by thread name",
    by_thread=True,
)


def choose_attach_mode(_case: Case) -> Choice:
    """Always chooses tracing by thread."""
    return _BY_THREAD


_NO_PROTOCOL = Fact(False, "no protocol is known")


def _settings(_running: Running) -> Settings:
    return Settings(_NO_PROTOCOL, _NO_PROTOCOL)


def _blind_spots(server: Server) -> tuple[str, ...]:
    return (server.restart.why,)


SUPPORT = ServerSupport(
    name=NO_PROTOCOL,
    flavours={NO_PROTOCOL: "any other process"},
    settings=_settings,
    resolve=without_probes,
    choose_attach_mode=choose_attach_mode,
    blind_spots=_blind_spots,
)


#: Rows of docs/servers.md.
DOCUMENTED = (Supported(NO_PROTOCOL, "any other process", (Mode("all"),)),)
