# SPDX-License-Identifier: Apache-2.0
"""Puts qjoule's agent into a running Cassandra, and ensures that it is removed again.

The agent (agent/ in the source tree) calls empty native functions whenever a thread starts or stops
serving a request; the tracer's probes are on these functions. A process with the rights of the
JVM's user (`agent_loader`) copies the agent's files to a place that the JVM can read, makes the JVM
load them and deletes them. A loaded file stays readable through /proc/PID/map_files.

The JVM and we hold the ends of a pipe. When ours is closed, by `Agent.close()` or because this
process ends for any reason, the agent removes its calls from the server.
"""

from __future__ import annotations

import os
import re
import select
import socket
import sys
from contextlib import suppress
from pathlib import Path

from qjoule.errors import QjouleError
from qjoule.installed import installed_files
from qjoule.servers.access import Access, Opened, ProcFile, Unreadable, mapped_files, opened
from qjoule.servers.cassandra.find import MARKERS, Role
from qjoule.servers.elf import open_executable
from qjoule.servers.jvm.agent_loader import (
    ATTACH_SECONDS,
    ENTRY,
    HOOKS,
    LIBRARY,
    MESSAGE_BYTES_MAX,
    TOTAL_SECONDS,
)
from qjoule.servers.jvm.attach import CannotAttach
from qjoule.servers.jvm.process import (
    Identity,
    ReachedJvm,
    check_attach_enabled,
    handles_quit,
    identity_of,
    status_of,
)
from qjoule.servers.probe_site import CODE_BYTES, inspect_site
from qjoule.servers.resolution import Agent, Probe
from qjoule.shapes.safe_text import sanitise

_MAPPINGS_MAX = 8  #: mapped files with the library's name; each costs a handle
_MAPPING = re.compile(rb"([0-9a-f]{1,16})-([0-9a-f]{1,16})")


def put_agent(jvm: ReachedJvm, *, client_tags: bool = False) -> Agent:
    """Loads the agent into the JVM of a Cassandra.

    Raises:
        CannotAttach: the JVM cannot load it, or the agent does not know this server; one line.
    """
    files = agent_files()
    status = status_of(jvm)
    identity = identity_of(jvm.pid, status)
    if identity.of_root:
        raise CannotAttach(
            f"the JVM of process {jvm.pid} runs as root, whose JVMs qjoule loads no agent "
            "into: run the server as a user of its own, or leave out --agent"
        )
    check_attach_enabled(jvm)
    with jvm.loader(
        identity,
        client_tags=client_tags,
        may_signal=handles_quit(status),
        seconds=ATTACH_SECONDS,
    ) as loader:
        copied, lease = _answer(loader, jvm, identity)
    try:
        probes = marker_probes(files[-1], client_tags=client_tags)
        library = _mapped(jvm, identity.uid, copied, files[-1].read_bytes())
        return Agent(library.path, library.handle, probes, lease)
    except OSError as error:
        os.close(lease)
        what = f"cannot put the agent into process {jvm.pid}: {error.strerror}"
        raise CannotAttach(what) from None
    except BaseException:
        os.close(lease)
        raise


def _answer(
    loader: socket.socket, jvm: ReachedJvm, identity: Identity
) -> tuple[tuple[int, int], int]:
    """Returns the loader's answer: (device, inode) of its copy of the library, and the lease.

    The JVM's user may have changed it: a wrong answer only leads to an error.
    """
    pid = jvm.pid
    if not select.select([loader], [], [], TOTAL_SECONDS)[0]:
        raise CannotAttach(f"process {pid}: its agent was not loaded within {TOTAL_SECONDS:.0f} s")
    most = 1 if jvm.brings_pipe(loader) else 0  # descriptors that are not received need no closing
    try:
        flags = socket.MSG_CMSG_CLOEXEC
        answer, descriptors, _, _ = socket.recv_fds(loader, MESSAGE_BYTES_MAX, most, flags)
    except OSError:  # the loader has ended
        answer, descriptors = b"", []
    if not answer:
        raise CannotAttach(
            f"the process that loads the agent into process {pid} ended without a word: "
            f"can its user ({identity.uid}) read {sys.prefix}?"
        )
    copied = re.fullmatch(rb"ok (\d{1,20}) (\d{1,20})", answer)
    if copied and descriptors:
        return (int(copied[1]), int(copied[2])), descriptors[0]
    for descriptor in descriptors:
        os.close(descriptor)
    problem = answer.decode("utf-8", "replace").removeprefix("error ")
    if copied:
        problem = f"no lease of the agent in process {pid}"
    raise CannotAttach(sanitise(problem))


def agent_files() -> tuple[Path, Path, Path]:
    """Returns the paths of the agent's files, the library last.

    Raises:
        QjouleError: it is not installed.
    """
    files = installed_files(ENTRY, HOOKS, LIBRARY)
    if files is not None:
        entry, hooks, library = files
        return entry, hooks, library
    raise QjouleError(f"the agent is not installed below {sys.prefix}: run 'make'")


def _mapped(jvm: ReachedJvm, uid: int, copied: tuple[int, int], content: bytes) -> Opened:
    """Returns the copied library, as mapped by the JVM; closed. Other copies may be mapped, too.

    It must belong to the JVM's user and have the library's content: probes in another file could
    break every process that executes it.
    """
    for start, end in _MAPPING.findall(jvm.examine(_mappings))[:_MAPPINGS_MAX]:
        with suppress(Unreadable), opened(jvm.access.mapped(int(start, 16), int(end, 16))) as file:
            if file.identity.key != copied:
                continue
            same = os.pread(file.fd, len(content) + 1, 0) == content
            if file.identity.uid == uid and same and file.handle:
                return file
            raise CannotAttach(f"the agent's library in process {jvm.pid} is not qjoule's")
    status_of(jvm)  # raises if the JVM has ended
    raise CannotAttach(f"process {jvm.pid} does not show the agent's library in its memory")


def _mappings(access: Access) -> bytes:
    """Returns where files with the library's name are mapped: START-END, in hexadecimal."""
    libraries = mapped_files(access.proc(ProcFile.MAPS), re.escape(LIBRARY))
    return b" ".join(library.area.encode() for library in libraries[:_MAPPINGS_MAX]) or b"none"


def marker_probes(library: Path, *, client_tags: bool = False) -> tuple[Probe, ...]:
    """Returns the positions of the requested markers in the library's file."""
    executable = open_executable(library)
    probes = []
    for role, name in MARKERS.items():
        if role is Role.REQUEST_SAYS and not client_tags:
            continue
        (symbol,) = executable.functions(name)
        offset = executable.file_offset(symbol.vaddr)
        assert offset is not None, f"{name} is not in the code of {library}"
        code = executable.read(offset, min(symbol.size, CODE_BYTES))
        probes.append(Probe(role, symbol, inspect_site(code, offset)))
    return tuple(probes)
