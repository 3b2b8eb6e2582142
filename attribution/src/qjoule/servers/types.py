# SPDX-License-Identifier: Apache-2.0
"""What is known of a database server before it is traced."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from qjoule.servers.access import FileIdentity
from qjoule.servers.owner import ROOT, Owner
from qjoule.servers.registry import server_of

if TYPE_CHECKING:  # slow to load, and most users of this module do not need it
    from qjoule.servers.resolution import Resolution


#: The flavour of a process with an unknown protocol, which therefore has no queries.
NO_PROTOCOL = "generic"
_PORTS_IN_LABEL = 3


@dataclass(frozen=True)
class Fact:
    """One fact of a configuration. `value` None: unknown; `source` gives the reason."""

    value: bool | None
    source: str


@dataclass(frozen=True)
class Restart:
    """Which processes that start later are the same server. `why` is one line for messages."""

    how: Literal["executable", "arguments", "never"]
    why: str = ""
    arguments: int = 0  #: hash of the command line, of `arguments`

    @property
    def argument(self) -> str:
        """The argument of `qjoule-tracer --restart`; empty: the executable is enough."""
        if self.how == "executable":
            return ""
        return f"{self.arguments:#x}" if self.how == "arguments" else "never"


@dataclass(frozen=True)
class Server:
    """A running server, or an installed executable that may start later (`tgids` empty)."""

    id: int  #: from 1, as in the attach plan
    flavour: str  #: what product it is: one of `registered.flavours()`
    version: str  #: "10.11.19", "" if the executable does not contain it
    exe_path: Path  #: for messages; `handle` identifies the file
    exe_name: str  #: the path as the server itself sees it
    exe_id: tuple[int, int]  #: (device, inode)
    tgids: tuple[int, ...]  #: the main process first
    ports: tuple[int, ...]
    sockets: tuple[str, ...]
    encryption: Fact  #: may a session be encrypted?
    thread_pool: Fact  #: may a session change its thread?
    name: str = ""  #: of a generic server: what the process is called
    udp_ports: tuple[int, ...] = ()  #: only determined for generic servers
    compression: Fact = Fact(False, "")  #: may requests be compressed?
    restart: Restart = Restart("executable")
    #: Numbers of its configuration by name, as `ServerSupport.configured` lists them.
    facts: Mapping[str, int] = field(default_factory=dict, hash=False)
    exe: FileIdentity | None = None  #: as it was when examined; None: it was not opened
    handle: int = 0  #: the root part's number for the executable; 0: none
    resolution: Resolution | None = None  #: what can be attached to, as found by examining it
    uid: int = 0  #: the user of these processes
    owner: Owner = ROOT  #: who decides about them
    container: str = ""  #: that it runs in: its id or name
    unit: str = ""  #: of systemd, without `.service`
    runs_as: str = ""  #: the name that it was started under, if its file has another one
    #: Numbers that its parser gives to words, if ids are asked for, and why there are none.
    vocabulary: Mapping[str, int] = field(default_factory=dict, hash=False, repr=False)
    no_vocabulary: str = ""
    apart: str = ""  #: what tells it from servers with the same name (`place.make_labels_unique`)

    @property
    def kind(self) -> int:
        """Its number for the tracer. Products with the same wire protocol share one."""
        return server_of(self.flavour).kind

    @property
    def program(self) -> str:
        """Its executable's path as it sees it, under the name that it was started under."""
        folder, _, name = self.exe_name.rpartition("/")
        return f"{folder}/{self.runs_as or name}"

    @property
    def running(self) -> bool:
        return bool(self.tgids)

    @property
    def major(self) -> int | None:
        """The first number of the version, None when unknown."""
        return major_of(self.version)

    @property
    def label(self) -> str:
        """A short name for people: `mariadb:3306`, `redis:6379@3f2a9c1b7d20`,
        `java:7000,7199,9042`.
        """
        return f"{self._label}@{self.apart}" if self.apart else self._label

    @property
    def _label(self) -> str:
        name = self.name or self.flavour
        ports = self.ports or self.udp_ports
        if ports and self.flavour == NO_PROTOCOL:
            shown = ",".join(map(str, ports[:_PORTS_IN_LABEL]))
            return f"{name}:{shown}{',…' if len(ports) > _PORTS_IN_LABEL else ''}"
        if ports:
            return f"{name}:{ports[0]}"
        if self.tgids:
            return f"{name}:pid-{self.tgids[0]}"
        return name


def major_of(version: str) -> int | None:
    """The first number of a version, None when unknown."""
    head = version.split(".", 1)[0]
    return int(head) if len(head) < 5 and head.isascii() and head.isdigit() else None
