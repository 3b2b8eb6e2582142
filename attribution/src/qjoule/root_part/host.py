# SPDX-License-Identifier: Apache-2.0
"""Examines this machine through the root part: it opens files, and unprivileged processes examine
them."""

from __future__ import annotations

import functools
import json
import os
import socket
import struct
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from qjoule.errors import QjouleError
from qjoule.root_part.access import (
    SocketAccess,
    bind_process,
    identity_of,
    opened_of,
    process_status,
)
from qjoule.root_part.client import installed, root_part
from qjoule.root_part.examiner import Failed, Task, run_all
from qjoule.root_part.protocol import MAX_KEPT, Kind, Refused, RootPartGone, What, ask
from qjoule.servers.access import FileIdentity, Opened
from qjoule.servers.direct_access import (
    DELETED,
    FileAccess,
    control_groups,
    installed_files,
    is_process,
    port_range,
    thread_names,
)
from qjoule.servers.examine import examine, prepare
from qjoule.servers.examined_json import examined_from_json
from qjoule.servers.hosts import Host, Listed
from qjoule.servers.processes import Owner, Process, Trust, owner_of
from qjoule.servers.types import Examined, Facts

_PROC = Path("/proc")
#: CPU time for one candidate. Some 0.5 s is usual; an emulated machine takes ten times as long.
_CPU_S = 8
#: CPU time at least for owners whose candidates used up their time, which delays everybody.
_CPU_LEAST_S = 1


def this_host() -> Host | None:
    """Returns the privileged host, or None if we examine the machine with our own rights."""
    connection = root_part().connection
    return None if connection is None else _root_part_host(connection)


@functools.cache
def _root_part_host(connection: socket.socket) -> RootPartHost:
    """Returns the one instance, which remembers the owners of slow candidates."""
    return RootPartHost(connection)


@dataclass
class RootPartHost:
    """A `Host`. `connection` is the command's socket to the root part; no thread may run yet."""

    connection: socket.socket
    _patience_s: dict[Owner, int] = field(default_factory=dict)  #: CPU time

    def processes(self) -> Listed:
        processes = []
        for name in sorted(os.listdir(_PROC)):  # noqa: PTH208 - as text
            if not name.isdigit():
                continue
            with suppress(Refused, ValueError, LookupError):
                processes.append(self.process(int(name)))
        return Listed(tuple(processes))

    def process(self, pid: int) -> Process:
        """Raises `Refused`, `ValueError` or `LookupError` if the process has ended."""
        reply = ask(self.connection, Kind.EXE, pid=pid)
        status = process_status(pid)
        path = os.fsdecode(reply.text).removesuffix(DELETED)
        key = identity_of(reply.file).key
        directory = _PROC / str(pid)
        return Process(
            pid, status.parent, directory, path, key, status.uid, control_groups(directory)
        )

    def installed(self, patterns: Sequence[str]) -> list[tuple[Path, FileIdentity]]:
        return installed_files(Path("/"), patterns)

    def port_range(self) -> tuple[int, int]:
        return port_range(_PROC)

    def has(self, pid: int) -> bool:
        return is_process(_PROC, pid)

    def examine(self, facts: Facts) -> Examined:
        return self.examine_all([facts])[0]

    def examine_all(self, every: Sequence[Facts]) -> list[Examined]:
        """Examines each candidate in its own process, several at a time."""
        # Examiners cannot open files, so everything they import late must be loaded now.
        prepare()
        seats = [_Examination(self, facts) for facts in every]
        results = [Examined() for _ in every]

        def done(number: int, answer: bytes | Failed) -> None:
            results[number] = seats[number].result_of(answer)

        run_all([seat.task for seat in seats], done)
        return results

    def patience_s(self, owner: Owner) -> int:
        return self._patience_s.get(owner, _CPU_S)

    def lose_patience(self, owner: Owner) -> None:
        """Gives the owner's next candidates less time, after one used up its time."""
        if owner.trust is not Trust.ROOT:
            self._patience_s[owner] = max(_CPU_LEAST_S, self.patience_s(owner) // 2)


class _Examination:
    """One examination: its input, and a check of its output."""

    def __init__(self, host: RootPartHost, facts: Facts) -> None:
        self._host = host
        self._facts = facts
        self._owner = Owner()
        self._bound: socket.socket | None = None
        self._file: Opened | None = None  #: the executable, if no process runs it

    def task(self) -> Task:
        """Opens the candidate for examination. Raises `QjouleError`."""
        facts = self._facts
        if not facts.pid:
            file = self._file = opened_of(installed(self._host.connection, Path(facts.exe_name)))
            path = Path(facts.exe_name)
            return Task(
                lambda fd: _encoded(examine(_InstalledAccess(path, replace(file, fd=fd)), facts)),
                file.fd,
            )
        uid, self._bound = bind_process(self._host.connection, facts.pid)
        self._owner = owner_of(uid, control_groups(_PROC / str(facts.pid)))
        threads = thread_names(_PROC / str(facts.pid))
        return Task(
            lambda fd: _encoded(_examined_process(fd, facts, threads)),
            os.dup(self._bound.fileno()),
            self._host.patience_s(self._owner),
        )

    def result_of(self, answer: bytes | Failed) -> Examined:
        """Returns the findings if they pass the checks, else the problem."""
        try:
            if isinstance(answer, Failed):
                if answer.is_late:
                    self._host.lose_patience(self._owner)
                return Examined(problem=str(answer))
            return self._checked(examined_from_json(answer))
        except QjouleError as error:
            return Examined(problem=str(error))
        finally:
            if self._bound:
                self._bound.close()

    def _checked(self, result: Examined) -> Examined:
        """Checks that handles, by which probes are attached, are of this candidate's files."""
        handles = {result.handle, result.resolution.handle if result.resolution else 0} - {0}
        try:
            is_its_own = handles <= self._own_handles()
        except RootPartGone:
            raise QjouleError("a file system that holds its files does not answer") from None
        if not is_its_own:
            raise QjouleError("it names a file that is not its own")
        if result.exe is not None and result.exe.key != self._facts.exe_id:
            raise QjouleError("its executable is another by now")
        return with_handles(result)

    def _own_handles(self) -> set[int]:
        if self._file:
            return {self._file.handle}
        if not self._bound:
            return set()
        reply = ask(self._bound, Kind.OPEN, number=What.KEPT)
        return set(struct.unpack_from(f"={MAX_KEPT}I", reply.content))


def with_handles(result: Examined) -> Examined:
    """Drops the probes if the root part has no handle of their file. Otherwise the tracer would
    refuse the whole plan, and no server would be traced."""
    resolution = result.resolution
    if resolution is None or (resolution.handle if resolution.library else result.handle):
        return result
    why = "its file is only in memory, or too many files are open"
    without_probes = replace(resolution.without_uprobes(why), problem=resolution.problem or why)
    return replace(result, resolution=without_probes)


def _examined_process(descriptor: int, facts: Facts, threads: Sequence[str]) -> Examined:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, descriptor) as connection:
        return examine(SocketAccess(connection, threads), facts)


@dataclass(frozen=True)
class _InstalledAccess(FileAccess):
    """An executable that the root part has opened."""

    file_: Opened

    def executable(self) -> Opened:
        return self.file_


def _encoded(result: Examined) -> bytes:
    return json.dumps(result.to_json()).encode()
