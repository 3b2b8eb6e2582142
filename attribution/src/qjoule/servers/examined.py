"""Examines one candidate: all that parses a stranger's bytes, in one function of an `Access`.

What comes out is plain data, so that it may be done in a process of its own without any rights,
and handed over as JSON (`examined_json`).
"""

from __future__ import annotations

import codecs
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import StrEnum
from typing import Any

from qjoule.errors import QjouleError
from qjoule.servers.access import Access, FileIdentity, Unreadable
from qjoule.servers.candidate import Candidate
from qjoule.servers.cassandra.find import cassandra_version, configuration, is_cassandra
from qjoule.servers.ferretdb.settings import NO_OWN_THREADS, ferretdb_encryption
from qjoule.servers.function_code import load_disassembler
from qjoule.servers.identify import identify
from qjoule.servers.listening import PORT_RANGE_DEFAULT, Listening, SocketTables
from qjoule.servers.mongodb.settings import mongodb_facts
from qjoule.servers.mysql.settings import mysql_facts
from qjoule.servers.one_line import one_line
from qjoule.servers.postgres.settings import NO_POOL, postgres_encryption
from qjoule.servers.redis.settings import is_redis_server, redis_encryption, redis_io_threads
from qjoule.servers.resolution import Resolution
from qjoule.servers.resolve import resolve
from qjoule.servers.restart import restart_of
from qjoule.servers.types import Fact, Flavour, Restart
from qjoule.servers.voltdb.find import client_port, is_voltdb, voltdb_version
from qjoule.shapes.safe_text import sanitise

#: What is handed over of what one process listens on.
LISTED_MAX = 1024
SOCKETS_MAX, SOCKET_PATH_MAX = 256, 128
INODES_MAX = 8192
PATH_MAX = 4096
#: Texts for people.
_MESSAGES = frozenset(
    (
        *("source", "why", "problem", "no_children", "no_names", "no_memory", "notes"),
        *("reason", "instruction"),
    )
)
_NOT_RUNNING = "not running, so its configuration is not known"
_NO_FACT = Fact(None, "it was not examined")
_NO_PROTOCOL = Fact(False, "no protocol is known")
_PLAIN = Fact(False, "")
_BY_EXECUTABLE = Restart("executable")


@dataclass(frozen=True)
class Facts:
    """What is known of a candidate before it is examined."""

    exe_name: str  #: of its executable, as the process sees it
    exe_id: tuple[int, int]  #: (device, inode) of it
    pid: int = 0  #: 0: an executable that does not run
    generic: bool = False  #: whatever its protocol is
    silent: bool = False  #: a generic one also if it listens on nothing
    port_range: tuple[int, int] = PORT_RANGE_DEFAULT  #: that the kernel gives to clients


@dataclass(frozen=True)
class Examined:
    """What a candidate is. `flavour` None: no server; `problem` says why, if that is news."""

    flavour: Flavour | None = None
    version: str = ""
    problem: str = ""
    exe: FileIdentity | None = None  #: None: it could not be opened
    handle: int = 0
    exe_path: str = ""
    ports: tuple[int, ...] = ()
    sockets: tuple[str, ...] = ()
    udp_ports: tuple[int, ...] = ()
    inodes: frozenset[int] = frozenset()  #: of the sockets that it listens on
    encryption: Fact = _NO_FACT
    thread_pool: Fact = _NO_FACT
    compression: Fact = _PLAIN
    restart: Restart = _BY_EXECUTABLE
    cql_port: int = 0
    name: str = ""  #: of a generic one
    cpu_ticks: int = 0  #: of a generic one
    resolution: Resolution | None = None

    def to_json(self) -> dict[str, Any]:
        """A document that `examined_json.examined_from_json` reads."""
        return {field.name: _plain(getattr(self, field.name), field.name) for field in fields(self)}


def _plain(value: Any, name: str) -> Any:
    if is_dataclass(value):
        return {one.name: _plain(getattr(value, one.name), one.name) for one in fields(value)}
    if isinstance(value, tuple | frozenset):
        items = sorted(value) if isinstance(value, frozenset) else value
        return [_plain(item, name) for item in items]
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, StrEnum):
        return str(value)
    if isinstance(value, str):
        return one_line(value) if name in _MESSAGES else value.replace("\0", " ")
    return value


def prepare() -> None:
    """Loads all that `examine` needs: after it, that opens nothing but what its access gives."""
    load_disassembler()
    for name in ("utf-8", "latin-1", "ascii"):
        codecs.lookup(name)


def examine(access: Access, facts: Facts, tables: SocketTables | None = None) -> Examined:
    """Everything that can be told of one candidate. Never raises what its files can cause.

    Args:
        tables: shared between candidates, to read what they share once.
    """
    try:
        return _examine(access, facts, tables or SocketTables(facts.port_range))
    except QjouleError as error:
        return Examined(problem=one_line(str(error)))
    except Exception as error:  # a stranger's file is no reason to stop looking at others
        return Examined(problem=f"it cannot be examined ({type(error).__name__})")


