# SPDX-License-Identifier: Apache-2.0
"""Reads files as a process sees them, even if its root directory is a container's.

Following /proc/PID/root with ordinary path functions is wrong, and unsafe for root: an absolute
symbolic link inside the container would lead to a file of the host. openat2(2) with
RESOLVE_IN_ROOT resolves every step below the given root.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
from itertools import islice
from pathlib import Path

from qjoule.servers.access import DIRECTORY_ENTRIES_MAX, FILE_BYTES_MAX, Unreadable, path_bytes

_SYS_OPENAT2 = 437  # the same on every architecture
_RESOLVE_NO_MAGICLINKS = 0x02
_RESOLVE_IN_ROOT = 0x10
_libc = ctypes.CDLL(None, use_errno=True)


def read_file(root: Path, path: str) -> bytes | None:
    """Reads a regular file, None when there is no such file.

    Args:
        root: the directory that is the process's `/`, such as /proc/PID/root.
        path: absolute, as a process with that root would name it.

    Raises:
        Unreadable: permission, not a regular file, larger than FILE_BYTES_MAX.
    """
    there = _open(root, path, os.O_PATH)
    if there is None:
        return None
    try:
        # A device or a named pipe that was put in the file's place must not be opened.
        if not stat.S_ISREG(os.fstat(there).st_mode):
            raise Unreadable(f"{path} is not a regular file")
        descriptor = os.open(f"/proc/self/fd/{there}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise Unreadable(f"{path}: {error.strerror}") from None
    finally:
        os.close(there)
    with os.fdopen(descriptor, "rb") as stream:
        content = stream.read(FILE_BYTES_MAX + 1)
    if len(content) > FILE_BYTES_MAX:
        raise Unreadable(f"{path} is larger than {FILE_BYTES_MAX >> 20} MiB")
    return content


def file_id(root: Path, path: str) -> tuple[int, int] | None:
    """Returns (device, inode) of a regular file.

    Raises:
        Unreadable: permission.
    """
    there = _open(root, path, os.O_PATH)
    if there is None:
        return None
    try:
        status = os.fstat(there)
    finally:
        os.close(there)
    return (status.st_dev, status.st_ino) if stat.S_ISREG(status.st_mode) else None


def list_directory(root: Path, path: str) -> list[str]:
    """Returns names in a directory, sorted; none when there is no such directory.

    Raises:
        Unreadable: permission, not a directory, more than DIRECTORY_ENTRIES_MAX entries.
    """
    descriptor = _open(root, path, os.O_RDONLY | os.O_DIRECTORY)
    if descriptor is None:
        return []
    try:
        with os.scandir(descriptor) as entries:  # listing is bounded, too
            names = [entry.name for entry in islice(entries, DIRECTORY_ENTRIES_MAX + 1)]
    except OSError as error:
        raise Unreadable(f"{path}: {error.strerror}") from None
    finally:
        os.close(descriptor)
    if len(names) > DIRECTORY_ENTRIES_MAX:
        raise Unreadable(f"{path} has more than {DIRECTORY_ENTRIES_MAX} entries")
    return sorted(names)


def open_directory_below(top: int, path: str) -> int:
    """Opens a directory, to reach entries in it by name; returns the descriptor.

    Args:
        top: descriptor of the root directory.

    Raises:
        Unreadable: permission, no such directory.
    """
    descriptor = _open_below(top, path, os.O_PATH | os.O_DIRECTORY)
    if descriptor is None:
        raise Unreadable(f"{path} is no directory")
    return descriptor


def _open(root: Path, path: str, flags: int) -> int | None:
    try:
        top = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise Unreadable(f"{path}: {error.strerror} (root directory of the process)") from error
    try:
        return _open_below(top, path, flags)
    finally:
        os.close(top)


def _open_below(top: int, path: str, flags: int) -> int | None:
    # struct open_how: flags, mode, resolve
    how = struct.pack("=QQQ", flags | os.O_CLOEXEC, 0, _RESOLVE_IN_ROOT | _RESOLVE_NO_MAGICLINKS)
    name = path_bytes(path)
    result: int = _libc.syscall(_SYS_OPENAT2, top, name, how, len(how))
    problem = ctypes.get_errno()
    if result >= 0:
        return result
    if problem in (errno.ENOENT, errno.ENOTDIR):
        return None
    raise Unreadable(f"{path}: {os.strerror(problem)}")
