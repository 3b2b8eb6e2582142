# SPDX-License-Identifier: Apache-2.0
"""Sockets of the root part that are bound to one process and open only that process's files."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path

from qjoule.errors import QjouleError
from qjoule.root_part.protocol import Kind, ask
from qjoule.servers.direct_access import control_groups, read_bytes
from qjoule.servers.owner import Owner, owner_of

_PROC = Path("/proc")


@dataclass(frozen=True)
class Who:
    """What everybody may know of a process."""

    started: int  #: clock ticks since boot; identifies the process together with its pid
    parent: int
    uid: int


def bound(connection: socket.socket, pid: int) -> tuple[int, socket.socket]:
    """The owner of the process, and a socket bound to the process.

    Raises:
        QjouleError: there is no such process.
    """
    try:
        who = who_is(pid)
    except (ValueError, LookupError):
        raise QjouleError("it has ended") from None
    reply = ask(connection, Kind.BIND, pid=pid)
    found = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, reply.fd)
    found.set_inheritable(False)
    # If the process is the same before and after, this is its user and not a predecessor's.
    try:
        started = who_is(pid).started
    except (ValueError, LookupError):
        started = -1
    if started != who.started:
        found.close()
        raise QjouleError("it has ended")
    return who.uid, found


def who_is(pid: int) -> Who:
    """Raises ValueError or LookupError if there is no such process."""
    directory = _PROC / str(pid)
    lines = read_bytes(directory / "status").decode(errors="replace").splitlines()
    said = dict(line.partition(":\t")[::2] for line in lines)
    # The name in parentheses may itself hold spaces and parentheses (proc(5), /proc/pid/stat).
    started = int(read_bytes(directory / "stat").rpartition(b")")[2].split()[19])
    return Who(
        started,
        int(said["PPid"]),
        int(said["Uid"].split()[1]),  # real, effective, saved, file system
    )


def owner_of_process(pid: int) -> Owner | None:
    """None: there is no such process."""
    try:
        uid = who_is(pid).uid
    except (ValueError, LookupError):
        return None
    return owner_of(uid, control_groups(_PROC / str(pid)))
