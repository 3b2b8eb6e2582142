# SPDX-License-Identifier: Apache-2.0
"""What can be attached to in a server's executable, as found by examining it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from qjoule.servers.elf import Symbol
from qjoule.servers.probe_site import ProbeSite

#: What a uprobe is attached to: (build id, else device; inode).
FileKey = tuple[str | int, int]


@dataclass(frozen=True)
class Probe:
    role: str  #: one of the registry's
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
    children: tuple[Probe, ...] = ()  #: probes that report a procedure's statements, if requested
    no_children: str = ""  #: why there are none
    #: probes that report a session's user and database, beside `boundary`
    names: tuple[Probe, ...] = ()
    no_names: str = ""
    ids: tuple[Probe, ...] = ()  #: probes that report statements' ids, if requested
    no_ids: str = ""
    #: Numbers for the BPF programs: all that `ServerSupport.resolved` lists, or none.
    facts: Mapping[str, int] = field(default_factory=dict, hash=False)
    symbol_notes: tuple[str, ...] = ()  #: what is missing on the symbol rung, one line each
    #: path of the file with the probes, for messages, if that is not the executable
    library: str = ""
    handle: int = 0  #: the root part's number for `library`
    problem: str = ""  #: why there is no symbol rung
    notes: tuple[str, ...] = ()

    def without_uprobes(
        self, missing: str = "there are no uprobes, or not with these rights"
    ) -> Resolution:
        """What is left for the socket rung where none can be attached."""
        notes = self.notes
        if self.parallel:
            lacks = (
                "work of its parallel and I/O workers is background, and what it skips is counted"
            )
            notes = (*notes, f"{lacks}: {missing}")
        return replace(
            self,
            parallel=(),
            children=(),
            no_children=self.no_children or missing,
            ids=(),
            no_ids=self.no_ids or missing,
            notes=notes,
        )


@dataclass
class Agent:
    """An agent that is in a JVM until `close()`."""

    library: str  #: path of the file with the marker functions, for messages
    handle: int  #: the root part's number for it
    probes: tuple[Probe, ...]
    _lease: int

    def close(self) -> None:
        """Has the agent removed, which takes a moment. May be called twice."""
        lease, self._lease = self._lease, -1
        if lease >= 0:
            os.close(lease)
