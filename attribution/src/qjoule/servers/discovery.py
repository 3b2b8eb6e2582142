# SPDX-License-Identifier: Apache-2.0
"""Finds the database servers of a machine: running ones, and installed ones that may start later.

Each network namespace has its own ports, so two containers may both listen on 3306. Labels must be
unique, because the joules of equal labels would be added up: so servers carry their container or
unit.

A process without rights, which watches for servers after tracing began, cannot open executables. It
recognises servers by what every user may read (`ProcServerDetector`). A name and a command line do
not prove what a process is; they are enough for a warning, never for a probe.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from qjoule.errors import QjouleError
from qjoule.servers.candidate import Candidate
from qjoule.servers.direct_access import DirectAccess, is_process
from qjoule.servers.hosts import DirectHost, Host
from qjoule.servers.processes import (
    CONTAINER_ID,
    CONTAINER_NAME,
    LINES_MAX,
    Owner,
    Process,
    asking_user,
    order_fairly,
)
from qjoule.servers.registered import runtimes, supported
from qjoule.servers.support import ServerSupport
from qjoule.servers.types import Examined, Facts, Server


@dataclass(frozen=True)
class Discovery:
    servers: tuple[Server, ...]
    hidden: int  #: processes that only root may look at
    unreadable: tuple[str, ...]  #: executables with a server's name that could not be read, and why


def find_servers(
    proc: Path = Path("/proc"),
    root: Path = Path("/"),
    host: Host | None = None,
    *,
    vocabulary: bool = False,
) -> list[Server]:
    """Returns the servers of this machine, running ones first, ids from 1."""
    return list(discover(proc, root, host, vocabulary=vocabulary).servers)


def discover(
    proc: Path = Path("/proc"),
    root: Path = Path("/"),
    host: Host | None = None,
    *,
    vocabulary: bool = False,
) -> Discovery:
    """Returns servers like `find_servers`, and what could not be seen.

    Args:
        proc: the process file system; a similar directory in tests.
        root: where to look for installed executables.
        host: how to access them; default: with this process's rights, below these directories.
        vocabulary: also read what the ids of a running server's statements depend on.
    """
    host = host or DirectHost(proc, root)
    listed = host.processes()
    unreadable: list[str] = []
    named = [p for p in listed.processes if is_named_like_a_server(p.base_name)]
    families = [(members, main) for main, members in _families(named)]
    families += [
        ([process], process) for process in listed.processes if process.base_name in runtimes()
    ]
    running: list[Server] = []
    chosen = list(_limit_per_owner(families, unreadable))
    range_ = host.port_range()
    results = host.examine_all(
        [
            Facts(*(main.exe_name, main.exe_id, main.pid), vocabulary=vocabulary, port_range=range_)
            for _, main in chosen
        ]
    )
    for (members, main), examined in zip(chosen, results, strict=True):
        if examined.problem:
            unreadable.append(f"process {main.pid} ({main.exe_name}): {examined.problem}")
        if examined.flavour is not None:
            running.append(server_of(examined, members))
    running.sort(key=lambda server: (server.flavour, server.ports, server.tgids))
    running = order_fairly(running, lambda server: server.owner, asking_user())
    ids = {process.exe_id for process in named}
    installed = _installed(host, ids, unreadable)
    every = make_labels_unique([*running, *installed])
    servers = [replace(server, id=number) for number, server in enumerate(every, start=1)]
    return Discovery(tuple(servers), listed.hidden, tuple(unreadable))


def server_of(examined: Examined, members: Sequence[Process]) -> Server:
    """Returns the server that the first process was found to be, with its whole family."""
    assert examined.flavour is not None
    main = members[0]
    container, unit = place_of(main.control_groups)
    return Server(
        id=0,
        flavour=examined.flavour,
        version=examined.version,
        exe_path=Path(examined.exe_path or main.exe_name),
        exe_name=main.exe_name,
        runs_as=examined.runs_as,
        exe_id=main.exe_id,
        tgids=tuple(member.pid for member in members),
        ports=examined.ports,
        sockets=examined.sockets,
        encryption=examined.encryption,
        thread_pool=examined.thread_pool,
        name=examined.name,
        udp_ports=examined.udp_ports,
        compression=examined.compression,
        restart=examined.restart,
        facts=examined.facts,
        exe=examined.exe,
        handle=examined.handle,
        resolution=examined.resolution,
        vocabulary=examined.vocabulary,
        no_vocabulary=examined.no_vocabulary,
        uid=main.uid,
        owner=main.owner,
        container=container,
        unit=unit,
    )


@lru_cache(1024)  # programs that the machine starts
def is_named_like_a_server(name: str) -> bool:
    """Pre-filters by name; the content of the executable decides."""
    return any(support.may_be_named(name) for support in supported())


def _installed_patterns() -> list[str]:
    """Returns where packages install servers (Debian, Red Hat, upstream).

    The kernel side recognises a server that starts later by its executable's inode, so knowing the
    executable is enough.
    """
    return [pattern for support in supported() for pattern in support.installed]


def _families(candidates: list[Process]) -> Iterable[tuple[Process, list[Process]]]:
    """Yields (main process, its family): a server may fork children that run its executable."""
    by_pid = {process.pid: process for process in candidates}

    def main_of(process: Process) -> Process:
        line, seen = [process], {process.pid}
        while (parent := by_pid.get(line[-1].parent)) and parent.exe_id == process.exe_id:
            if parent.pid in seen:  # pids were reused between two reads
                return min(line, key=lambda member: member.pid)
            line.append(parent)
            seen.add(parent.pid)
        return line[-1]

    families: dict[int, list[Process]] = {}
    for process in candidates:
        families.setdefault(main_of(process).pid, []).append(process)
    for pid, members in families.items():
        main = by_pid[pid]
        yield main, [main, *(member for member in members if member is not main)]


def _limit_per_owner(
    families: list[tuple[list[Process], Process]], unreadable: list[str]
) -> Iterator[tuple[list[Process], Process]]:
    """Chooses the candidates to examine, so that no owner's programs keep the others waiting."""
    counts: Counter[Owner] = Counter()
    for members, main in order_fairly(families, lambda family: family[1].owner, asking_user()):
        owner = main.owner
        counts[owner] += 1
        if owner.examined_max is None or counts[owner] <= owner.examined_max:
            yield members, main
    for owner, count in counts.items():
        if owner.examined_max is not None and count > owner.examined_max:
            more = count - owner.examined_max
            unreadable.append(
                f"{owner} runs {count} programs with names of servers: {more} are not looked at"
            )


