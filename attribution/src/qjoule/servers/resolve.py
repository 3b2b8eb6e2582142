"""What each server's executable offers: the probes of the symbol rung, or why there are none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from qjoule.contract import ServerKind
from qjoule.errors import QjouleError
from qjoule.servers.elf import Executable, Symbol, open_executable
from qjoule.servers.function_code import code_of
from qjoule.servers.postgres_memory import BackendMemory, backend_memory
from qjoule.servers.postgres_replies import send_buffer
from qjoule.servers.probe_site import CODE_BYTES, ProbeSite, inspect_site
from qjoule.servers.signatures import (
    BackendStates,
    Role,
    backend_states,
    boundary_functions,
    child_functions,
    name_functions,
    parallel_functions,
)
from qjoule.servers.types import Flavour, Server
from qjoule.servers.voltdb import VOLTDB_NOTES, HeapLayout, heap_layout, native_library

_X_PROTOCOL_PORT = 33060  # MySQL manual, "X Plugin Options and System Variables"
#: What a uprobe is attached to: (build id, else device; inode).
FileKey = tuple[str | int, int]


@dataclass(frozen=True)
class Probe:
    role: Role
    symbol: Symbol
    site: ProbeSite

    def summary(self) -> dict[str, Any]:
        return {
            "role": str(self.role),
            "symbol": self.symbol.name,
            "table": self.symbol.table,
            "offset": self.site.offset,
            "instruction": self.site.instruction,
            "site": self.site.reason,
        }

    @property
    def code(self) -> bytes:
        """The instruction that is at the site."""
        return self.site.code


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
    replies: int = 0  #: where a PostgreSQL keeps its replies (`postgres_replies`); 0: not known
    memory: BackendMemory | None = None  #: what the symbol rung reads of a PostgreSQL
    no_memory: tuple[str, ...] = ()  #: what it cannot read, one line each
    library: Path | None = None  #: that the probes are in, if it is not the executable
    heap: HeapLayout | None = None
    problem: str = ""  #: why there is no symbol rung
    notes: tuple[str, ...] = ()


def resolve(server: Server) -> Resolution:
    """What is found in the executable of `server`; what is not is said in `problem` or `notes`."""
    resolution = Resolution(server.exe_id, notes=_blind_spots(server))
    if server.flavour in (Flavour.GENERIC, Flavour.CASSANDRA):
        return resolution
    if server.flavour is Flavour.VOLTDB:
        return _resolve_voltdb(server, resolution)
    try:
        executable = open_executable(server.exe_path)
        # The same image in two containers is one file of the layer below, with one inode number
        # but several devices, and a uprobe goes to that one file.
        file: FileKey = (executable.build_id or server.exe_id[0], server.exe_id[1])
        resolution = replace(resolution, file=file)
        if server.kind is ServerKind.REDIS:
            return replace(resolution, problem="Redis has none")
        if server.flavour is Flavour.FERRETDB:
            return replace(resolution, problem="FerretDB has none")
        if server.kind is ServerKind.POSTGRES:
            resolution = _resolve_replies(executable, resolution)
            memory, missing = backend_memory(executable)
            resolution = replace(resolution, memory=memory, no_memory=missing)
        if executable.machine != "x64":
            raise QjouleError(f"probe sites are checked on x86-64 only, not {executable.machine}")
        if server.kind is ServerKind.POSTGRES:
            resolution = _resolve_parallel(executable, resolution)
        if server.kind is ServerKind.MYSQL:
            resolution = _resolve_mysql(executable, resolution)
        boundary = _probes(executable, boundary_functions(executable, server.kind))
        is_postgres = server.kind is ServerKind.POSTGRES
        states = backend_states(server.major) if is_postgres else None
    except QjouleError as error:
        return replace(resolution, problem=str(error))
    return replace(resolution, boundary=boundary, states=states)


def _resolve_voltdb(server: Server, resolution: Resolution) -> Resolution:
    process = Path("/proc") / str(server.tgids[0])
    try:
        path = native_library(process, server.version).path
        library = open_executable(path)
        if library.machine != "x64":
            raise QjouleError(f"probe sites are checked on x86-64 only, not {library.machine}")
        boundary = _probes(library, boundary_functions(library, server.kind))
        heap = heap_layout(process)
        status = path.stat()
    except QjouleError as error:
        return replace(resolution, problem=str(error))
    except OSError as error:
        return replace(resolution, problem=f"its native library: {error.strerror}")
    file = (status.st_dev, status.st_ino)
    return replace(resolution, file=file, boundary=boundary, library=path, heap=heap)


def _blind_spots(server: Server) -> tuple[str, ...]:
    if server.flavour is Flavour.GENERIC:
        return (server.restart.why,)
    if server.flavour is Flavour.VOLTDB:
        return VOLTDB_NOTES
    if server.compression.value is not False:
        return (
            f"requests that a driver compresses by zlib or zstd are one row in the live view "
            f"({server.compression.source})",
        )
    if server.flavour is Flavour.MYSQL and _X_PROTOCOL_PORT in server.ports:
        return (f"sessions of the X Protocol (port {_X_PROTOCOL_PORT}) count as server background",)
    return ()


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
        probes.append(Probe(role, symbol, inspect_site(code, offset)))
    return tuple(probes)
