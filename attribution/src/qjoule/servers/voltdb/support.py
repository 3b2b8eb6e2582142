# SPDX-License-Identifier: Apache-2.0
"""Supports VoltDB, a JVM whose site threads execute plan fragments in a native library: recognises
it, reads its settings, and decides its attach mode: probes on the function of all its SQL.

A partition's site thread runs one procedure after the other. All their SQL goes through one native
function, `ExecutionEngine.nativeExecutePlanFragments`, which gets the transaction's id. The
procedure's name and the batch's SQL texts are in fields of the engine object that the function is
called on (org/voltdb/jni/ExecutionEngine.java, `m_currentProcedureName` and `m_sqlTexts`). The
fields' positions are read from the JVM once (`servers.jvm.hotspot`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from enum import StrEnum
from itertools import pairwise

from qjoule.contract import AttachMode
from qjoule.errors import QjouleError
from qjoule.servers.access import Access, ProcFile, mapped_files
from qjoule.servers.access import Mapping as MappedFile
from qjoule.servers.candidate import Candidate
from qjoule.servers.choice import Case, Choice, as_wanted
from qjoule.servers.elf import Executable, Symbol, open_executable
from qjoule.servers.function_code import the_one
from qjoule.servers.jvm.hotspot import CannotRead, HotSpot, Memory, open_hotspot
from qjoule.servers.probe_site import SiteCost
from qjoule.servers.resolution import (
    Resolution,
    check_machine,
    probes_of,
    within_bounds,
    without_probes,
)
from qjoule.servers.support import (
    Functions,
    Identified,
    Mode,
    Running,
    ServerSupport,
    Settings,
    Supported,
)
from qjoule.servers.types import Fact, Server

MAIN_CLASS = "org.voltdb.VoltDB"
#: Versions whose native function has the arguments read by bpf/voltdb/symbol.bpf.c.
VERSIONS = ("10.",)
#: Its native library; NativeLibraryLoader.java unpacks it under a new name at every start.
_LIBRARY = re.compile(r"(?:voltdb-[0-9a-f-]+-)?libvoltdb-(?P<version>[0-9][0-9.]{0,20})\.so")
_CLIENT_PORT = 21212
_PORT = re.compile(r"[0-9]{1,5}")
_PREPARES_ONLY = ("initialize", "get")  # VoltDB.java: actions that start no server
_ENGINE, _STRING = "org/voltdb/jni/ExecutionEngine", "java/lang/String"
_PROCEDURE, _STATEMENTS = "m_currentProcedureName", "m_sqlTexts"
#: Collectors that move objects while threads run, so other processes cannot read objects.
_CONCURRENT_COLLECTORS = ("UseZGC", "UseShenandoahGC")
_NO_LIBRARY = (
    "its native library is not loaded: it is starting, or only root may look at what it has mapped"
)


@dataclass(frozen=True)
class HeapLayout:
    """Offsets in bytes: the server's facts in the registry."""

    oop_base: int
    oop_shift: int
    oop_bytes: int  #: size of a reference in the heap: 4 compressed, 8 plain
    procedure: int  #: offset of the name in an engine
    statements: int  #: offset of the array of SQL texts in an engine
    string_value: int
    string_coder: int
    array_length: int
    array_data: int

    def facts(self) -> dict[str, int]:
        """Returns the offsets by their names in the registry."""
        return {name.replace("_", "-"): number for name, number in asdict(self).items()}


def is_voltdb(candidate: Candidate) -> bool:
    """Returns true for a JVM with VoltDB's main class that serves, or is about to."""
    arguments = candidate.arguments
    if candidate.base_name != "java" or MAIN_CLASS not in arguments:
        return False
    action = arguments[arguments.index(MAIN_CLASS) + 1 :][:1]
    return not action or action[0] not in _PREPARES_ONLY


def client_port(arguments: tuple[str, ...]) -> int:
    """Returns its clients' port (VoltDB.java, Configuration: `port [INTERFACE:]NUMBER`)."""
    for name, value in pairwise(arguments):
        number = value.rpartition(":")[2]
        if name == "port" and _PORT.fullmatch(number):
            return int(number)
    return _CLIENT_PORT


def voltdb_version(access: Access) -> str:
    """Returns the version in the name of its native library; empty while none is loaded."""
    library = _library_of(access)
    match = _LIBRARY.fullmatch(library.name.rpartition("/")[2]) if library else None
    return match["version"] if match else ""


def native_library(access: Access, version: str) -> MappedFile:
    """Finds the library that the process has unpacked and loaded.

    Args:
        version: as returned by `voltdb_version`.

    Raises:
        QjouleError: there is none, or its function has other arguments.
    """
    library = _library_of(access)
    if library is None:
        raise CannotRead(_NO_LIBRARY)
    if not version.startswith(VERSIONS):
        versions = ", ".join(f"{number}x" for number in VERSIONS)
        raise QjouleError(
            f"VoltDB {version}: what its function is called with is known for {versions}"
        )
    return library


def heap_layout(access: Access) -> HeapLayout:
    """Reads where names and SQL texts are in the heap of this JVM.

    Raises:
        CannotRead: the JVM does not describe it, or its collector moves objects meanwhile.
    """
    with open_hotspot(access) as (jvm, memory):
        return layout_of(jvm, memory)


