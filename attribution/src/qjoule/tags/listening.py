# SPDX-License-Identifier: Apache-2.0
"""The socket that applications connect to. Root makes it; an unprivileged process uses it."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

from qjoule.errors import QjouleError

DEFAULT_PATH = Path("/run/qjoule/tags.sock")
#: Applications that wait to be accepted. The host may allow fewer.
BACKLOG = 1024
#: Every user may connect, which needs the right to write. Nobody needs to execute a socket.
_SOCKET_UMASK = 0o111
_FOLDER_UMASK = 0o022


def listen_at(path: Path) -> socket.socket:
    """Returns a socket that listens at the path, for every user of the host.

    Root makes it only in folders that nobody else can change: otherwise others would choose what
    root creates and removes. Replaces the socket of a recorder that is gone.

    Raises QjouleError if another recorder listens there, a folder is not safe, or no socket can be
    made.
    """
    server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
    try:
        folder = _folder(path)
        _make_room(folder / path.name)
        _with_umask(_SOCKET_UMASK, lambda: server.bind(str(folder / path.name)))
        server.listen(BACKLOG)
    except OSError as error:
        server.close()
        raise QjouleError(f"cannot listen for tags at {path}: {error.strerror or error}") from None
    except BaseException:
        server.close()
        raise
    return server


def remove(server: socket.socket) -> None:
    """Closes a socket of `listen_at`, and removes its name.

    Without root's rights the name stays, and the next recorder replaces it.
    """
    try:
        name = server.getsockname()
        server.close()
        if name:
            os.unlink(name)  # noqa: PTH108 (bytes, if it is no text)
    except OSError:
        server.close()


def _folder(path: Path) -> Path:
    """Returns the socket's folder without symbolic links. Makes it if its parent exists."""
    try:
        folder = path.parent.resolve(strict=True)
    except FileNotFoundError:
        folder = path.parent.parent.resolve(strict=True) / path.parent.name
        _check(folder.parent)
        _with_umask(_FOLDER_UMASK, lambda: folder.mkdir(mode=0o755, exist_ok=True))
        folder = folder.resolve(strict=True)
    _check(folder)
    return folder


def _check(folder: Path) -> None:
    """For root: checks that nobody else can replace what the names in this folder refer to.

    Checks from / down: the content of a folder that only root can change stays.
    """
    if os.geteuid() != 0:
        return
    for part in (*reversed(folder.parents), folder):
        about = part.lstat()
        others_write = about.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        # In a sticky folder others cannot rename or remove root's files.
        if not stat.S_ISDIR(about.st_mode) or (others_write and not about.st_mode & stat.S_ISVTX):
            raise QjouleError(f"others than root may write to {part}: tags need a folder of root's")
        if about.st_uid != 0:
            raise QjouleError(
                f"{part} belongs to user {about.st_uid}: remove it, or give it to root, for tags"
            )


def _with_umask(mask: int, make: Callable[[], object]) -> None:
    """Makes something with the right mode from the start, whatever umask we inherited.

    The umask is per process, so this must run while no other thread makes files: when a recording
    begins.
    """
    before = os.umask(mask)
    try:
        make()
    finally:
        os.umask(before)


def _make_room(path: Path) -> None:
    """Removes the socket of a recorder that is gone. Raises if it is a living recorder's, or no
    socket."""
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise QjouleError(f"{path} is not a socket: remove it, or set QJOULE_TAGS_SOCKET")
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
        except BlockingIOError:
            pass
    raise QjouleError(f"another recorder takes the tags: {path}")
