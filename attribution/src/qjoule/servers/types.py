# SPDX-License-Identifier: Apache-2.0
"""Types: a database server before it is traced, a candidate before its examination, and the
examination's result.

The latter two are plain data: a process without any rights returns its result as JSON
(`examined_json`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from qjoule.servers.access import FileIdentity
from qjoule.servers.processes import PORT_RANGE_DEFAULT, ROOT, Owner
from qjoule.servers.registry import server_of
from qjoule.shapes.safe_text import one_line

if TYPE_CHECKING:
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
    """How later processes are recognised as the same server. `why` is one line for messages."""

    how: Literal["executable", "arguments", "never"]
    why: str = ""
    arguments: int = 0  #: hash of the command line, if `how` is `arguments`

    @property
    def argument(self) -> str:
        """Returns the argument of `qjoule-tracer --restart`; empty: the executable decides."""
        if self.how == "executable":
            return ""
        return f"{self.arguments:#x}" if self.how == "arguments" else "never"


@dataclass(frozen=True)
class Server:
    """A running server, or an installed executable that may start later (`tgids` empty)."""

    id: int  #: from 1, as in the attach plan
    flavour: str  #: its product: one of `registered.flavours()`
    version: str  #: "10.11.19", "" if the executable does not contain it
    exe_path: Path  #: for messages; `handle` identifies the file
    exe_name: str  #: the path as the server itself sees it
    exe_id: tuple[int, int]  #: (device, inode)
    tgids: tuple[int, ...]  #: the main process first
    ports: tuple[int, ...]
    sockets: tuple[str, ...]
    encryption: Fact  #: may a session be encrypted?
    thread_pool: Fact  #: may a session change its thread?
    name: str = ""  #: of a generic server: the process's name
    udp_ports: tuple[int, ...] = ()  #: only determined for generic servers
    compression: Fact = Fact(False, "")  #: may requests be compressed?
    restart: Restart = Restart("executable")
    #: Numbers of its configuration by name, see `ServerSupport.configured`.
    facts: Mapping[str, int] = field(default_factory=dict, hash=False)
    exe: FileIdentity | None = None  #: its state when examined; None: it was not opened
    handle: int = 0  #: the root part's number for the executable; 0: none
    resolution: Resolution | None = None  #: what can be attached to
    uid: int = 0  #: the user of its processes
    owner: Owner = ROOT  #: whose server it is
    container: str = ""  #: id or name of its container
    unit: str = ""  #: its unit of systemd, without `.service`
    runs_as: str = ""  #: the name that it was started under, if its file has another one
    #: Token numbers of its parser's keywords, if ids are asked for, and why there are none.
    vocabulary: Mapping[str, int] = field(default_factory=dict, hash=False, repr=False)
    no_vocabulary: str = ""
    apart: str = ""  #: a difference to servers of this name (`discovery.make_labels_unique`)

    @property
    def kind(self) -> int:
        """Its number for the tracer. Products with the same wire protocol share one."""
        return server_of(self.flavour).kind

    @property
    def program(self) -> str:
        """Its executable's path as the server sees it, with the name that it was started under."""
        folder, _, name = self.exe_name.rpartition("/")
        return f"{folder}/{self.runs_as or name}"

    @property
    def running(self) -> bool:
        return bool(self.tgids)

    @property
    def major(self) -> int | None:
        """The first number of the version, None if unknown."""
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
    """Returns the first number of a version, None if unknown."""
    head = version.split(".", 1)[0]
    return int(head) if len(head) < 5 and head.isascii() and head.isdigit() else None


#: Most ports and paths of one process.
LISTED_MAX = 1024
SOCKETS_MAX, SOCKET_PATH_MAX = 256, 128
INODES_MAX = 8192
PATH_MAX = 4096
#: Texts for people.
_MESSAGES = frozenset(
    (
        *("source", "why", "problem", "no_children", "no_names", "no_ids", "no_vocabulary"),
        *("symbol_notes", "notes"),
        *("reason", "instruction"),
    )
)
_NO_FACT = Fact(None, "it was not examined")
_PLAIN = Fact(False, "")
_BY_EXECUTABLE = Restart("executable")


@dataclass(frozen=True)
class Facts:
    """Facts about a candidate before it is examined."""

    exe_name: str  #: its executable's path, as the process sees it
    exe_id: tuple[int, int]  #: its executable's (device, inode)
    pid: int = 0  #: 0: an executable that does not run
    any_protocol: bool = False  #: examine it as a generic server, whatever its protocol
    silent: bool = False  #: also accept a generic server that listens on nothing
    vocabulary: bool = False  #: also read what the ids of its statements depend on
    port_range: tuple[int, int] = PORT_RANGE_DEFAULT  #: ports that the kernel assigns to clients


@dataclass(frozen=True)
class Examined:
    """The result of an examination. `flavour` None: not a server; `problem` gives the reason if
    that is unexpected."""

    flavour: str | None = None
    version: str = ""
    problem: str = ""
    exe: FileIdentity | None = None  #: None: it could not be opened
    handle: int = 0
    exe_path: str = ""
    runs_as: str = ""  #: the name that it was started under, if its file has another one
    ports: tuple[int, ...] = ()
    sockets: tuple[str, ...] = ()
    udp_ports: tuple[int, ...] = ()
    inodes: frozenset[int] = frozenset()  #: inodes of the sockets that it listens on
    encryption: Fact = _NO_FACT
    thread_pool: Fact = _NO_FACT
    compression: Fact = _PLAIN
    restart: Restart = _BY_EXECUTABLE
    facts: Mapping[str, int] = field(default_factory=dict, hash=False)  #: facts in its settings
    name: str = ""  #: a generic server's
    cpu_ticks: int = 0  #: a generic server's
    resolution: Resolution | None = None
    vocabulary: Mapping[str, int] = field(default_factory=dict, hash=False)
    no_vocabulary: str = ""

    def to_json(self) -> dict[str, Any]:
        """Returns a document that `examined_json.examined_from_json` reads."""
        return {field.name: _plain(getattr(self, field.name), field.name) for field in fields(self)}


def _plain(value: Any, name: str) -> Any:
    if is_dataclass(value):
        value = {
            field.name: _plain(getattr(value, field.name), field.name) for field in fields(value)
        }
    elif isinstance(value, Mapping):
        value = dict(value)
    elif isinstance(value, tuple | frozenset):
        items = sorted(value) if isinstance(value, frozenset) else value
        value = [_plain(item, name) for item in items]
    elif isinstance(value, bytes):
        value = value.hex()
    elif isinstance(value, StrEnum):
        value = str(value)
    elif isinstance(value, str):
        value = one_line(value) if name in _MESSAGES else value.replace("\0", " ")
    return value
