# SPDX-License-Identifier: Apache-2.0
"""Examines one candidate: one function of an `Access` does all parsing of untrusted bytes.
The result is plain data, so the function can run in a process without any rights.

A generic server's executable may be a runtime (java, python3) that runs other programs too, and no
list of runtimes is ever complete. So a restart is also recognised by an equal command line: the
kernel side hashes it when a process starts, and compares. A server that replaced its command line
by a title (nginx, sshd) is recognised by its executable if the title names that, and otherwise not
at all. Missing a restart, and reporting so, is better than taking another program for the server.
"""

from __future__ import annotations

import codecs
from dataclasses import replace
from functools import lru_cache
from importlib import import_module

from qjoule.errors import QjouleError
from qjoule.servers.access import Access, Unreadable
from qjoule.servers.candidate import COMMAND_LINE_BYTES_MAX, Candidate
from qjoule.servers.elf import Executable
from qjoule.servers.function_code import load_disassembler
from qjoule.servers.processes import Listening, SocketTables
from qjoule.servers.registered import runtimes, support_of, supported
from qjoule.servers.resolution import Resolution, without_probes
from qjoule.servers.support import Identified, Running, ServerSupport
from qjoule.servers.types import (
    INODES_MAX,
    LISTED_MAX,
    NO_PROTOCOL,
    PATH_MAX,
    SOCKET_PATH_MAX,
    SOCKETS_MAX,
    Examined,
    Fact,
    Facts,
    Restart,
)
from qjoule.shapes.safe_text import one_line, sanitise

#: FNV-1a (RFC 9923), over 64-bit words; the same in bpf/core/task.bpf.h.
_OFFSET, _PRIME = 0xCBF29CE484222325, 0x100000001B3
_HASHED_BYTES = 65536
_PATH_MAX = 4096
_U64 = (1 << 64) - 1


def arguments_hash(command_line: bytes) -> int:
    """Hashes a command line as the kernel keeps it: each word ends with a zero byte."""
    value = (_OFFSET ^ len(command_line)) * _PRIME & _U64
    hashed = command_line[:_HASHED_BYTES]
    for start in range(0, len(hashed), 8):
        word = int.from_bytes(hashed[start : start + 8], "little")
        value = (value ^ word) * _PRIME & _U64
    return value


def restart_of(candidate: Candidate) -> Restart:
    """Returns how a restart of this process is recognised."""
    command_line = candidate.command_line
    words = command_line.removesuffix(b"\0").split(b"\0", 1)
    # The kernel side hashes the whole command line, so a partly read one has no hash here.
    whole = len(command_line) <= COMMAND_LINE_BYTES_MAX and command_line.endswith(b"\0")
    last = command_line.removesuffix(b"\0").rpartition(b"\0")[2]
    if whole and words[0] and last and not _is_title(words):
        why = "a restart is known by its executable and arguments"
        return Restart("arguments", why, arguments_hash(command_line))
    first = words[0].split(b" ", 1)[0].rstrip(b":").decode(errors="replace")
    if _names_executable(first, candidate):
        return Restart("executable", "a restart is known by its executable")
    return Restart("never", "a restart is not seen: its command line is not what it started with")


def _is_title(words: list[bytes]) -> bool:
    """Returns true for one word that contains several, as setproctitle() leaves it."""
    return len(words) == 1 and b" " in words[0]


def _names_executable(word: str, candidate: Candidate) -> bool:
    """Returns true for `/usr/sbin/nginx` or `sshd`; the executable may be a link's target."""
    if not word or len(word) > _PATH_MAX:
        return False
    beside = candidate.exe_name.rpartition("/")[0] + "/" + word.rpartition("/")[2]
    paths = (word if word.startswith("/") else beside, beside)
    itself = candidate.exe_id
    return itself is not None and any(candidate.access.file_id(path) == itself for path in paths)


@lru_cache(maxsize=8)
def identify(executable: Executable) -> Identified | None:
    """Returns the server that the executable is; None if qjoule does not know it.

    The version is "" if the executable does not contain it. If several servers recognise it, the
    first certain one wins, else the first.
    """
    doubtful = None
    for support in supported():
        identified = support.identify(executable)
        if identified is not None and identified.certain:
            return identified
        doubtful = doubtful or identified
    return doubtful


def resolve(candidate: Candidate, flavour: str, version: str) -> Resolution:
    """Returns what can be attached to; `problem` and `notes` describe what is missing."""
    try:
        return support_of(flavour).resolve(candidate, version)
    except QjouleError as error:
        return replace(without_probes(candidate), problem=str(error))


_NAME_MAX = 64
_NOT_RUNNING = Fact(None, "not running, so its configuration is not known")


def prepare() -> None:
    """Loads everything that `examine` needs. Afterwards `examine` opens only what its access
    provides.
    """
    supported()
    load_disassembler()
    import_module("yaml")
    for name in ("utf-8", "latin-1", "ascii"):
        codecs.lookup(name)


