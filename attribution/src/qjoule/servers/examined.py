# SPDX-License-Identifier: Apache-2.0
"""What is known of a candidate before its examination, and the result of the examination.

Both are plain data: a process without any rights returns its result as JSON (`examined_json`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from enum import StrEnum
from typing import Any

from qjoule.servers.access import FileIdentity
from qjoule.servers.listening import PORT_RANGE_DEFAULT
from qjoule.servers.resolution import Resolution
from qjoule.servers.types import Fact, Restart
from qjoule.shapes.safe_text import one_line

#: Limit for the list of what one process listens on.
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
    """What is known of a candidate before it is examined."""

    exe_name: str  #: of its executable, as the process sees it
    exe_id: tuple[int, int]  #: (device, inode) of it
    pid: int = 0  #: 0: an executable that does not run
    any_protocol: bool = False  #: examine it as a generic server, whatever its protocol
    silent: bool = False  #: also accept a generic server that listens on nothing
    vocabulary: bool = False  #: also read what ids of its statements depend on
    port_range: tuple[int, int] = PORT_RANGE_DEFAULT  #: ports that the kernel assigns to clients


@dataclass(frozen=True)
class Examined:
    """The result. `flavour` None: not a server; `problem` gives the reason if that is
    unexpected.
    """

    flavour: str | None = None
    version: str = ""
    problem: str = ""
    exe: FileIdentity | None = None  #: None: it could not be opened
    handle: int = 0
    exe_path: str = ""
    runs_as: str = ""  #: the name of a server that its file has another name than
    ports: tuple[int, ...] = ()
    sockets: tuple[str, ...] = ()
    udp_ports: tuple[int, ...] = ()
    inodes: frozenset[int] = frozenset()  #: of the sockets that it listens on
    encryption: Fact = _NO_FACT
    thread_pool: Fact = _NO_FACT
    compression: Fact = _PLAIN
    restart: Restart = _BY_EXECUTABLE
    facts: Mapping[str, int] = field(default_factory=dict, hash=False)  #: of its settings
    name: str = ""  #: of a generic one
    cpu_ticks: int = 0  #: of a generic one
    resolution: Resolution | None = None
    vocabulary: Mapping[str, int] = field(default_factory=dict, hash=False)
    no_vocabulary: str = ""

    def to_json(self) -> dict[str, Any]:
        """A document that `examined_json.examined_from_json` reads."""
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