def _examine(access: Access, facts: Facts, tables: SocketTables) -> Examined:
    candidate = Candidate(access, facts.exe_name, facts.pid, facts.exe_id)
    if facts.generic:
        return _generic(candidate, facts, tables)
    if not facts.pid:
        return _installed(candidate)
    if candidate.base_name == "java":
        found = _jvm(candidate, tables)
    elif _is_left_over(candidate):
        return Examined()
    else:
        found = _native(candidate, tables)
    if found.flavour is None:
        return found
    resolution = resolve(candidate, found.flavour, found.version)
    return replace(_with_executable(candidate, found), resolution=resolution)


def _is_left_over(candidate: Candidate) -> bool:
    """A PostgreSQL child that outlived its postmaster: it serves nobody new and will end."""
    return candidate.command_line.startswith(b"postgres: ")


def _native(candidate: Candidate, tables: SocketTables) -> Examined:
    known = identify(candidate.executable)
    if known is None:
        return Examined()
    flavour, version = known
    if flavour is Flavour.REDIS and not is_redis_server(candidate):
        return Examined()
    listening = tables.of(candidate.access)
    encryption, pool, compression = _configured(candidate, flavour, version, listening)
    return _listening_on(
        listening,
        Examined(
            flavour, version, encryption=encryption, thread_pool=pool, compression=compression
        ),
    )


def _configured(
    candidate: Candidate, flavour: Flavour, version: str, listening: Listening
) -> tuple[Fact, Fact, Fact]:
    """(may sessions be encrypted, may they change threads, may requests be compressed)."""
    if flavour is Flavour.POSTGRES:
        return postgres_encryption(candidate), NO_POOL, _PLAIN
    if flavour is Flavour.REDIS:
        return redis_encryption(candidate, listening), redis_io_threads(candidate), _PLAIN
    if flavour is Flavour.MONGODB:
        found = mongodb_facts(candidate)
        return found.encryption, found.thread_pool, found.compression
    if flavour is Flavour.FERRETDB:
        return ferretdb_encryption(candidate), NO_OWN_THREADS, _PLAIN
    return (*mysql_facts(candidate, flavour, version), _PLAIN)


def _jvm(candidate: Candidate, tables: SocketTables) -> Examined:
    if is_cassandra(candidate):
        found = configuration(candidate)
        listening = tables.of(candidate.access)
        others = tuple(port for port in listening.tcp if port != found.port)
        node = Examined(
            Flavour.CASSANDRA,
            cassandra_version(candidate),
            encryption=found.encryption,
            thread_pool=Fact(True, "its stages have threads of their own"),
            restart=restart_of(candidate),
            cql_port=found.port,
        )
        first = (found.port,) if found.port in listening.tcp else ()
        return replace(_listening_on(listening, node), ports=(*first, *others)[:LISTED_MAX])
    if not is_voltdb(candidate):
        return Examined()
    listening, client = tables.of(candidate.access), client_port(candidate.arguments)
    ports = sorted(listening.tcp, key=lambda port: (port != client, port))
    database = Examined(
        Flavour.VOLTDB,
        voltdb_version(candidate.access),
        encryption=Fact(None, "procedures are seen behind it"),
        thread_pool=Fact(False, "a procedure's SQL stays on the threads of its partitions"),
        restart=restart_of(candidate),
    )
    return replace(_listening_on(listening, database), ports=tuple(ports[:LISTED_MAX]))


def _installed(candidate: Candidate) -> Examined:
    known = identify(candidate.executable)
    if known is None:
        return Examined()
    flavour, version = known
    unknown = Fact(None, _NOT_RUNNING)
    pool = NO_POOL if flavour is Flavour.POSTGRES else unknown
    found = Examined(flavour, version, encryption=unknown, thread_pool=pool)
    resolution = resolve(candidate, flavour, version)
    return replace(_with_executable(candidate, found), resolution=resolution)


def _generic(candidate: Candidate, facts: Facts, tables: SocketTables) -> Examined:
    listening = Listening() if facts.silent else tables.of(candidate.access)
    if not listening and not facts.silent:
        return Examined()
    found = Examined(
        Flavour.GENERIC,
        encryption=_NO_PROTOCOL,
        thread_pool=_NO_PROTOCOL,
        restart=restart_of(candidate),
        name=sanitise(candidate.name)[:64],
        cpu_ticks=candidate.cpu_ticks,
    )
    udp_ports = listening.udp[:LISTED_MAX]
    return _with_executable(
        candidate, replace(_listening_on(listening, found), udp_ports=udp_ports)
    )


def _listening_on(listening: Listening, found: Examined) -> Examined:
    return replace(
        found,
        ports=listening.tcp[:LISTED_MAX],
        sockets=tuple(path[:SOCKET_PATH_MAX] for path in listening.unix[:SOCKETS_MAX]),
        inodes=frozenset(sorted(listening.inodes)[:INODES_MAX]),
    )


def _with_executable(candidate: Candidate, found: Examined) -> Examined:
    """A JVM's need not be readable: it is not looked into."""
    try:
        file = candidate.file
    except Unreadable:
        return replace(found, exe_path=candidate.exe_name[:PATH_MAX])
    return replace(found, exe=file.identity, handle=file.handle, exe_path=file.path)
