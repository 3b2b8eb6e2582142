# SPDX-License-Identifier: Apache-2.0
"""What shared code has to know of one kind of server to find and to trace it.

Each server's folder has a `support.py` that exports a `ServerSupport` as `SUPPORT`; shared code
reaches them by `registered`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from qjoule.contract import Rung
from qjoule.servers.agent import Agent
from qjoule.servers.candidate import Candidate
from qjoule.servers.choice import Case, Choice
from qjoule.servers.elf import Executable
from qjoule.servers.jvm.process import ReachedJvm
from qjoule.servers.listening import Listening
from qjoule.servers.probe_site import SiteCost
from qjoule.servers.resolution import Resolution
from qjoule.servers.types import Fact, Server

_UNCOMPRESSED = Fact(False, "")


@dataclass(frozen=True)
class Identified:
    """Which product it is. Not `certain`: others are asked too, and who is certain is right."""

    flavour: str
    version: str = ""
    certain: bool = True


@dataclass(frozen=True)
class Running:
    """A process that was recognised."""

    candidate: Candidate
    flavour: str
    version: str
    listening: Listening


@dataclass(frozen=True)
class Settings:
    """How a running server is configured."""

    encryption: Fact  #: may sessions be encrypted?
    thread_pool: Fact  #: may a session change its thread?
    compression: Fact = _UNCOMPRESSED  #: may requests be compressed?
    first_port: int = 0  #: listed first if the server listens there: that of its clients
    facts: Mapping[str, int] = field(default_factory=dict)  #: all of `ServerSupport.configured`


@dataclass(frozen=True)
class AgentSupport:
    """How an agent is put into a server, for the rung of that name."""

    choice: Choice  #: of a server that has one
    #: Loads it; the second says whether it is to tell what clients say of their requests. Raises
    #: `CannotAttach`.
    put: Callable[[ReachedJvm, bool], Agent]


@dataclass(frozen=True)
class ServerSupport:
    """One server. What has no default every server needs.

    Whatever gets a `Candidate` or an `Executable` parses a stranger's bytes: it raises nothing but
    `QjouleError` and ends in time whatever they are.
    """

    name: str  #: of its folder and of its table in registry.toml
    flavours: Mapping[str, str]  #: products with this protocol, and their names for people
    #: Says how a running server is configured. Never raises: what cannot be read is a `Fact`
    #: without a value.
    settings: Callable[[Running], Settings]
    #: Finds what can be attached to in a candidate of this version. Raises `QjouleError`.
    resolve: Callable[[Candidate, str], Resolution]
    #: Decides how queries are found. Raises `QjouleError` for what the user wants and cannot have.
    choose_rung: Callable[[Case], Choice]

    executables: str = ""  #: pattern of the names of its executables, as a first sieve
    installed: tuple[str, ...] = ()  #: where packages put them: patterns below the root directory
    #: Whether an executable is this server's, by what is inside it. Raises `QjouleError`.
    identify: Callable[[Executable], Identified | None] = lambda _executable: None
    #: Whether a process of such an executable serves; others are left out.
    serves: Callable[[Candidate], bool] = lambda _candidate: True

    runtime: str = ""  #: name of the program that executes it ("java"), if it is no executable
    #: With `runtime`: whether a process of that program is this server.
    recognise: Callable[[Candidate], Identified | None] = lambda _candidate: None

    pool_when_installed: Fact | None = None  #: `thread_pool`, if no configuration changes it
    configured: tuple[str, ...] = ()  #: facts of the registry that `settings` finds
    resolved: tuple[str, ...] = ()  #: facts of the registry that `resolve` finds, all or none
    has_library: bool = False  #: its probes may be in another file than its executable
    symbol_only: tuple[str, ...] = ()  #: those of them that no other rung needs
    #: What all probes together cost that a query runs through, in ns, by the cost of each role's.
    boundary_cost_ns: Callable[[Mapping[str, SiteCost]], int] = lambda _costs: 0
    #: What is never seen of such a server, one line each.
    blind_spots: Callable[[Server], tuple[str, ...]] = lambda _server: ()
    agent: AgentSupport | None = None

    def facts(self, server: Server, resolution: Resolution, rung: Rung) -> dict[str, int]:
        """What is known of a planned server, for its BPF programs."""
        names = {*self.configured, *self.resolved}
        if rung is not Rung.SYMBOL:
            names -= set(self.symbol_only)
        found = {**server.facts, **resolution.facts}
        return {name: number for name, number in found.items() if name in names}
