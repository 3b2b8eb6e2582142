# SPDX-License-Identifier: Apache-2.0
"""Looks up the servers that qjoule knows: the exports of all servers in registry.toml.

The first call loads all of them. That must happen before a process gives up the right to open files
(`examine.prepare`).

They determine a server's attach mode in a plan (the cheapest that is exact for its configuration),
what can be attached to, what is never seen, and whether it can have an agent.

A probe is hit by all processes that run the file, so servers that run the same executable share one
attach mode. A server of one owner must not get a probe into a file that another owner's server runs
without probes: it is traced without probes, or not at all. Exempt are the host's own services and
servers that the user named.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from types import ModuleType

from qjoule.contract import AttachMode
from qjoule.errors import QjouleError
from qjoule.servers import registry
from qjoule.servers.choice import Case, Choice, KernelFacts
from qjoule.servers.jvm.process import Reach
from qjoule.servers.registry import servers
from qjoule.servers.resolution import Agent, FileKey, Resolution
from qjoule.servers.support import ServerSupport, Supported
from qjoule.servers.types import NO_PROTOCOL, Server


@cache
def supported() -> tuple[ServerSupport, ...]:
    """Returns all servers, in the order of registry.toml."""
    return tuple(_support(name) for name in servers())


@cache
def runtimes() -> frozenset[str]:
    """Returns the programs that execute servers which are not executables themselves."""
    return frozenset(support.runtime for support in supported() if support.runtime)


@cache
def documented() -> tuple[Supported, ...]:
    """Returns the rows of docs/servers.md from all servers' folders, in the registry's order."""
    return tuple(row for support in supported() for row in module_of(support.name).DOCUMENTED)


def support_of(flavour: str) -> ServerSupport:
    """Returns the server of this product.

    Raises:
        KeyError: there is no such flavour.
    """
    return _by_flavour()[flavour]


def system_name(flavour: str) -> str:
    """Returns OpenTelemetry's `db.system.name` of a product; for an unknown one its own name."""
    support = _by_flavour().get(flavour)
    return (support.system if support else "") or flavour


def libraries_of(flavour: str) -> tuple[str, ...]:
    """Returns `ServerSupport.libraries` of a product; empty for an unknown one."""
    support = _by_flavour().get(flavour)
    return support.libraries if support else ()


@cache
def _by_flavour() -> Mapping[str, ServerSupport]:
    return {flavour: support for support in supported() for flavour in support.flavours}


def module_of(name: str) -> ModuleType:
    """Returns the module `support` of a server's folder, or the module that is the whole server."""
    module = import_module(f"qjoule.servers.{name}")
    return import_module(f"{module.__name__}.support") if hasattr(module, "__path__") else module


def _support(name: str) -> ServerSupport:
    support = module_of(name).SUPPORT
    assert isinstance(support, ServerSupport)
    assert support.name == name
    return support


def resolution_of(server: Server) -> Resolution:
    """Returns the result of its examination, with what is never seen of such a server."""
    notes = support_of(server.flavour).blind_spots(server)
    if server.flavour == NO_PROTOCOL:  # including servers whose protocol is not used on purpose
        return Resolution(server.exe_id, notes=notes)
    if server.resolution is None:
        return Resolution(server.exe_id, notes=notes, problem="its executable was not examined")
    return replace(server.resolution, notes=(*notes, *server.resolution.notes))


def choose_attach_mode(
    server: Server,
    kernel: KernelFacts,
    symbol_problem: str,
    wanted: AttachMode | None = None,
    shared_executable: str = "",
    *,
    agent: bool = False,
) -> Choice:
    """Decides on a server's attach mode.

    Args:
        symbol_problem: why the symbol mode is impossible, empty when it is possible.
        wanted: the user's choice.
        shared_executable: why another server of the same file needs probes in it.
        agent: qjoule's agent has been put into it.
    """
    support = support_of(server.flavour)
    if agent and support.agent is not None:
        return support.agent.choice
    if support.symbol_loops and kernel.early:
        lacks = "bpf_loop() (5.17), or maps for processes without rights (5.19)"
        symbol_problem = symbol_problem or f"the kernel lacks {lacks}"
    case = Case(server, kernel, symbol_problem, wanted, shared_executable)
    no_symbol = case.no_probes
    if AttachMode.SYMBOL.name.lower() not in registry.server_of(server.flavour).attach_modes:
        no_symbol = f"{support.flavours[server.flavour]} has none"
        no_symbol += "" if support.agent is None else ", but --agent shows them"
    return replace(support.choose_attach_mode(case), no_symbol=no_symbol)