def examine(access: Access, facts: Facts, tables: SocketTables | None = None) -> Examined:
    """Examines one candidate. Never raises what the candidate's files can cause.

    Args:
        tables: shared between candidates, to read common tables only once.
    """
    try:
        return _examine(access, facts, tables or SocketTables(facts.port_range))
    except QjouleError as error:
        return Examined(problem=one_line(str(error)))
    except Exception as error:  # one bad file must not stop the examination of others
        return Examined(problem=f"it cannot be examined ({type(error).__name__})")


def _examine(access: Access, facts: Facts, tables: SocketTables) -> Examined:
    candidate = Candidate(access, facts.exe_name, facts.pid, facts.exe_id)
    if facts.any_protocol:
        return _examine_generic(candidate, facts, tables)
    identified = _recognised(candidate)
    if identified is None:
        return Examined()
    examined = _running(candidate, identified, tables) if facts.pid else _installed(identified)
    resolution = resolve(candidate, identified.flavour, identified.version)
    examined = replace(_with_executable(candidate, examined), resolution=resolution)
    return _with_vocabulary(candidate, examined) if facts.vocabulary else examined


def _with_vocabulary(candidate: Candidate, examined: Examined) -> Examined:
    read = support_of(str(examined.flavour)).vocabulary
    if read is None:
        return examined
    try:
        return replace(examined, vocabulary=read(candidate.executable, str(examined.flavour)))
    except QjouleError as error:
        return replace(examined, no_vocabulary=one_line(str(error)))


def _recognised(candidate: Candidate) -> Identified | None:
    """Recognises the server, by a runtime's arguments or by the content of the executable."""
    if candidate.pid and candidate.base_name in runtimes():
        recognised = (
            support.recognise(candidate)
            for support in supported()
            if support.runtime == candidate.base_name
        )
        return next((identified for identified in recognised if identified is not None), None)
    identified = identify(candidate.executable)
    if identified is None or (
        candidate.pid and not support_of(identified.flavour).serves(candidate)
    ):
        return None
    return identified


def _running(candidate: Candidate, identified: Identified, tables: SocketTables) -> Examined:
    support = support_of(identified.flavour)
    listening = tables.of(candidate.access)
    settings = support.settings(
        Running(candidate, identified.flavour, identified.version, listening)
    )
    examined = Examined(
        identified.flavour,
        identified.version,
        encryption=settings.encryption,
        thread_pool=settings.thread_pool,
        compression=settings.compression,
        # Other programs run in the same runtime, but with other arguments.
        restart=restart_of(candidate) if support.runtime else Restart("executable"),
        facts=settings.facts,
        runs_as=_runs_as(candidate, support),
    )
    return _listening_on(listening, examined, settings.first_port)


def _runs_as(candidate: Candidate, support: ServerSupport) -> str:
    """Returns the server's name that it was started under, if its file has another name.

    Redis and its tools are one file, which may have the name of any of them.
    """
    name = candidate.name
    if candidate.base_name.startswith(name) or not support.may_be_named(name):
        return ""
    return name


def _installed(identified: Identified) -> Examined:
    pool = support_of(identified.flavour).pool_when_installed or _NOT_RUNNING
    return Examined(
        identified.flavour, identified.version, encryption=_NOT_RUNNING, thread_pool=pool
    )


def _examine_generic(candidate: Candidate, facts: Facts, tables: SocketTables) -> Examined:
    listening = Listening() if facts.silent else tables.of(candidate.access)
    if not listening and not facts.silent:
        return Examined()
    settings = support_of(NO_PROTOCOL).settings(Running(candidate, NO_PROTOCOL, "", listening))
    examined = Examined(
        NO_PROTOCOL,
        encryption=settings.encryption,
        thread_pool=settings.thread_pool,
        restart=restart_of(candidate),
        name=sanitise(candidate.name)[:_NAME_MAX],
        cpu_ticks=candidate.cpu_ticks,
        udp_ports=listening.udp[:LISTED_MAX],
    )
    return _with_executable(candidate, _listening_on(listening, examined))


def _listening_on(listening: Listening, examined: Examined, first_port: int = 0) -> Examined:
    ports = sorted(listening.tcp, key=lambda port: (port != first_port, port))
    return replace(
        examined,
        ports=tuple(ports[:LISTED_MAX]),
        sockets=tuple(path[:SOCKET_PATH_MAX] for path in listening.unix[:SOCKETS_MAX]),
        inodes=frozenset(sorted(listening.inodes)[:INODES_MAX]),
    )


def _with_executable(candidate: Candidate, examined: Examined) -> Examined:
    """Adds the executable's state. That of a JVM need not be readable: it is not examined."""
    try:
        file = candidate.file
    except Unreadable:
        return replace(examined, exe_path=candidate.exe_name[:PATH_MAX])
    return replace(examined, exe=file.identity, handle=file.handle, exe_path=file.path)
