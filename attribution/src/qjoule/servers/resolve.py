"""What each server's executable offers: the probes of the symbol rung, or why there are none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from qjoule.contract import ServerKind
from qjoule.errors import QjouleError
from qjoule.servers.candidate import Candidate
from qjoule.servers.elf import Executable, Symbol, open_executable
from qjoule.servers.function_code import code_of
from qjoule.servers.postgres.memory import backend_memory
from qjoule.servers.postgres.replies import send_buffer
from qjoule.servers.probe_site import CODE_BYTES, inspect_site
from qjoule.servers.resolution import FileKey, Probe, Resolution
from qjoule.servers.signatures import (
    Role,
    backend_states,
    boundary_functions,
    child_functions,
    name_functions,
    parallel_functions,
)
from qjoule.servers.types import Flavour, major_of
from qjoule.servers.voltdb.find import heap_layout, native_library

OFFSET_MAX = 1 << 48  #: no file has probes beyond it


def resolve(candidate: Candidate, flavour: Flavour, version: str) -> Resolution:
    """What is found in its executable; what is not is said in `problem` or `notes`."""
    none = Resolution(candidate.exe_id or (0, 0))
    if flavour in (Flavour.GENERIC, Flavour.CASSANDRA):
        return none
    if flavour is Flavour.VOLTDB:
        return _resolve_voltdb(candidate, version, none)
    try:
        return _resolve_executable(candidate.executable, flavour, version)
    except QjouleError as error:
        return replace(none, problem=str(error))


def _resolve_executable(executable: Executable, flavour: Flavour, version: str) -> Resolution:
    """Raises `QjouleError`: it cannot even be read what file it is."""
    device, inode = executable.identity.key
    # The same image in two containers is one file of the layer below, with one inode number
    # but several devices, and a uprobe goes to that one file.
    file: FileKey = (executable.build_id or device, inode)
    resolution, kind = Resolution(file), flavour.kind
    is_postgres = kind is ServerKind.POSTGRES
    try:
        if kind is ServerKind.REDIS:
            return replace(resolution, problem="Redis has none")
        if flavour is Flavour.FERRETDB:
            return replace(resolution, problem="FerretDB has none")
        if is_postgres:
            resolution = _resolve_replies(executable, resolution)
            memory, missing = backend_memory(executable)
            resolution = replace(resolution, memory=memory, no_memory=missing)
        _check_machine(executable)
        if is_postgres:
            resolution = _resolve_parallel(executable, resolution)
        if kind is ServerKind.MYSQL:
            resolution = _resolve_mysql(executable, resolution)
        boundary = _probes(executable, boundary_functions(executable, kind))
        states = backend_states(major_of(version)) if is_postgres else None
    except QjouleError as error:
        return replace(resolution, problem=str(error))
    return replace(resolution, boundary=boundary, states=states)


def _resolve_voltdb(candidate: Candidate, version: str, resolution: Resolution) -> Resolution:
    access = candidate.access
    try:
        mapping = native_library(access, version)
        file = access.mapped(mapping.base, mapping.end)
        library = open_executable(file)
        _check_machine(library)
        boundary = _probes(library, boundary_functions(library, ServerKind.VOLTDB))
        heap = heap_layout(access)
    except QjouleError as error:
        return replace(resolution, problem=str(error))
    return replace(
        resolution,
        file=library.identity.key,
        boundary=boundary,
        library=file.path,
        handle=file.handle,
        heap=heap,
    )


def _check_machine(executable: Executable) -> None:
    if executable.machine != "x64":
        raise QjouleError(f"probe sites are checked on x86-64 only, not {executable.machine}")


def _resolve_parallel(executable: Executable, resolution: Resolution) -> Resolution:
    parallel, why = _probes_or_why(executable, parallel_functions)
    notes = (f"parallel workers count as server background: {why}",) if why else ()
    return replace(resolution, parallel=parallel, notes=resolution.notes + notes)


def _resolve_replies(executable: Executable, resolution: Resolution) -> Resolution:
    try:
        return replace(resolution, replies=send_buffer(executable))
    except QjouleError as error:
        note = f"errors and rows of its queries are not known: {error}"
        return replace(resolution, notes=(*resolution.notes, note))


def _resolve_mysql(executable: Executable, resolution: Resolution) -> Resolution:
    children, no_children = _probes_or_why(executable, child_functions)
    names, no_names = _probes_or_why(executable, name_functions)
    return replace(
        resolution, children=children, no_children=no_children, names=names, no_names=no_names
    )


def _probes_or_why(
    executable: Executable, functions: Callable[[Executable], dict[Role, Symbol]]
) -> tuple[tuple[Probe, ...], str]:
    """The probes on these functions, or why there are none."""
    try:
        return _probes(executable, functions(executable)), ""
    except QjouleError as error:
        return (), str(error)


def _probes(executable: Executable, functions: dict[Role, Symbol]) -> tuple[Probe, ...]:
    probes = []
    for role, symbol in functions.items():
        offset, code = code_of(executable, symbol, CODE_BYTES)
        if offset >= OFFSET_MAX:
            raise QjouleError(f"{symbol.name} is at offset {offset:#x} of the file")
        probes.append(Probe(role, symbol, inspect_site(code, offset)))
    return tuple(probes)
