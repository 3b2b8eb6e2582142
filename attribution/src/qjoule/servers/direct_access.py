# SPDX-License-Identifier: Apache-2.0
"""Reaches a candidate's files by their paths, with the rights of this process.

This is the only module below `servers/` that opens, stats, lists or follows a path of a candidate,
for an ordinary user's `qjoule doctor`, and for trees of files that look like /proc in tests.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from qjoule.servers import rootfs_reader
from qjoule.servers.access import (
    PROC_BYTES_MAX,
    SOCKETS_MAX,
    THREADS_MAX,
    FileIdentity,
    Opened,
    ProcFile,
    Unreadable,
    below_root,
)
from qjoule.servers.processes import PORT_RANGE_DEFAULT, Process

_PORT_RANGE = "sys/net/ipv4/ip_local_port_range"
_PID = re.compile(r"[0-9]{1,10}")
DELETED = " (deleted)"  #: the kernel appends it to the name of an unlinked file


def processes(proc: Path, hidden: list[int] | None = None) -> Iterator[Process]:
    """Yields every process whose executable can be seen. Kernel threads have no executable.

    `hidden` collects the processes that only root may look at.
    """
    for entry in sorted(proc.iterdir(), key=lambda path: path.name):
        if not _PID.fullmatch(entry.name):
            continue
        try:
            name = str((entry / "exe").readlink())
            identity = file_id(entry / "exe")
            # The name in parentheses may hold spaces and parentheses (/proc/pid/stat, proc(5)).
            parent = int((entry / "stat").read_bytes().rpartition(b")")[2].split()[1])
            uid = entry.stat().st_uid
        except PermissionError:
            if hidden is not None:
                hidden.append(int(entry.name))
            continue
        except (OSError, ValueError, IndexError):
            continue
        if identity is not None:
            plain = name.removesuffix(DELETED)
            groups = control_groups(entry)
            pid = int(entry.name)
            yield Process(pid, parent, entry, plain, identity, uid, groups)


def is_process(proc: Path, pid: int) -> bool:
    return (proc / str(pid)).exists()


def control_groups(directory: Path) -> str:
    """Returns a process' control groups, one line per hierarchy (cgroups(7)); all may read them."""
    return read_bytes(directory / "cgroup").decode(errors="replace")


def port_range(proc: Path) -> tuple[int, int]:
    """Returns the ports that the kernel assigns to clients (ip(7), ip_local_port_range)."""
    with suppress(ValueError):
        low, high = map(int, read_text(proc / _PORT_RANGE).split())
        return low, high
    return PORT_RANGE_DEFAULT


def installed_files(root: Path, patterns: Iterable[str]) -> list[tuple[Path, FileIdentity]]:
    """Returns regular files whose paths below `root` match, in order."""
    files = []
    for pattern in patterns:
        for path in sorted(root.glob(pattern)):
            with suppress(OSError):
                status = path.stat()
                if stat.S_ISREG(status.st_mode):
                    files.append((path, identity_of(status)))
    return files