def put_agents(
    servers: Iterable[Server],
    reach: Reach,
    pids: Collection[int] = (),
    *,
    client_tags: bool = False,
) -> dict[int, Agent]:
    """Puts an agent into each running server that can have one, or those of `pids`; returns them by
    process.

    `client_tags`: the agents also report tags that clients send with their requests.

    Raises:
        QjouleError: there is no such server, or one of them cannot have an agent.
    """
    wanted = [
        server
        for server in servers
        if support_of(server.flavour).agent is not None
        and server.running
        and (not pids or set(pids) & set(server.tgids))
    ]
    if not wanted:
        names = (name for kind in supported() if kind.agent for name in kind.flavours.values())
        raise QjouleError(
            f"--agent is for {' and '.join(names)}, and none runs: see 'qjoule doctor'"
        )
    agents: dict[int, Agent] = {}
    try:
        for server in wanted:
            support = support_of(server.flavour).agent
            assert support is not None
            with reach(server.tgids[0], server.exe_id) as jvm:
                agents[jvm.pid] = support.put(jvm, client_tags)
    except BaseException:
        for agent in agents.values():
            agent.close()
        raise
    return agents


@dataclass(frozen=True)
class Member:
    """A server and its wanted attach mode, among servers that may run the same file."""

    server: Server
    resolution: Resolution
    agent: Agent | None
    wanted: AttachMode | None  #: the user's choice

    @property
    def file(self) -> FileKey:
        return self.resolution.file

    @property
    def may_pool(self) -> bool:
        return self.server.thread_pool.value is not False

    def choice(self, kernel: KernelFacts, problem: str = "", shared: str = "") -> Choice:
        """`problem`: why it must not get probes; `shared`: why the file gets probes anyway."""
        problem = self.resolution.problem or problem
        with_agent = self.agent is not None
        return choose_attach_mode(
            self.server, kernel, problem, self.wanted, shared, agent=with_agent
        )


@dataclass(frozen=True)
class Decided:
    choices: list[Choice]
    pooled: frozenset[FileKey]  #: files that some server with a possible thread pool runs


def decide(members: Sequence[Member], kernel: KernelFacts, *, named: bool) -> Decided:
    """Makes one choice per member. `named`: the user named all of these servers."""
    alone = [(member, member.choice(kernel)) for member in members]
    on_symbols = [m for m, c in alone if c.attach_mode is AttachMode.SYMBOL]
    without = [m for m, c in alone if c.traced and c.attach_mode is not AttachMode.SYMBOL]
    probed: dict[FileKey, str] = {}
    for member in on_symbols:
        if named or _other_owner(member, without) is None:
            why = f"{member.server.label} runs the same executable and needs its probes"
            probed.setdefault(member.file, why)
    pooled = frozenset(
        member.file
        for member in members
        if member.may_pool and (named or _other_owner(member, members) is None)
    )

    def problem(member: Member) -> str:
        if member.file not in probed:
            return _why_other(_other_owner(member, without), "does without probes")
        if member.may_pool and member.file not in pooled:
            return _why_other(
                _other_owner(member, members), "needs other probes, without a thread pool"
            )
        return ""

    choices = [
        member.choice(
            kernel,
            problem(member) if choice.attach_mode is AttachMode.SYMBOL else "",
            probed.get(member.file, ""),
        )
        for member, choice in alone
    ]
    return Decided(
        [
            choice if choice.no_symbol != "" else replace(choice, no_symbol=problem(member))
            for member, choice in zip(members, choices, strict=True)
        ],
        pooled,
    )


def falling_back(members: Sequence[Member], kernel: KernelFacts) -> list[Member]:
    """Drops the user's choice for files of which some server cannot have it."""
    files = {member.file for member in members if member.choice(kernel).refused}
    return [replace(member, wanted=None) if member.file in files else member for member in members]


def _other_owner(member: Member, others: Iterable[Member]) -> Server | None:
    """Returns a server of another owner for which this one must not decide, if there is one."""
    owner = member.server.owner
    if owner.trusted:
        return None
    return next(
        (
            other.server
            for other in others
            if other.file == member.file and other.server.owner != owner
        ),
        None,
    )


def _why_other(other: Server | None, what: str) -> str:
    if other is None:
        return ""
    return f"{other.label} ({other.owner}) runs the same executable and {what}: choose with --pid"
