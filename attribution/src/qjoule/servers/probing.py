# SPDX-License-Identifier: Apache-2.0
"""Probes on an executable's functions: shared by the servers' `resolve`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from qjoule.errors import QjouleError
from qjoule.servers.candidate import Candidate
from qjoule.servers.elf import Executable, Symbol
from qjoule.servers.function_code import code_of
from qjoule.servers.probe_site import CODE_BYTES, inspect_site
from qjoule.servers.registry import servers
from qjoule.servers.resolution import FileKey, Probe, Resolution
from qjoule.servers.signatures import CannotResolve

OFFSET_MAX = 1 << 48  #: no file has probes beyond it


def without_probes(candidate: Candidate) -> Resolution:
    """For a candidate whose executable is not examined."""
    return Resolution(candidate.exe_id or (0, 0))


def file_key(executable: Executable) -> FileKey:
    """What uprobes on an executable are attached to."""
    device, inode = executable.identity.key
    # The same image in two containers is one file of the lower layer: one inode number but several
    # devices. A uprobe attaches to that one file.
    return executable.build_id or device, inode


def no_function_of(product: str) -> Callable[[Candidate, str], Resolution]:
    """The `resolve` of a server without a function that probes would be attached to.

    It raises QjouleError where not even the identity of the executable can be read.
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
    """A probe for each role.

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
    """The probes on these functions, or why there are none."""
    try:
        return probes_of(executable, functions(executable)), ""
    except QjouleError as error:
        return (), str(error)


def within_bounds(server: str, facts: dict[str, int]) -> dict[str, int]:
    """The facts, if they are within the registry's limits for the server.

    Raises:
        CannotResolve: one is too large.
    """
    largest = servers()[server].facts
    for name, number in facts.items():
        if number > largest[name]:
            raise CannotResolve(f"its {name} is {number:#x}, more than {largest[name]:#x}")
    return facts
