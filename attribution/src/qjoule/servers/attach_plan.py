# SPDX-License-Identifier: Apache-2.0
"""The attach plan: what `qjoule-tracer` attaches to, as its arguments.

    --server ID:KIND:ATTACH_MODE:DEVICE:INODE
                                 a server; KIND and ATTACH_MODE as in `registry.toml`. DEVICE and
                                 INODE are its executable's (stat(2)): processes that start from it
                                 later belong to the first server listed with it
    --restart ID:never|HASH      how a restart of this server is recognised (`servers.examine`)
    --running ID:TGID            the main process of a server that runs already; its children
                                 belong to the server too
    --probe ID:ROLE:HANDLE:OFFSET:CODE
                                 a uprobe at this offset (0x...) of the file to which the root part
                                 gave HANDLE, the server's executable or library; ROLE as
                                 in `registry.toml`; CODE is the instruction there, in hexadecimal
    --fact ID:NAME:NUMBER        what this server's BPF programs need to know, as in
                                 `registry.toml`; a fact that is not listed is 0

Ids count from 1 in the order of the options. A uprobe belongs to a file, not to a process: servers
that run the same file share one attach mode, its probes are listed once, under the first of them,
and a hit counts for the server of the process that was hit. The fact `pool` is the same for all of
them, because any of them that restarts counts as the first. It means that a server may run a thread
pool, or that logins on its threads cannot be seen: work between commands then belongs to no query.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from qjoule.contract import AttachMode
from qjoule.servers import registry
from qjoule.servers.choice import Choice
from qjoule.servers.registered import support_of
from qjoule.servers.resolution import Probe
from qjoule.servers.types import Server


def _most_facts() -> int:
    return max(1, *(len(server.facts) for server in registry.servers().values()))


@dataclass(frozen=True)
class PlannedServer:
    """A server and its choice. If not `choice.traced`, it is left out of the arguments."""

    server: Server
    choice: Choice
    probes: tuple[Probe, ...] = ()  #: in its executable, even if another server lists them
    facts: Mapping[str, int] = field(default_factory=dict)  #: numbers for the BPF programs
    notes: tuple[str, ...] = ()  #: what will be incomplete, one line each
    lists_probes: bool = False
    library: str = ""  #: path of the file with its probes, if not the executable
    library_handle: int = 0  #: the root part's number for the library
    reports_children: bool = False  #: statements of its stored procedures are reported separately
    pool: bool = False  #: the fact `pool`, set for any server of its file
    next_read: bool = False  #: the fact `next-read`: reads of sockets end its queries

    @property
    def traced(self) -> bool:
        return self.choice.traced

    @property
    def hides_sessions(self) -> bool:
        """True if some of its sessions may be unreadable on their sockets."""
        return self.choice.attach_mode is AttachMode.SOCKET and not self.choice.exact

    @property
    def boundary_cost_ns(self) -> int:
        """Total cost of the probes that every query hits, by the table of `probe_site`."""
        costs = {probe.role: probe.site.cost for probe in self.probes}
        return support_of(self.server.flavour).boundary_cost_ns(costs)

    def summary(self) -> dict[str, Any]:
        """Returns what `qjoule doctor --json` and a trace's meta.json show of it."""
        server = self.server
        return {
            "id": server.id,
            "label": server.label,
            "flavour": server.flavour,
            "version": server.version,
            "executable": str(server.exe_path),
            "pids": list(server.tgids),
            "ports": list(server.ports),
            "udp_ports": list(server.udp_ports),
            "sockets": list(server.sockets),
            "attach_mode": self.choice.attach_mode.name.lower(),
            "by_thread": self.choice.by_thread,
            "exact": self.choice.exact,
            "why": self.choice.why,
            "other": self.choice.other,
            "notes": list(self.notes),
            "boundary_cost_ns": self.boundary_cost_ns,
            "probes": [probe.summary() for probe in self.probes],
        }


def plan_bytes(planned: PlannedServer) -> bytes:
    """Packs the server as `struct qj_server_plan` (bpf/shared.h)."""
    server, restart = planned.server, planned.server.restart
    device, inode = server.exe_id
    places = registry.server_of(server.flavour).facts
    facts = [_facts(planned).get(name, 0) for name in places]
    return struct.pack(
        f"=QQIBBBB{_most_facts()}Q",
        inode,
        restart.arguments,
        os.major(device) << 20 | os.minor(device),  # MKDEV() of the kernel
        server.kind,
        int(planned.choice.attach_mode),
        ("executable", "arguments", "never").index(restart.how),  # enum qj_restart
        0,
        *facts,
        *[0] * (_most_facts() - len(facts)),
    )


@dataclass(frozen=True)
class AttachPlan:
    servers: tuple[PlannedServer, ...]

    @property
    def traced(self) -> tuple[PlannedServer, ...]:
        return tuple(planned for planned in self.servers if planned.traced)

    def arguments(self) -> list[str]:
        """Returns arguments of `qjoule-tracer`, as described above."""
        arguments: list[str] = []
        for planned in self.traced:
            arguments += _arguments(planned)
        return arguments


def _arguments(planned: PlannedServer) -> list[str]:
    server = planned.server
    kind, attach_mode = registry.name_of(server.kind), planned.choice.attach_mode.name.lower()
    device, inode = server.exe_id
    arguments = ["--server", f"{server.id}:{kind}:{attach_mode}:{device}:{inode}"]
    if server.running:
        arguments += ["--running", f"{server.id}:{server.tgids[0]}"]
    if server.restart.argument:
        arguments += ["--restart", f"{server.id}:{server.restart.argument}"]
    if planned.lists_probes:
        handle = planned.library_handle if planned.library else server.handle
        for probe in planned.probes:
            where = f"{handle}:{probe.site.offset:#x}:{probe.code.hex()}"
            arguments += ["--probe", f"{server.id}:{probe.role}:{where}"]
    for fact, number in _facts(planned).items():
        if number:
            arguments += ["--fact", f"{server.id}:{fact}:{number:#x}"]
    return arguments


def _facts(planned: PlannedServer) -> dict[str, int]:
    """The server's facts by their names in the registry; 0 or missing: unknown."""
    limits = registry.server_of(planned.server.flavour).facts
    extra = {"pool": int(planned.pool), "next-read": int(planned.next_read)}
    return {**planned.facts, **{name: extra[name] for name in extra if name in limits}}
