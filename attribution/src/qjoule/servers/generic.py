"""Servers of unknown protocol: whatever listens. They have no queries, but threads with names."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from qjoule.errors import QjouleError
from qjoule.servers.listening import Listening, SocketTables
from qjoule.servers.plan import AttachPlan
from qjoule.servers.procfs import Process, processes
from qjoule.servers.restart import restart_of
from qjoule.servers.types import Fact, Flavour, Restart, Server
from qjoule.shapes.safe_text import sanitise

_TRACER = "qjoule-tracer"
#: A service manager holds the sockets of services that it has not started yet; their work is not
#: its own.
_SERVICE_MANAGERS = ("systemd", "init")
_BY_EXECUTABLE = Restart("executable", "a restart is known by its executable")
_NO_PROTOCOL = Fact(False, "no protocol is known")


def find_generic(
    known: Iterable[Server],
    proc: Path = Path("/proc"),
    root: Path = Path("/"),
    itself: int | None = None,
) -> list[Server]:
    """The listening processes that are none of the `known` servers; ids are 0.

    Those with ports come before those with unix sockets only, then the one first that has used
    most CPU time. Workers that share their parent's executable and sockets are of its server.

    Args:
        proc: the process file system; a directory like it in tests.
        root: what paths of executables are relative to.
        itself: the process to leave out, by default this one.
    """
    left_out = {tgid for server in known for tgid in server.tgids}
    left_out.add(os.getpid() if itself is None else itself)
    tables = SocketTables(proc)
    candidates: dict[int, _Candidate] = {}
    for process in processes(proc):
        if process.pid in left_out or process.base_name in (_TRACER, *_SERVICE_MANAGERS):
            continue
        if listening := tables.of(process):
            candidates[process.pid] = _Candidate(process, listening)
    families: dict[int, list[_Candidate]] = {}
    for candidate in candidates.values():
        families.setdefault(_main_of(candidate, candidates), []).append(candidate)
    found = [_server(candidates[pid], members, root) for pid, members in families.items()]
    ticks = {pid: sum(m.process.cpu_ticks for m in ms) for pid, ms in families.items()}
    return sorted(
        found,
        key=lambda server: (
            not (server.ports or server.udp_ports),
            -ticks[server.tgids[0]],
            server.tgids,
        ),
    )


def with_generic(
    known: Sequence[Server],
    pids: Collection[int],
    everything: bool,
    proc: Path = Path("/proc"),
    root: Path = Path("/"),
) -> list[Server]:
    """The known servers, and after them the generic ones: `everything` that listens, or `pids`.

    Raises:
        QjouleError: there is no process with one of these pids that could be traced.
    """
    servers = list(known)
    strangers = set(pids) - {tgid for server in servers for tgid in server.tgids}
    if not everything and not strangers:
        return servers
    listening = find_generic(known, proc, root)
    servers += [s for s in listening if everything or strangers & set(s.tgids)]
    strangers -= {tgid for server in listening for tgid in server.tgids}
    for process in processes(proc):
        if process.pid in strangers and process.base_name != _TRACER:
            strangers.discard(process.pid)
            alone = _Candidate(process, Listening())
            servers.append(_server(alone, [alone], root))
    if strangers:
        pid = min(strangers)
        why = "it is the kernel's, or hidden" if (proc / str(pid)).exists() else "it has ended"
        raise QjouleError(f"there is no process {pid} to trace: {why}; give another --pid")
    return servers


def by_thread_instead(servers: Sequence[Server], plan: AttachPlan) -> list[Server]:
    """The same servers; those that run and that `plan` cannot trace become generic ones."""
    hopeless = {one.server.tgids for one in plan.servers if not one.traced} - {()}
    return [
        replace(server, flavour=Flavour.GENERIC, name=str(server.flavour), restart=_BY_EXECUTABLE)
        if server.tgids in hopeless and server.flavour is not Flavour.GENERIC
        else server
        for server in servers
    ]


@dataclass(frozen=True)
class _Candidate:
    process: Process
    listening: Listening


def _main_of(candidate: _Candidate, candidates: dict[int, _Candidate]) -> int:
    seen = {candidate.process.pid}
    while True:
        parent = candidates.get(candidate.process.parent)
        if (
            parent is None
            or parent.process.pid in seen  # pids were reused between two reads
            or parent.process.exe_id != candidate.process.exe_id
            or not candidate.listening.inodes <= parent.listening.inodes
        ):
            return candidate.process.pid
        seen.add(parent.process.pid)
        candidate = parent


def _server(main: _Candidate, members: list[_Candidate], root: Path) -> Server:
    process, listening = main.process, main.listening
    others = [m.process.pid for m in members if m.process.pid != process.pid]
    return Server(
        id=0,
        flavour=Flavour.GENERIC,
        version="",
        exe_path=process.openable_executable(root),
        exe_name=process.exe_name,
        exe_id=process.exe_id,
        tgids=(process.pid, *sorted(others)),
        ports=listening.tcp,
        sockets=listening.unix,
        encryption=_NO_PROTOCOL,
        thread_pool=_NO_PROTOCOL,
        name=sanitise(process.name),
        udp_ports=listening.udp,
        restart=restart_of(process),
    )
