"""Finds the database servers of a machine: those that run, and those that may start later."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from qjoule.errors import QjouleError
from qjoule.servers.cassandra import cassandra_version, configuration, is_cassandra
from qjoule.servers.config_ferretdb import NO_OWN_THREADS, ferretdb_encryption
from qjoule.servers.config_mongodb import mongodb_facts
from qjoule.servers.config_mysql import mysql_facts
from qjoule.servers.config_postgres import NO_POOL, postgres_encryption
from qjoule.servers.config_redis import is_redis_server, redis_encryption, redis_io_threads
from qjoule.servers.elf import open_executable
from qjoule.servers.identify import identify
from qjoule.servers.listening import Listening, SocketTables
from qjoule.servers.procfs import Process, file_id, processes
from qjoule.servers.restart import restart_of
from qjoule.servers.types import Fact, Flavour, Server
from qjoule.servers.voltdb import client_port, is_voltdb, voltdb_version

#: A first sieve; what is inside the executable decides.
_NAMES = re.compile(
    r"(mariadbd|mysqld|(edb-)?postgres|postmaster|redis-server|redis-check-(rdb|aof)"
    r"|mongod|ferretdb)([-_.].*)?"
)
#: Where packages put servers (Debian, Red Hat, upstream). A server that starts later is recognised
#: in the kernel by its executable's inode, so the executable is enough.
_INSTALLED = (
    "usr/sbin/mariadbd",
    "usr/sbin/mysqld",
    "usr/libexec/mariadbd",
    "usr/libexec/mysqld",
    "usr/lib/postgresql/*/bin/postgres",
    "usr/pgsql-*/bin/postgres",
    "usr/bin/postgres",
    "usr/bin/mongod",
)
_NOT_RUNNING = "not running, so its configuration is not known"


@dataclass(frozen=True)
class Discovery:
    servers: tuple[Server, ...]
    hidden: int  #: processes that only root may look at
    unreadable: tuple[str, ...]  #: executables with a server's name that could not be read, and why


def find_servers(proc: Path = Path("/proc"), root: Path = Path("/")) -> list[Server]:
    """The servers of this machine, running ones first, ids from 1."""
    return list(discover(proc, root).servers)


def discover(proc: Path = Path("/proc"), root: Path = Path("/")) -> Discovery:
    """As `find_servers`, with what could not be seen.

    Args:
        proc: the process file system; a directory like it in tests.
        root: where installed executables are looked for.
    """
    hidden: list[int] = []
    unreadable: list[str] = []
    every = list(processes(proc, hidden))
    candidates = [p for p in every if _NAMES.fullmatch(p.base_name)]
    running = [_cassandra(p, root) for p in every if is_cassandra(p)]
    running += [_voltdb(p, root) for p in every if is_voltdb(p)]
    running += [
        server
        for main, members in _families(candidates)
        if (server := _running(main, members, root, unreadable)) is not None
    ]
    running.sort(key=lambda server: (server.flavour, server.ports, server.tgids))
    seen = {process.exe_id for process in candidates}
    installed = _installed(root, seen, unreadable)
    servers = [replace(s, id=i) for i, s in enumerate([*running, *installed], start=1)]
    return Discovery(tuple(servers), len(hidden), tuple(unreadable))


def _families(candidates: list[Process]) -> Iterable[tuple[Process, list[Process]]]:
    """(main process, all of its family): PostgreSQL's children run the postmaster's executable."""
    by_pid = {process.pid: process for process in candidates}

    def main_of(process: Process) -> Process:
        line = [process]
        while (parent := by_pid.get(line[-1].parent)) and parent.exe_id == process.exe_id:
            if parent in line:  # pids were reused between two reads
                return min(line, key=lambda member: member.pid)
            line.append(parent)
        return line[-1]

    families: dict[int, list[Process]] = {}
    for process in candidates:
        families.setdefault(main_of(process).pid, []).append(process)
    for pid, members in families.items():
        main = by_pid[pid]
        if not _is_left_over(main):
            yield main, [main, *(member for member in members if member is not main)]


def _is_left_over(main: Process) -> bool:
    """A PostgreSQL child that outlived its postmaster: it serves nobody new and will end."""
    return bool(main.arguments) and main.arguments[0].startswith("postgres: ")


def _running(
    main: Process, members: list[Process], root: Path, unreadable: list[str]
) -> Server | None:
    path = main.openable_executable(root)
    known = _identify(path, f"process {main.pid} ({main.exe_name})", unreadable)
    if known is None:
        return None
    flavour, version = known
    if flavour is Flavour.REDIS and not is_redis_server(main):
        return None
    listening = SocketTables().of(main)
    encryption, pool, compression = _facts(main, flavour, version, listening)
    tgids = tuple(member.pid for member in members)
    return Server(
        0,
        flavour,
        version,
        path,
        main.exe_name,
        main.exe_id,
        tgids,
        listening.tcp,
        listening.unix,
        encryption,
        pool,
        compression=compression,
    )


def _facts(
    main: Process, flavour: Flavour, version: str, listening: Listening
) -> tuple[Fact, Fact, Fact]:
    """(may sessions be encrypted, may they change threads, may requests be compressed)."""
    plain = Fact(False, "")
    if flavour is Flavour.POSTGRES:
        return postgres_encryption(main), NO_POOL, plain
    if flavour is Flavour.REDIS:
        return redis_encryption(main, listening), redis_io_threads(main), plain
    if flavour is Flavour.MONGODB:
        found = mongodb_facts(main)
        return found.encryption, found.thread_pool, found.compression
    if flavour is Flavour.FERRETDB:
        return ferretdb_encryption(main), NO_OWN_THREADS, plain
    return (*mysql_facts(main, flavour, version), plain)


def _cassandra(process: Process, root: Path) -> Server:
    found = configuration(process)
    listening = SocketTables().of(process)
    others = tuple(port for port in listening.tcp if port != found.port)
    return Server(
        0,
        Flavour.CASSANDRA,
        cassandra_version(process),
        process.openable_executable(root),
        process.exe_name,
        process.exe_id,
        (process.pid,),
        (found.port, *others) if found.port in listening.tcp else listening.tcp,
        listening.unix,
        found.encryption,
        Fact(True, "its stages have threads of their own"),
        restart=restart_of(process),
        cql_port=found.port,
    )


def _voltdb(process: Process, root: Path) -> Server:
    listening = SocketTables().of(process)
    first = client_port(process.arguments)
    ports = sorted(listening.tcp, key=lambda port: (port != first, port))
    return Server(
        0,
        Flavour.VOLTDB,
        voltdb_version(process),
        process.openable_executable(root),
        process.exe_name,
        process.exe_id,
        (process.pid,),
        tuple(ports),
        listening.unix,
        Fact(None, "procedures are seen behind it"),
        Fact(False, "a procedure's SQL stays on the threads of its partitions"),
        restart=restart_of(process),
    )


def _installed(root: Path, seen: set[tuple[int, int]], unreadable: list[str]) -> Iterable[Server]:
    for pattern in _INSTALLED:
        for path in sorted(root.glob(pattern)):
            identity = file_id(path)
            if identity is None or identity in seen:
                continue
            seen.add(identity)
            known = _identify(path, str(path), unreadable)
            if known is None:
                continue
            flavour, version = known
            unknown = Fact(None, _NOT_RUNNING)
            pool = NO_POOL if flavour is Flavour.POSTGRES else unknown
            yield Server(0, flavour, version, path, str(path), identity, (), (), (), unknown, pool)


def _identify(path: Path, what: str, unreadable: list[str]) -> tuple[Flavour, str] | None:
    try:
        return identify(open_executable(path))
    except QjouleError as error:
        unreadable.append(f"{what}: {error}")
        return None