def _installed(host: Host, ids: set[tuple[int, int]], unreadable: list[str]) -> Iterable[Server]:
    for path, identity in host.installed(_installed_patterns()):
        if identity.key in ids:
            continue
        ids.add(identity.key)
        examined = host.examine(Facts(str(path), identity.key))
        if examined.problem:
            unreadable.append(f"{path}: {examined.problem}")
        if examined.flavour is not None:
            file = Process(0, 0, Path(), str(path), identity.key)
            yield replace(server_of(examined, [file]), tgids=())


_UNIT = re.compile(r"/([\w:.@\\-]{1,200})\.service(?=/|$)", re.MULTILINE)
_ID = 12  #: digits of a container's id, as `docker ps` shows it


def place_of(control_groups: str) -> tuple[str, str]:
    """Returns the container and the unit of a process, by its /proc/pid/cgroup; empty: none.

    Container managers name the control group after the container's id or its name, systemd after
    the unit. The innermost counts.
    """
    paths = [line.split(":", 2)[-1] for line in control_groups.splitlines()[:LINES_MAX]]
    joined = "\n".join(paths)
    ids, named, units = (
        pattern.findall(joined) for pattern in (CONTAINER_ID, CONTAINER_NAME, _UNIT)
    )
    container = ids[-1][:_ID] if ids else named[-1] if named else ""
    return container, units[-1] if units else ""


def make_labels_unique(servers: Sequence[Server]) -> list[Server]:
    """Returns the servers with unique labels.

    A server in a container always carries it in its label, because another container with the same
    port may start at any time. Other servers carry their unit, or another difference, only where
    labels are equal.
    """
    labelled = [replace(server, apart=server.container) for server in servers]
    for apart in (_unit, _process_or_path):
        counts = Counter(server.label for server in labelled)
        labelled = [
            replace(server, apart=apart(server))
            if counts[server.label] > 1 and apart(server)
            else server
            for server in labelled
        ]
    return labelled


def _unit(server: Server) -> str:
    return server.apart or server.unit


def _process_or_path(server: Server) -> str:
    itself = f"pid-{server.tgids[0]}" if server.tgids else server.exe_name
    return ",".join(filter(None, (server.apart, itself)))


@dataclass(frozen=True)
class ProcServerDetector:
    """Implements `stream.watch.Lookout` by reading /proc."""

    proc: Path = Path("/proc")

    def may_serve(self, comm: str) -> bool:
        return comm in runtimes() or is_named_like_a_server(comm)

    def serves(self, pid: int, comm: str) -> bool:
        """Never raises: a process may end or hide itself at any time."""
        if not is_process(self.proc, pid):
            return False
        candidate = Candidate(DirectAccess(self.proc / str(pid), None), comm, pid)
        return any(_is_server(support, candidate) for support in supported())


def _is_server(support: ServerSupport, candidate: Candidate) -> bool:
    try:
        if support.runtime:
            of_runtime = support.runtime == candidate.base_name
            return of_runtime and support.recognise(candidate) is not None
        return support.may_be_named(candidate.base_name) and support.serves(candidate)
    except QjouleError:
        return not support.runtime  # by its name alone, it may be a server