@dataclass(frozen=True)
class DirectAccess:
    """An `Access` by paths. `directory` is /proc/PID; `root` is this machine's root directory.

    `root` None: the paths belong to no machine that can be accessed.
    """

    directory: Path
    root: Path | None = Path("/")

    def executable(self) -> Opened:
        return open_regular(self.directory / "exe", str(self._openable()))

    def proc(self, name: ProcFile) -> bytes:
        return read_bytes(self.directory / name)

    def memory(self) -> int:
        try:
            return os.open(self.directory / "mem", os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError as error:
            raise Unreadable(f"its memory may not be read: {error.strerror}") from None

    def file(self, path: str) -> bytes | None:
        return rootfs_reader.read_file(self.directory / "root", path)

    def names(self, path: str) -> list[str]:
        return rootfs_reader.list_directory(self.directory / "root", path)

    def sockets(self) -> frozenset[int]:
        return frozenset(_socket_inodes(self.directory / "fd"))

    def threads(self) -> list[str]:
        return thread_names(self.directory)

    def mapped(self, start: int, end: int) -> Opened:
        path = self.directory / "map_files" / f"{start:x}-{end:x}"
        return open_regular(path, str(path))

    def working_directory(self) -> str:
        try:
            cwd, root = (str((self.directory / name).readlink()) for name in ("cwd", "root"))
            return below_root(cwd, root)
        except OSError:
            return ""

    def file_id(self, path: str) -> tuple[int, int] | None:
        try:
            return rootfs_reader.file_id(self.directory / "root", path)
        except Unreadable:
            return None

    def network(self) -> str:
        try:
            return str((self.directory / "ns/net").readlink())
        except OSError:
            return str(self.directory)

    def _openable(self) -> Path:
        """Returns a path that opens exactly this executable, the plainest first."""
        exe = self.directory / "exe"
        with suppress(OSError):
            name = str(exe.readlink())
            inside = name.lstrip("/")
            if not name.endswith(DELETED) and self.root is not None:
                for path in (self.root / inside, self.directory / "root" / inside):
                    if file_id(path) == file_id(exe):
                        return path
        return exe


def thread_names(directory: Path) -> list[str]:
    """`Access.threads` of a process with this directory in /proc; none if it has ended."""
    try:
        with os.scandir(directory / "task") as entries:
            paths = [Path(entry.path) / "comm" for entry in islice(entries, THREADS_MAX)]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise Unreadable(f"its threads cannot be seen: {error.strerror}") from None
    comms = map(read_bytes, paths)
    return [comm.decode(errors="replace").rstrip("\n") for comm in comms if comm]


@dataclass(frozen=True)
class FileAccess:
    """An `Access` to an executable that no process runs; everything else is empty."""

    path: Path

    def executable(self) -> Opened:
        return open_regular(self.path, str(self.path))

    def proc(self, name: ProcFile) -> bytes:  # noqa: ARG002
        return b""

    def memory(self) -> int:
        raise Unreadable("it does not run")

    def file(self, path: str) -> bytes | None:  # noqa: ARG002
        return None

    def names(self, path: str) -> list[str]:  # noqa: ARG002
        return []

    def sockets(self) -> frozenset[int]:
        return frozenset()

    def threads(self) -> list[str]:
        return []

    def mapped(self, start: int, end: int) -> Opened:  # noqa: ARG002
        raise Unreadable("it does not run")

    def working_directory(self) -> str:
        return ""

    def file_id(self, path: str) -> tuple[int, int] | None:  # noqa: ARG002
        return None

    def network(self) -> str:
        return ""


def open_regular(path: Path, shown: str) -> Opened:
    """Opens a regular file for reading. Other files are not: opening a device may have effects.

    Raises:
        Unreadable: it cannot be opened, or is another kind of file.
    """
    try:
        there = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            if not stat.S_ISREG(os.fstat(there).st_mode):
                raise Unreadable(f"{shown} is not a regular file")
            descriptor = os.open(f"/proc/self/fd/{there}", os.O_RDONLY | os.O_CLOEXEC)
        finally:
            os.close(there)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "no path"
        raise Unreadable(f"cannot open {shown}: {why}") from None
    return Opened(descriptor, 0, identity_of(os.fstat(descriptor)), shown)


def identity_of(status: os.stat_result) -> FileIdentity:
    return FileIdentity(
        status.st_dev,
        status.st_ino,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
        status.st_uid,
        status.st_mode,
    )


def file_id(path: Path) -> tuple[int, int] | None:
    """Returns (device, inode) of a regular file."""
    try:
        status = path.stat()
    except (OSError, ValueError):
        return None
    return (status.st_dev, status.st_ino) if stat.S_ISREG(status.st_mode) else None


def read_bytes(path: Path) -> bytes:
    """Reads a file of /proc, empty when it cannot be read."""
    with suppress(OSError, ValueError):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as stream:
            return stream.read(PROC_BYTES_MAX)
    return b""


def read_text(path: Path) -> str:
    """Like `read_bytes`, as text. Bytes that are not UTF-8 are kept."""
    return read_bytes(path).decode(errors="surrogateescape")


def _socket_inodes(directory: Path) -> Iterator[int]:
    with suppress(OSError), os.scandir(directory) as entries:
        for count, entry in enumerate(entries):
            if count == SOCKETS_MAX:
                return
            with suppress(OSError, ValueError):
                target = os.readlink(entry.path)  # noqa: PTH115 - there are thousands
                if target.startswith("socket:["):
                    yield int(target[8:-1])
