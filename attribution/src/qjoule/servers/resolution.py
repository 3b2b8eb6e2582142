# SPDX-License-Identifier: Apache-2.0
"""Describes what can be attached to in a server's executable, as found by examining it.

Probes on an executable's functions are shared by the servers' `resolve`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from qjoule.errors import QjouleError
from qjoule.servers.candidate import Candidate
from qjoule.servers.elf import Executable, Symbol
from qjoule.servers.function_code import CannotResolve, code_of
from qjoule.servers.probe_site import CODE_BYTES, ProbeSite, inspect_site
from qjoule.servers.registry import servers

#: Identity of a file for uprobes: (build id, or else device; inode).
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
    children: tuple[Probe, ...] = ()  #: probes that report statements of procedures, if requested
    no_children: str = ""  #: why `children` is empty
    #: Probes that report a session's user and database, besides `boundary`.
    names: tuple[Probe, ...] = ()
    no_names: str = ""
    ids: tuple[Probe, ...] = ()  #: probes that report statements' ids, if requested
    no_ids: str = ""
    #: Numbers for the BPF programs: all in `ServerSupport.resolved`, or none.
    facts: Mapping[str, int] = field(default_factory=dict, hash=False)
    symbol_notes: tuple[str, ...] = ()  #: what the symbol mode misses, one line each
    #: Path of the file with the probes, for messages, if that is not the executable.
    library: str = ""
    handle: int = 0  #: the root part's number for `library`
    problem: str = ""  #: why there is no symbol mode
    notes: tuple[str, ...] = ()

    def without_uprobes(
        self, missing: str = "there are no uprobes, or not with these rights"
    ) -> Resolution:
        """Returns what remains for the socket mode if no uprobe can be attached."""
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
    handle: int  #: the root part's number for the library
    probes: tuple[Probe, ...]
    _lease: int

    def close(self) -> None:
        """Makes the JVM remove the agent, which takes a moment. May be called twice."""
        lease, self._lease = self._lease, -1
        if lease >= 0:
            os.close(lease)


OFFSET_MAX = 1 << 48  #: largest offset of a probe in a file


def without_probes(candidate: Candidate, _version: str = "") -> Resolution:
    """Returns the resolution of a candidate whose executable is not examined."""
    return Resolution(candidate.exe_id or (0, 0))


def file_key(executable: Executable) -> FileKey:
    """Returns the identity of an executable for uprobes."""
    device, inode = executable.identity.key
    # An image in two containers is one file of the lower layer: it has one inode number but several
    # devices. A uprobe attaches to that file.
    return executable.build_id or device, inode


def no_function_of(product: str) -> Callable[[Candidate, str], Resolution]:
    """Returns a `resolve` for a server without functions to attach probes to.

    It raises QjouleError if not even the identity of the executable can be read.
    """

    def resolve(candidate: Candidate, _version: str) -> Resolution:
        return Resolution(file_key(candidate.executable), problem=f"{product} has none")

    return resolve


def check_machine(executable: Executable) -> None:
    """
    Raises:
        QjouleError: probe sites in such an executable cannot be checked.
    """
    if executable.machine != "x64":
        raise QjouleError(f"probe sites are checked on x86-64 only, not {executable.machine}")


def probes_of(executable: Executable, functions: Mapping[str, Symbol]) -> tuple[Probe, ...]:
    """Makes a probe for each role.

    Raises:
        QjouleError: one is not in the file.
    """
    probes = []
    for role, symbol in functions.items():
        offset, code = code_of(executable, symbol, CODE_BYTES)
        if offset >= OFFSET_MAX:
            raise QjouleError(f"{symbol.name} is at offset {offset:#x} of the file")
        probes.append(Probe(role, symbol, inspect_site(code, offset)))
    return tuple(probes)


def probes_or_why(
    executable: Executable, functions: Callable[[Executable], Mapping[str, Symbol]]
) -> tuple[tuple[Probe, ...], str]:
    """Returns the probes on these functions, or why there are none."""
    try:
        return probes_of(executable, functions(executable)), ""
    except QjouleError as error:
        return (), str(error)


def within_bounds(server: str, facts: dict[str, int]) -> dict[str, int]:
    """Returns the facts, if they are within the registry's limits for the server.

    Raises:
        CannotResolve: one is too large.
    """
    largest = servers()[server].facts
    for name, number in facts.items():
        if number > largest[name]:
            raise CannotResolve(f"its {name} is {number:#x}, more than {largest[name]:#x}")
    return facts
