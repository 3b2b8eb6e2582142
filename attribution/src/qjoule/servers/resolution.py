"""What can be attached to in a server's executable, as examining it has found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from qjoule.servers.elf import Symbol
from qjoule.servers.postgres.memory import BackendMemory
from qjoule.servers.probe_site import ProbeSite
from qjoule.servers.signatures import BackendStates, Role
from qjoule.servers.voltdb.find import HeapLayout

#: What a uprobe is attached to: (build id, else device; inode).
FileKey = tuple[str | int, int]


@dataclass(frozen=True)
class Probe:
    role: Role
    symbol: Symbol
    site: ProbeSite

    @property
    def code(self) -> bytes:
        """The whole instruction at the site."""
        return self.site.code

    def summary(self) -> dict[str, Any]:
        return {
            "role": str(self.role),
            "symbol": self.symbol.name,
            "table": self.symbol.table,
            "offset": self.site.offset,
            "instruction": self.site.instruction,
            "site": self.site.reason,
        }


@dataclass(frozen=True)
class Resolution:
    """What can be attached to in the executable of one server."""

    file: FileKey
    boundary: tuple[Probe, ...] = ()
    parallel: tuple[Probe, ...] = ()
    children: tuple[Probe, ...] = ()  #: that tell a procedure's statements, if that is wanted
    no_children: str = ""  #: why there are none
    names: tuple[Probe, ...] = ()  #: that tell a session's user and database, beside `boundary`
    no_names: str = ""
    states: BackendStates | None = None
    replies: int = 0  #: where a PostgreSQL keeps its replies (`postgres.replies`); 0: not known
    memory: BackendMemory | None = None  #: what the symbol rung reads of a PostgreSQL
    no_memory: tuple[str, ...] = ()  #: what it cannot read, one line each
    library: str = ""  #: path of what the probes are in, for people, if it is not the executable
    handle: int = 0  #: the root part's number for `library`
    heap: HeapLayout | None = None
    problem: str = ""  #: why there is no symbol rung
    notes: tuple[str, ...] = ()
