# SPDX-License-Identifier: Apache-2.0
"""Access to the files of a candidate: a process that may be a server, run by any user.

Everything read of a candidate goes through an `Access`. `DirectAccess` opens paths with the rights
of this process; `SocketAccess` asks the root part over a socket that is bound to one process.
Nothing else below `servers/` opens, stats, lists or follows a path of a candidate, so the code that
parses a candidate's files needs no rights of its own.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from qjoule.errors import QjouleError

FILE_BYTES_MAX = 1 << 20  #: limit for a configuration file
DIRECTORY_ENTRIES_MAX = 1024
PROC_BYTES_MAX = 4 << 20  #: limit for one file of /proc; the rest is not read
SOCKETS_MAX = 100_000  #: file descriptors of one process that are examined
THREADS_MAX = 4096


class Unreadable(QjouleError):
    """The file may exist, but cannot be read or has no sensible size; the message gives the
    reason.
    """


def path_bytes(path: str) -> bytes:
    """Encodes a path for the kernel. Raises `Unreadable` if the text can be no path."""
    try:
        name = os.fsencode(path)
    except UnicodeEncodeError:
        raise Unreadable("a path that is no text") from None
    if b"\0" in name:
        raise Unreadable("a path with a NUL")
    return name


def below_root(path: str, root: str) -> str:
    """Returns a path of a process as the process itself sees it.

    The kernel shows links of /proc relative to the reader's root, which in a chroot is below.
    """
    if root and (path == root or path.startswith(root.rstrip("/") + "/")):
        return "/" + path[len(root.rstrip("/")) :].lstrip("/")
    return path


class ProcFile(StrEnum):
    """Files of /proc/PID, by their names there."""

    CMDLINE = "cmdline"
    ENVIRON = "environ"
    STAT = "stat"
    STATUS = "status"
    MAPS = "maps"
    COMM = "comm"
    TCP = "net/tcp"
    TCP6 = "net/tcp6"
    UDP = "net/udp"
    UDP6 = "net/udp6"
    UNIX = "net/unix"


@dataclass(frozen=True)
class FileIdentity:
    """Identifies a file and its state, with the values of fstat(2)."""

    device: int
    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int
    uid: int
    mode: int

    @property
    def key(self) -> tuple[int, int]:
        return self.device, self.inode


@dataclass(frozen=True)
class Opened:
    """An open file that probes can be attached to. The receiver closes it."""

    fd: int
    handle: int  #: the root part's number for this file; 0: there is no root part
    identity: FileIdentity
    path: str  #: for messages, and for callers that open it by name with their own rights

    def close(self) -> None:
        os.close(self.fd)


class Access(Protocol):
    """Access to one candidate. If its process has ended, files are empty, or `Unreadable` is
    raised."""

    def executable(self) -> Opened:
        """Opens its executable, even if that was replaced or deleted. Raises `Unreadable`."""

    def proc(self, name: ProcFile) -> bytes:
        """Returns at most `PROC_BYTES_MAX` bytes of the file; empty when it cannot be read."""

    def memory(self) -> int:
        """Returns a new descriptor of its memory, to read at addresses. Raises `Unreadable`."""

    def file(self, path: str) -> bytes | None:
        """Reads a regular file of at most `FILE_BYTES_MAX`, None if there is no such file.

        `path` is absolute, as the process sees it. Links are followed only below its root. Raises
        `Unreadable`.
        """

    def names(self, path: str) -> list[str]:
        """Lists a directory, sorted; empty when there is no such directory.

        Raises `Unreadable`, also for more than `DIRECTORY_ENTRIES_MAX`.
        """

    def sockets(self) -> frozenset[int]:
        """Returns the inodes of its sockets; none when they cannot be seen."""

    def threads(self) -> list[str]:
        """Returns its threads' names (comm), at most `THREADS_MAX`. Raises `Unreadable`."""

    def mapped(self, start: int, end: int) -> Opened:
        """Opens the file that is mapped from address `start` to `end`. Raises `Unreadable`."""

    def working_directory(self) -> str:
        """Returns it as the process sees it; empty when it cannot be read."""

    def file_id(self, path: str) -> tuple[int, int] | None:
        """Returns (device, inode) of a regular file, `path` as in `file`; None without one."""

    def network(self) -> str:
        """Returns its network namespace's name; empty if unknown: its tables are not shared."""


@contextmanager
def opened(file: Opened) -> Iterator[Opened]:
    """Closes the file when the block ends."""
    try:
        yield file
    finally:
        file.close()


_DELETED = " (deleted)"
_LINE = re.compile(
    r"(?P<start>[0-9a-f]{1,16})-(?P<end>[0-9a-f]{1,16}) \S{4} (?P<offset>[0-9a-f]{1,16}) \S+ "
    r"(?P<inode>\d{1,20}) +(?P<name>/.*)"
)


@dataclass(frozen=True)
class Mapping:
    """A mapped file; `Access.mapped` opens that very file, also if it was replaced or deleted."""

    name: str  #: as the process sees it
    base: int  #: address of the file's first byte, from which a library's addresses count
    end: int

    @property
    def area(self) -> str:
        """Returns the name of its link in /proc/PID/map_files: without leading zeros."""
        return f"{self.base:x}-{self.end:x}"


def mapped_files(maps: bytes, pattern: str) -> list[Mapping]:
    """Returns the files that are mapped from their first byte on and whose name matches `pattern`.

    Args:
        maps: a /proc/PID/maps, empty where it may not be read.
    """
    mappings: dict[tuple[str, str], Mapping] = {}
    wanted = re.compile(pattern)
    for line in maps.decode(errors="surrogateescape").split("\n"):
        match = _LINE.fullmatch(line)
        if match is None or int(match["offset"], 16):
            continue
        name = match["name"].removesuffix(_DELETED)
        if wanted.fullmatch(name.rpartition("/")[2]):
            mapping = Mapping(name, int(match["start"], 16), int(match["end"], 16))
            mappings.setdefault((name, match["inode"]), mapping)
    return list(mappings.values())