def layout_of(jvm: HotSpot, memory: Memory) -> HeapLayout:
    """Like `heap_layout`, for a JVM that is already open."""
    for flag in _CONCURRENT_COLLECTORS:
        if jvm.flag(flag):
            raise CannotRead(f"{flag.removeprefix('Use')} moves objects while they are read")
    classes = jvm.classes({_ENGINE, _STRING})
    engine = jvm.field_offsets(classes[_ENGINE], {_PROCEDURE, _STATEMENTS})
    string = jvm.field_offsets(classes[_STRING], {"value", "coder"})
    compressed = jvm.flag("UseCompressedOops")
    base = shift = 0
    if compressed:  # fields of Universe in Java 11
        base = memory.number(jvm.static(*_narrow("_narrow_oop._base")))
        shift = memory.number(jvm.static(*_narrow("_narrow_oop._shift")), 4)
    # arrayOop.hpp: the length follows the class, and the elements follow in the next word
    header = 16 if jvm.flag("UseCompressedClassPointers") else 24
    return HeapLayout(
        oop_base=base,
        oop_shift=shift,
        oop_bytes=4 if compressed else 8,
        procedure=engine[_PROCEDURE],
        statements=engine[_STATEMENTS],
        string_value=string["value"],
        string_coder=string["coder"],
        array_length=header - 4 if header == 16 else header - 8,
        array_data=header,
    )


def _narrow(field: str) -> Iterable[tuple[str, str]]:
    return (("CompressedOops", field), ("Universe", field))


def _library_of(access: Access) -> MappedFile | None:
    libraries = mapped_files(access.proc(ProcFile.MAPS), _LIBRARY.pattern)
    return libraries[0] if libraries else None


class Role(StrEnum):
    """The registry's `roles`: what a probe reports."""

    BEGIN = "voltdb-begin"  # (JNIEnv *, jobject engine, ...), see bpf/voltdb/symbol.bpf.c
    END = "voltdb-end"  # return of the same function


#: JNI's name of a method (JNI specification, "Resolving Native Method Names") has no types either;
#: its arguments are those of VoltDB 10 (org/voltdb/jni/ExecutionEngine.java).
FUNCTION = "Java_org_voltdb_jni_ExecutionEngine_nativeExecutePlanFragments"


def boundary_functions(library: Executable) -> dict[str, Symbol]:
    """Returns the function that begins and ends a query, by role.

    Raises:
        CannotResolve: it is missing, ambiguous, or has clones that callers may use instead.
    """
    fragments = the_one(library, FUNCTION)
    return {Role.BEGIN: fragments, Role.END: fragments}


#: Facts found here, by their names in the registry.
FACTS = tuple(field.name.replace("_", "-") for field in fields(HeapLayout))


def resolve(candidate: Candidate, version: str) -> Resolution:
    """Finds the native function and the heap's layout.

    Raises:
        QjouleError: no library, its functions are missing, or the JVM describes too little.
    """
    access = candidate.access
    mapping = native_library(access, version)
    file = access.mapped(mapping.base, mapping.end)
    library = open_executable(file)
    check_machine(library)
    return replace(
        without_probes(candidate),
        boundary=probes_of(library, boundary_functions(library)),
        facts=within_bounds("voltdb", heap_layout(access).facts()),
        file=library.identity.key,
        library=file.path,
        handle=file.handle,
    )


def boundary_cost_ns(costs: Mapping[str, SiteCost]) -> int:
    """Returns the cost of a query."""
    return costs[Role.END].both_ns if Role.END in costs else 0


def settings(running: Running) -> Settings:
    """Returns no settings: its configuration does not change how it is traced."""
    return Settings(
        Fact(None, "procedures are seen behind it"),
        Fact(False, "a procedure's SQL stays on the threads of its partitions"),
        first_port=client_port(running.candidate.arguments),
    )


_OTHER_THREADS = "procedures run on other threads than connections"


def choose_attach_mode(case: Case) -> Choice:
    """Connections and procedures have different threads: sockets do not show whose work is done."""
    symbol_problem = case.no_probes
    if case.wanted is not None:
        return as_wanted(case, symbol_problem, _OTHER_THREADS)
    if symbol_problem:
        why = f"CPU time and energy by thread name: {symbol_problem}"
        return Choice(AttachMode.NONE, why, exact=False, by_thread=True)
    why = "one site thread executes a procedure's SQL, all of it through one native function"
    return Choice(AttachMode.SYMBOL, why, f"socket: not possible, {_OTHER_THREADS}")


def _recognise(candidate: Candidate) -> Identified | None:
    if not is_voltdb(candidate):
        return None
    return Identified("voltdb", voltdb_version(candidate.access))


def _blind_spots(_server: Server) -> tuple[str, ...]:
    return (
        "procedures that execute no SQL, and bulk loads, count as the background of their site "
        "thread",
        "after a restart its threads are traced without procedures, until qjoule is started again",
    )


SUPPORT = ServerSupport(
    name="voltdb",
    flavours={"voltdb": "VoltDB"},
    runtime="java",
    recognise=_recognise,
    settings=settings,
    resolve=resolve,
    resolved=FACTS,
    has_library=True,
    choose_attach_mode=choose_attach_mode,
    boundary_cost_ns=boundary_cost_ns,
    blind_spots=_blind_spots,
)


_TESTED = "10.0"

#: Rows of docs/servers.md.
DOCUMENTED = (
    Supported(
        "voltdb",
        "VoltDB",
        (Mode("all", encryption=None),),
        (_TESTED,),
        (
            Functions(
                f"VoltDB {', '.join(f'{n}x' for n in VERSIONS)} on Java 11 to 20",
                (FUNCTION,),
                f"VoltDB {_TESTED}, Java 17",
            ),
        ),
    ),
)
