# SPDX-License-Identifier: Apache-2.0
"""Defines what shared code must know of one kind of server to find and trace it.

Each server's folder has a `support.py` that exports a `ServerSupport` as `SUPPORT`, and as
`DOCUMENTED` its rows of docs/servers.md; shared code gets them from `registered`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from qjoule.contract import AttachMode
from qjoule.servers.access import Opened
from qjoule.servers.candidate import Candidate
from qjoule.servers.choice import Case, Choice
from qjoule.servers.elf import Executable
from qjoule.servers.jvm.process import ReachedJvm
from qjoule.servers.probe_site import SiteCost
from qjoule.servers.processes import Listening
from qjoule.servers.resolution import Agent, Probe, Resolution
from qjoule.servers.types import Fact, Server

_UNCOMPRESSED = Fact(False, "")


@dataclass(frozen=True)
class Identified:
    """A recognised product. If not `certain`, a certain result of another server wins."""

    flavour: str
    version: str = ""
    certain: bool = True


@dataclass(frozen=True)
class Running:
    """A process that was recognised as a server."""

    candidate: Candidate
    flavour: str
    version: str
    listening: Listening


@dataclass(frozen=True)
class Settings:
    """The configuration of a running server."""

    encryption: Fact  #: may sessions be encrypted?
    thread_pool: Fact  #: may a session change its thread?
    compression: Fact = _UNCOMPRESSED  #: may requests be compressed?
    first_port: int = 0  #: its usual client port: listed first if it listens there
    facts: Mapping[str, int] = field(default_factory=dict)  #: all of `ServerSupport.configured`


@dataclass(frozen=True)
class AgentSupport:
    """How an agent is put into a server, for the attach mode of that name."""

    choice: Choice  #: the choice for a server with an agent
    #: Loads the agent. The second argument is true if it should report tags that clients send.
    #: Raises `CannotAttach`.
    put: Callable[[ReachedJvm, bool], Agent]


@dataclass(frozen=True)
class ServerSupport:
    """Support of one server. Every server needs the members that have no default.

    Functions that get a `Candidate` or an `Executable` parse untrusted bytes. Whatever these are,
    the functions raise only `QjouleError` and end in time.
    """

    name: str  #: names its folder, and its table in registry.toml
    flavours: Mapping[str, str]  #: products with this protocol, and their display names
    #: Reads how a running server is configured. Never raises: what cannot be read is a `Fact`
    #: without a value.
    settings: Callable[[Running], Settings]
    #: Finds what can be attached to in a candidate of this version. Raises `QjouleError`.
    resolve: Callable[[Candidate, str], Resolution]
    #: Decides how queries are found. Raises `QjouleError` if the user's choice is impossible.
    choose_attach_mode: Callable[[Case], Choice]

    system: str = ""  #: its `db.system.name` in OpenTelemetry, if that is not its flavour
    executables: str = ""  #: pattern of names of its executables, a pre-filter
    installed: tuple[str, ...] = ()  #: where packages put them: patterns below the root directory
    #: Recognises an executable as this server's by its content. Raises `QjouleError`.
    identify: Callable[[Executable], Identified | None] = lambda _executable: None
    #: Returns true if a process of such an executable serves clients. Others are left out.
    serves: Callable[[Candidate], bool] = lambda _candidate: True

    runtime: str = ""  #: the program that runs it ("java"), if it is no executable
    #: With `runtime`: returns true if a process of that program is this server.
    recognise: Callable[[Candidate], Identified | None] = lambda _candidate: None

    pool_when_installed: Fact | None = None  #: `thread_pool`, if no configuration changes it
    configured: tuple[str, ...] = ()  #: facts of the registry that `settings` finds
    resolved: tuple[str, ...] = ()  #: facts of the registry that `resolve` finds, all or none
    has_library: bool = False  #: probes may be in another file than the executable
    symbol_loops: bool = False  #: its programs on the symbol mode need bpf_loop() (Linux 5.17)
    symbol_only: tuple[str, ...] = ()  #: facts in `resolved` that only the symbol mode needs
    #: The symbol mode sets the fact `next-read` if the kernel shows reads of sockets and the facts
    #: `reads_need` are known. It then omits these roles of `boundary`, and uses the next ones.
    replaced_by_reads: tuple[str, ...] = ()
    beside_reads: tuple[str, ...] = ()
    reads_need: tuple[str, ...] = ()
    #: Returns the cost in ns of all probes that a query hits, from the cost of each role's probe.
    boundary_cost_ns: Callable[[Mapping[str, SiteCost]], int] = lambda _costs: 0
    #: Reads from an executable what the ids of statements depend on: numbers by word. Called if the
    #: user asks for ids. Raises `QjouleError`.
    vocabulary: Callable[[Executable, str], Mapping[str, int]] | None = None
    #: Reads the names of plan nodes' kinds, by number, from this file, which it closes; none if the
    #: file is not this server's, or does not have this build id.
    node_kinds: Callable[[Opened, str], Mapping[int, str]] | None = None
    #: Directories of libraries that a process maps only when it needs them, relative to that of the
    #: executable. Only the first one that has libraries is used.
    libraries: tuple[str, ...] = ()
    #: Returns what is never seen of such a server, one line each.
    blind_spots: Callable[[Server], tuple[str, ...]] = lambda _server: ()
    agent: AgentSupport | None = None

    def may_be_named(self, name: str) -> bool:
        """Returns true if an executable of this server may have this name."""
        pattern = rf"({self.executables})([-_.].*)?"
        return bool(self.executables) and re.fullmatch(pattern, name) is not None

    def facts(
        self, server: Server, resolution: Resolution, attach_mode: AttachMode
    ) -> dict[str, int]:
        """Returns facts about a planned server, for its BPF programs."""
        names = {*self.configured, *self.resolved}
        if attach_mode is not AttachMode.SYMBOL:
            names -= set(self.symbol_only)
        facts = {**server.facts, **resolution.facts}
        return {name: number for name, number in facts.items() if name in names}

    def ends_at_reads(self, resolution: Resolution) -> bool:
        """Returns true if reads of sockets can end its queries on the symbol mode."""
        all_known = all(resolution.facts.get(fact) for fact in self.reads_need)
        roles = {probe.role for probe in resolution.boundary}
        return bool(self.replaced_by_reads) and all_known and roles.issuperset(self.beside_reads)

    def boundary(self, resolution: Resolution, *, next_read: bool) -> tuple[Probe, ...]:
        """Returns the probes of `resolution` that show queries."""
        out = self.replaced_by_reads if next_read else self.beside_reads
        return tuple(probe for probe in resolution.boundary if probe.role not in out)


@dataclass(frozen=True)
class Mode:
    """A configuration of a server that decides how it is traced."""

    title: str
    encryption: bool | None = False  #: may sessions be encrypted? None: unknown
    thread_pool: bool | None = False  #: may a session change its thread?
    wanted: AttachMode | None = None  #: an attach mode that the user has to request


@dataclass(frozen=True)
class Functions:
    """Functions that the symbol mode looks for, in some versions."""

    versions: str
    names: tuple[str, ...]  #: empty: there is no symbol mode
    tested: str = "no"  #: versions that the tests run


@dataclass(frozen=True)
class Supported:
    flavour: str
    name: str
    modes: tuple[Mode, ...]
    tested: tuple[str, ...] = ()  #: versions that the tests run, as discovery reads them
    functions: tuple[Functions, ...] = ()


PLAIN = Mode("plain text")
TLS = Mode("TLS possible", encryption=True)
UNKNOWN = Mode("configuration unknown", encryption=None, thread_pool=None)
#: For a server with a thread per connection, or a thread pool.
THREAD_MODES = (
    PLAIN,
    TLS,
    Mode("thread pool", thread_pool=True),
    Mode("thread pool, TLS possible", encryption=True, thread_pool=True),
    UNKNOWN,
)
