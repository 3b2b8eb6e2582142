# SPDX-License-Identifier: Apache-2.0
"""Decides for each server how its queries are found, and resolves the probes for that."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import count

from qjoule.contract import AttachMode
from qjoule.errors import QjouleError
from qjoule.servers.attach_plan import AttachPlan, PlannedServer
from qjoule.servers.choice import Choice, KernelFacts
from qjoule.servers.registered import Member, decide, falling_back, resolution_of, support_of
from qjoule.servers.resolution import Agent, FileKey
from qjoule.servers.types import Server

SERVERS_MAX = 64  #: QJ_MAX_SERVERS of bpf/shared.h
PROBES_MAX = 512  #: MAX_PROBES of tracer/options.h

_NO_NAMES = "users and databases of its sessions are not known"
_NO_CHILDREN = "statements of procedures are not told apart"
_NO_IDS = "ids that it gives to statements are not known"


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
