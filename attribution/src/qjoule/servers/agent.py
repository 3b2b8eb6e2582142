"""Puts qjoule's agent into a running Cassandra, and sees to it that it is taken out again.

The agent (agent/ in the source tree) calls empty native functions where a thread takes up or
leaves a request; the tracer's probes are on these. Its files are copied to where the JVM can read
them, and are gone once it has: what is loaded stays readable through /proc/PID/map_files.

The JVM holds one end of a pipe, we the other. When ours is closed, by `Agent.close()` or by the
end of this process whatever its cause, the agent takes its calls out of the server.
"""

from __future__ import annotations

import os
import secrets
import shutil
import sys
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from qjoule.errors import QjouleError
from qjoule.servers.access import ProcFile, Unreadable, opened
from qjoule.servers.direct_access import DirectAccess, processes
from qjoule.servers.elf import open_executable
from qjoule.servers.in_root import open_directory
from qjoule.servers.jvm_attach import (
    CannotAttach,
    Identity,
    acting_as,
    identity_of,
    load_agent,
)
from qjoule.servers.maps import mapped_files
from qjoule.servers.probe_site import CODE_BYTES, inspect_site
from qjoule.servers.procfs import Process
from qjoule.servers.resolution import Probe
from qjoule.servers.signatures import Role
from qjoule.servers.types import Flavour, Server
from qjoule.shapes.safe_text import sanitise

LIBRARY = "libqjoule_agent.so"
_ENTRY = "qjoule-agent.jar"
_FILES = (_ENTRY, "hooks.jar", LIBRARY)
_LEASE, _STATUS = "lease", "status"
_TAGS = "tags"  #: there, if the agent is to look for tags of clients
_STATUS_BYTES_MAX = 1024
_DIRECTORIES = ("/tmp", "/var/tmp", "/dev/shm")  #: of the JVM's root
#: The markers of agent/jni/marker.c.
_MARKERS = {
    Role.AGENT_REQUEST_BEGINS: "qjoule_request_begins",
    Role.AGENT_REQUEST_SAYS: "qjoule_request_says",
    Role.AGENT_REQUEST_ENDS: "qjoule_request_ends",
    Role.AGENT_CONNECTION_MET: "qjoule_connection_met",
    Role.AGENT_TASK_QUEUED: "qjoule_task_queued",
    Role.AGENT_TASK_BEGINS: "qjoule_task_begins",
    Role.AGENT_TASK_ENDS: "qjoule_task_ends",
}


@dataclass
class Agent:
    """An agent that is in a JVM until `close()`."""

    library: Path  #: the markers' file, as this machine's root opens it
    probes: tuple[Probe, ...]
    _lease: int

    def close(self) -> None:
        """Has the agent taken out, which happens a moment later; may be called twice."""
        lease, self._lease = self._lease, -1
        if lease >= 0:
            os.close(lease)


def put_agents(
    servers: Iterable[Server],
    pids: Collection[int] = (),
    proc: Path = Path("/proc"),
    *,
    client_tags: bool = False,
) -> dict[int, Agent]:
    """Agents for all running Cassandras, or those of `pids`, by process.

    `client_tags`: they tell what clients say of their requests, too.

    Raises:
        QjouleError: there is none, or one of them cannot have an agent.
    """
    wanted = [
        server.tgids[0]
        for server in servers
        if server.flavour is Flavour.CASSANDRA
        and server.running
        and (not pids or set(pids) & set(server.tgids))
    ]
    if not wanted:
        raise QjouleError("--agent is for Cassandra, and none runs: see 'qjoule doctor'")
    agents: dict[int, Agent] = {}
    try:
        for process in processes(proc):
            if process.pid in wanted:
                agents[process.pid] = put_agent(process, client_tags=client_tags)
        if gone := [pid for pid in wanted if pid not in agents]:
            raise CannotAttach(f"process {gone[0]} has ended")
    except BaseException:
        for agent in agents.values():
            agent.close()
        raise
    return agents


def put_agent(process: Process, *, client_tags: bool = False) -> Agent:
    """Loads the agent into the JVM of a Cassandra; needs root.

    Raises:
        CannotAttach: the JVM cannot load it or the server is none that it knows; one line.
    """
    files = agent_files()
    identity = identity_of(process)
    with _directory(process, identity) as (directory, path):
        lease = -1
        try:
            with acting_as(identity):
                library = [_copy(source, directory) for source in files][-1]
                if client_tags:
                    os.mknod(_TAGS, 0o600, dir_fd=directory)
                os.mkfifo(_LEASE, 0o600, dir_fd=directory)
                # Both ends: the agent's opening then waits for nobody, and ours is the last.
                flags = os.O_RDWR | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
                lease = os.open(_LEASE, flags, dir_fd=directory)
            load_agent(process, identity, f"{path}/{_ENTRY}", path)
            _check(process, _status(directory))
            probes = marker_probes(files[-1], client_tags=client_tags)
            return Agent(_mapped(process, library), probes, lease)
        except OSError as error:
            _close(lease)
            what = f"cannot put the agent into process {process.pid}: {error.strerror}"
            raise CannotAttach(what) from None
        except BaseException:
            _close(lease)
            raise


