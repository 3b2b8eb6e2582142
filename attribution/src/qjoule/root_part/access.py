# SPDX-License-Identifier: Apache-2.0
"""Reaches a candidate's files through the root part, on a socket that is bound to its process and
opens only that process's files.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from qjoule.errors import QjouleError
from qjoule.root_part.protocol import Kind, Refused, Reply, RootPartGone, What, ask
from qjoule.root_part.protocol import Opened as File
from qjoule.servers.access import (
    DIRECTORY_ENTRIES_MAX,
    FILE_BYTES_MAX,
    PROC_BYTES_MAX,
    FileIdentity,
    Opened,
    ProcFile,
    Unreadable,
    below_root,
    path_bytes,
)
from qjoule.servers.direct_access import control_groups, read_bytes
from qjoule.servers.processes import Owner, owner_of

_PROC = Path("/proc")
_LIST_BYTES_MAX = 8 << 20  #: 100,000 sockets
_BLOCK_BYTES = 1 << 20
_NOT_THERE = (errno.ENOENT, errno.ENOTDIR)
_WHY = {
    errno.ELOOP: "a link that is not followed",
    errno.ETIMEDOUT: "its file system does not answer",
    errno.EOPNOTSUPP: "its file system is a program's (FUSE)",
}


@dataclass(frozen=True)
class ProcessStatus:
    """Start time, parent and user of a process, all world-readable."""

    started: int  #: clock ticks since boot; identifies the process together with its pid
    parent: int
    uid: int


def bind_process(connection: socket.socket, pid: int) -> tuple[int, socket.socket]:
    """Returns the process's user id, and a socket that is bound to the process.

    Raises:
        QjouleError: there is no such process.
    """
    try:
        status = process_status(pid)
    except (ValueError, LookupError):
        raise QjouleError("it has ended") from None
    reply = ask(connection, Kind.BIND, pid=pid)
    bound_socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, reply.fd)
    bound_socket.set_inheritable(False)
    # If the process is the same before and after, the user id is not a predecessor's.
    try:
        started = process_status(pid).started
    except (ValueError, LookupError):
        started = -1
    if started != status.started:
        bound_socket.close()
        raise QjouleError("it has ended")
    return status.uid, bound_socket


def process_status(pid: int) -> ProcessStatus:
    """Reads /proc/PID. Raises ValueError or LookupError if there is no such process."""
    directory = _PROC / str(pid)
    lines = read_bytes(directory / "status").decode(errors="replace").splitlines()
    fields = dict(line.partition(":\t")[::2] for line in lines)
    # The name in parentheses may itself hold spaces and parentheses (proc(5), /proc/pid/stat).
    started = int(read_bytes(directory / "stat").rpartition(b")")[2].split()[19])
    return ProcessStatus(
        started,
        int(fields["PPid"]),
        int(fields["Uid"].split()[1]),  # real, effective, saved, file system
    )


def owner_of_process(pid: int) -> Owner | None:
    """Returns the owner of a process, or None if there is no such process."""
    try:
        uid = process_status(pid).uid
    except (ValueError, LookupError):
        return None
    return owner_of(uid, control_groups(_PROC / str(pid)))


class SocketAccess:
    """The `Access` of one candidate. Needs no rights: the root part opens everything for it."""

    def __init__(self, connection: socket.socket, threads: Sequence[str] = ()) -> None:
        """`connection` comes from `Kind.BIND`; the caller closes it. `threads`: names of the
        process's threads, which are world-readable."""
        self._connection = connection
        self._threads = threads

    def executable(self) -> Opened:
        return opened_of(self._ask(What.EXE))

    def proc(self, name: ProcFile) -> bytes:
        try:
            return _read(self._ask(What.PROC, name).fd, PROC_BYTES_MAX, stream=True)
        except Unreadable:
            return b""

    def memory(self) -> int:
        return self._ask(What.PROC, "mem").fd

    def file(self, path: str) -> bytes | None:
        try:
            reply = self._ask(What.FILE, path)
        except _NoSuchFile:
            return None
        if not stat.S_ISREG(reply.file.mode):
            os.close(reply.fd)
            raise Unreadable(f"{path}: no regular file")
        return _read(reply.fd, FILE_BYTES_MAX)

    def names(self, path: str) -> list[str]:
        try:
            reply = self._ask(What.FILE, path)
        except _NoSuchFile:
            return []
        try:
            is_directory = stat.S_ISDIR(reply.file.mode)
            names = sorted(os.listdir(reply.fd)) if is_directory else []  # noqa: PTH208
        except OSError as error:
            raise Unreadable(f"{path}: {error.strerror}") from None
        finally:
            os.close(reply.fd)
        if len(names) > DIRECTORY_ENTRIES_MAX:
            raise Unreadable(f"{path} has more than {DIRECTORY_ENTRIES_MAX} entries")
        return names

    def sockets(self) -> frozenset[int]:
        try:
            content = _read(self._ask(What.SOCKETS).fd, _LIST_BYTES_MAX)
        except Unreadable:
            return frozenset()
        return frozenset(int(name[8:-1]) for name in content.split(b"\0")[:-1])

    def threads(self) -> list[str]:
        return list(self._threads)

    def mapped(self, start: int, end: int) -> Opened:
        return opened_of(self._ask(What.MAPPED, offset=start, size=end - start))

    def working_directory(self) -> str:
        return below_root(self._link("cwd"), self._link("root"))

    def file_id(self, path: str) -> tuple[int, int] | None:
        try:
            opened = self._ask(What.SAME, path).file
        except Unreadable:
            return None
        return identity_of(opened).key if stat.S_ISREG(opened.mode) else None

    def network(self) -> str:
        return self._link("ns/net")

    def _link(self, name: str) -> str:
        try:
            return os.fsdecode(self._ask(What.PROC, name).text)
        except Unreadable:
            return ""

    def _ask(self, what: What, path: str = "", *, offset: int = 0, size: int = 0) -> Reply:
        """Opens something of the process. Raises `Unreadable` (or its subclass `_NoSuchFile`)."""
        text = path_bytes(path)
        if min(offset, size) < 0 or max(offset, size) >= 1 << 64:
            raise Unreadable("no address")
        name = path or what.name.lower()
        try:
            return ask(
                self._connection, Kind.OPEN, number=what, text=text, offset=offset, size=size
            )
        except Refused as error:
            kind = _NoSuchFile if error.errno in _NOT_THERE else Unreadable
            raise kind(f"{name}: {_WHY.get(error.errno) or error}") from None
        except RootPartGone:
            raise Unreadable(f"{name}: the root part opens nothing more of it") from None


class _NoSuchFile(Unreadable):
    """No file has this name."""


def opened_of(reply: Reply) -> Opened:
    return Opened(
        reply.fd, reply.file.handle, identity_of(reply.file), reply.text.decode(errors="replace")
    )


def identity_of(file: File) -> FileIdentity:
    return FileIdentity(
        file.device,
        file.inode,
        file.size,
        file.mtime_ns,
        file.ctime_ns,
        file.uid,
        file.mode,
    )


def _read(descriptor: int, most: int, *, stream: bool = False) -> bytes:
    """Reads at most `most` bytes and closes the descriptor. A `stream` (files of /proc) is read
    sequentially."""
    blocks: list[bytes] = []
    at = 0
    try:
        while at < most:
            size = min(_BLOCK_BYTES, most - at)
            block = os.read(descriptor, size) if stream else os.pread(descriptor, size, at)
            if not block:
                break
            blocks.append(block)
            at += len(block)
    except OSError as error:
        raise Unreadable(f"it cannot be read: {error.strerror}") from None
    finally:
        os.close(descriptor)
    return b"".join(blocks)
