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
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from qjoule.contract import AttachMode
from qjoule.errors import QjouleError
from qjoule.servers import registry
from qjoule.servers.choice import Choice, KernelFacts
from qjoule.servers.registered import Member, decide, falling_back, resolution_of, support_of
from qjoule.servers.resolution import Agent, FileKey, Probe
from qjoule.servers.types import Server

SERVERS_MAX = 64  #: QJ_MAX_SERVERS of bpf/shared.h
PROBES_MAX = 512  #: MAX_PROBES of tracer/options.h

_NO_NAMES = "users and databases of its sessions are not known"
_NO_CHILDREN = "statements of procedures are not told apart"
_NO_IDS = "ids that it gives to statements are not known"


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


def _most_facts() -> int:
    return max(1, *(len(server.facts) for server in registry.servers().values()))


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


def build_plan(
    servers: Sequence[Server],
    kernel: KernelFacts,
    attach_mode_choice: AttachMode | None = None,
    pids: Collection[int] | None = None,
    agents: Mapping[int, Agent] | None = None,
    *,
    children: bool = False,
    ids: bool = False,
    fall_back: bool = False,
) -> AttachPlan:
    """Decides for each server how its queries are found, and resolves the probes for that.

    Args:
        servers: as returned by `discovery.find_servers`, the most important first. Their ids are
            replaced by those of the plan, 0 for a server that cannot be traced.
        attach_mode_choice: the user's choice for all servers.
        pids: trace only the servers with one of these processes; None or empty: all.
        agents: agents that were put into servers, by process.
        children: also report statements of stored procedures, where possible.
        ids: also make servers report the ids that they give to statements.
        fall_back: servers that cannot have `attach_mode_choice` get their mode without it;
            otherwise they are left out, with the reason.

    Raises:
        QjouleError: a pid belongs to no server; or one with such a pid, or every server that runs,
            cannot use the chosen attach mode.
    """
    chosen = _with_pids(servers, pids)
    resolved = [resolution_of(server) for server in chosen]
    if not kernel.uprobes:
        resolved = [resolution.without_uprobes() for resolution in resolved]
    inside = [(agents or {}).get(server.tgids[0]) if server.tgids else None for server in chosen]
    members = [
        Member(server, resolution, agent, attach_mode_choice)
        for server, resolution, agent in zip(chosen, resolved, inside, strict=True)
    ]
    if fall_back:
        members = falling_back(members, kernel)
    decided = decide(members, kernel, named=bool(pids))
    _check_wanted(chosen, decided.choices, named=bool(pids))
    choices = _limit_servers(SERVERS_MAX, decided.choices)
    planned: list[PlannedServer] = []
    listed: set[FileKey] = set()
    probes = 0
    for member, choice in zip(members, choices, strict=True):
        server, resolution, agent = member.server, member.resolution, member.agent
        if not choice.traced:
            planned.append(PlannedServer(replace(server, id=0), choice))
            continue
        if agent is not None:
            facts = support_of(server.flavour).facts(server, resolution, choice.attach_mode)
            planned_server = _with_agent(server, choice, agent, facts)
        else:
            pooled, first = resolution.file in decided.pooled, resolution.file not in listed
            planned_server = _planned(
                member, choice, kernel, pooled=pooled, children=children, ids=ids
            )
            planned_server = replace(planned_server, lists_probes=first)
        more = len(planned_server.probes) if planned_server.lists_probes else 0
        if probes + more > PROBES_MAX:
            full = f"at most {PROBES_MAX} probes at a time: choose with --pid"
            planned.append(PlannedServer(replace(server, id=0), Choice(AttachMode.NONE, full)))
            continue
        probes += more
        if agent is None:
            listed.add(resolution.file)
        number = 1 + sum(before.traced for before in planned)
        planned.append(replace(planned_server, server=replace(server, id=number)))
    return AttachPlan(tuple(planned))


def _planned(
    member: Member, choice: Choice, kernel: KernelFacts, *, pooled: bool, children: bool, ids: bool
) -> PlannedServer:
    """Plans a server as if it were the first of its file. `pooled`: the file's fact `pool`."""
    server, resolution = member.server, member.resolution
    on_symbols = choice.attach_mode is AttachMode.SYMBOL
    pool = pooled or (on_symbols and bool(resolution.no_names))
    support = support_of(server.flavour)
    reads = kernel.reads and not pool and support.ends_at_reads(resolution)
    boundary = support.boundary(resolution, next_read=reads)
    return PlannedServer(
        server,
        choice,
        # The program that was attached to a function last runs first: ids are of begun queries.
        probes=(resolution.ids if ids else ())
        + (boundary + resolution.names if on_symbols else ())
        + resolution.parallel
        + (resolution.children if children else ()),
        facts=support.facts(server, resolution, choice.attach_mode),
        library=resolution.library,
        library_handle=resolution.handle,
        notes=(
            *resolution.notes,
            *_unavailable_note(_NO_NAMES, on_symbols, resolution.no_names),
            *(resolution.symbol_notes if on_symbols else ()),
            *_unavailable_note(_NO_CHILDREN, children, resolution.no_children),
            *_unavailable_note(_NO_IDS, ids, resolution.no_ids),
        ),
        reports_children=children and bool(resolution.children),
        pool=pool,
        next_read=on_symbols and reads,
    )


def _with_agent(
    server: Server, choice: Choice, agent: Agent, facts: Mapping[str, int]
) -> PlannedServer:
    """Plans a server with an agent. Its probes are in a file that no other server shares."""
    note = "restarted, it has no agent: its requests then count as its background"
    return PlannedServer(
        server,
        choice,
        probes=agent.probes,
        facts=facts,
        notes=(note,),
        lists_probes=True,
        library=agent.library,
        library_handle=agent.handle,
    )


def _unavailable_note(what: str, wanted: bool, why: str) -> tuple[str, ...]:
    """Returns a note if something wanted is unavailable; `why` is empty if it is available."""
    return (f"{what}: {why}",) if wanted and why else ()


def _with_pids(servers: Sequence[Server], pids: Collection[int] | None) -> list[Server]:
    if not pids:
        return list(servers)
    listed = {tgid for server in servers for tgid in server.tgids}
    strangers = sorted(set(pids) - listed)
    if strangers:
        raise QjouleError(
            f"process {strangers[0]} is no database server that qjoule knows: see 'qjoule doctor'"
        )
    return [server for server in servers if set(server.tgids) & set(pids)]


def _check_wanted(servers: Sequence[Server], choices: Sequence[Choice], *, named: bool) -> None:
    """Raises `QjouleError` for a server that the user named, or if no server can be traced."""
    if not named and any(choice.traced for choice in choices):
        return
    for server, choice in zip(servers, choices, strict=True):
        if choice.refused and server.running:
            advice = "leave out --attach, or choose servers that have it with --pid"
            raise QjouleError(f"{server.label} {choice.why}; {advice}")


def _limit_servers(limit: int, choices: list[Choice]) -> list[Choice]:
    """Applies the tracer's limit on servers. Those beyond it are named, not dropped silently."""
    full = Choice(
        AttachMode.NONE, f"at most {limit} servers at a time: choose with --pid", exact=False
    )
    numbers = count(1)
    return [choice if not choice.traced or next(numbers) <= limit else full for choice in choices]


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