def agent_files() -> list[Path]:
    """The agent's files, the library last.

    Raises:
        QjouleError: it is not installed.
    """
    for directory in (Path(sys.prefix) / "lib" / "qjoule", Path("/usr/lib/qjoule")):
        files = [directory / name for name in _FILES]
        if all(file.is_file() for file in files):
            return files
    raise QjouleError(f"the agent is not installed below {sys.prefix}: run 'make'")


@contextmanager
def _directory(process: Process, identity: Identity) -> Iterator[tuple[int, str]]:
    """A new directory of the JVM's user that the JVM can execute from: descriptor, and name."""
    name = f"qjoule-{secrets.token_hex(8)}"
    parent, path = _parent(process, identity)
    try:
        with acting_as(identity):
            os.mkdir(name, 0o700, dir_fd=parent)
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            descriptor = os.open(name, flags, dir_fd=parent)
            try:
                yield descriptor, f"{path}/{name}"
            finally:
                with acting_as(identity):
                    for file in (*_FILES, _LEASE, _STATUS, _TAGS):
                        with suppress(FileNotFoundError):
                            os.unlink(file, dir_fd=descriptor)
                os.close(descriptor)
        finally:
            with acting_as(identity), suppress(OSError):
                os.rmdir(name, dir_fd=parent)
    finally:
        os.close(parent)


def _parent(process: Process, identity: Identity) -> tuple[int, str]:
    for path in _DIRECTORIES:
        with suppress(Unreadable):
            descriptor = open_directory(process.root, path)
            with acting_as(identity):
                writable = os.access(f"/proc/self/fd/{descriptor}", os.W_OK, effective_ids=True)
            if writable and not os.fstatvfs(descriptor).f_flag & os.ST_NOEXEC:
                return descriptor, path
            os.close(descriptor)
    raise CannotAttach(
        f"process {process.pid} has no directory to load the agent from: one of "
        f"{', '.join(_DIRECTORIES)} must be writable for its user and not mounted noexec"
    )


def _copy(source: Path, directory: int) -> tuple[int, int]:
    """Copies a file; returns the copy's (device, inode)."""
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(source.name, flags, 0o600, dir_fd=directory)
    with os.fdopen(descriptor, "wb") as copy, source.open("rb") as original:
        shutil.copyfileobj(original, copy)
        status = os.fstat(copy.fileno())
    return status.st_dev, status.st_ino


def _status(directory: int) -> str:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(_STATUS, flags, dir_fd=directory)
    except FileNotFoundError:
        return "it did not say why"
    with os.fdopen(descriptor, "rb") as stream:
        said = stream.read(_STATUS_BYTES_MAX).decode("utf-8", "replace")
    return sanitise(" ".join(said.split()))


def _check(process: Process, status: str) -> None:
    if status != "ok":
        raise CannotAttach(f"the agent cannot work in process {process.pid}: {status}")


def _mapped(process: Process, library: tuple[int, int]) -> Path:
    """Where the library that was copied is mapped: another qjoule's may be there, too."""
    access = DirectAccess(process.directory)
    for mapping in mapped_files(access.proc(ProcFile.MAPS), LIBRARY):
        with suppress(Unreadable), opened(access.mapped(mapping.base, mapping.end)) as file:
            if file.identity.key == library:
                return Path(file.path)
    raise CannotAttach(f"process {process.pid} does not show the agent's library in its memory")


def marker_probes(library: Path, *, client_tags: bool = False) -> tuple[Probe, ...]:
    """Where the markers are in the library's file: those that are asked for."""
    executable = open_executable(library)
    probes = []
    for role, name in _MARKERS.items():
        if role is Role.AGENT_REQUEST_SAYS and not client_tags:
            continue
        (symbol,) = executable.functions(name)
        offset = executable.file_offset(symbol.vaddr)
        assert offset is not None, f"{name} is not in the code of {library}"
        code = executable.read(offset, min(symbol.size, CODE_BYTES))
        probes.append(Probe(role, symbol, inspect_site(code, offset)))
    return tuple(probes)


def _close(descriptor: int) -> None:
    if descriptor >= 0:
        os.close(descriptor)
