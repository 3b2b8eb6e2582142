# SPDX-License-Identifier: Apache-2.0
"""The socket that applications connect to: made with root's rights, used without them."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

from qjoule.errors import QjouleError

DEFAULT_PATH = Path("/run/qjoule/tags.sock")
#: Applications that may have connected and not been accepted yet; the host may allow fewer.
BACKLOG = 1024
#: Every user may connect, which takes the right to write; nobody needs to execute a socket.
_SOCKET_UMASK = 0o111
_FOLDER_UMASK = 0o022


def listen_at(path: Path) -> socket.socket:
    """A socket that listens at the path, for every user of the host.

    As root, in folders only that nobody else can change: who could would choose what root makes,
    and what it removes. Replaces the socket of a recorder that is gone.

    Raises QjouleError: another recorder listens there, a folder is not safe, or no socket can be
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

    Without root's rights by now the name stays: the next recorder replaces it.
    """
    try:
        name = server.getsockname()
        server.close()
        if name:
            os.unlink(name)  # noqa: PTH108 (bytes, if it is no text)
    except OSError:
        server.close()


def _folder(path: Path) -> Path:
    """The socket's folder without symbolic links; made if only it is missing."""
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
    """As root: whether nobody else can change what names in this folder stand for.

    From the first folder on: what is in one that only root can change stays what it is.
    """
    if os.geteuid() != 0:
        return
    for one in (*reversed(folder.parents), folder):
        about = one.lstat()
        others_write = about.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        # In a sticky folder others cannot rename or remove what is root's.
        if not stat.S_ISDIR(about.st_mode) or (others_write and not about.st_mode & stat.S_ISVTX):
            raise QjouleError(f"others than root may write to {one}: tags need a folder of root's")
        if about.st_uid != 0:
            raise QjouleError(
                f"{one} belongs to user {about.st_uid}: remove it, or give it to root, for tags"
            )


def _with_umask(mask: int, make: Callable[[], object]) -> None:
    """Makes something with these rights from its first moment, whatever umask we were given.

    A process has one umask: what another thread makes in this moment has those rights too. Nothing
    else is made while a recording begins.
    """
    before = os.umask(mask)
    try:
        make()
    finally:
        os.umask(before)


def _make_room(path: Path) -> None:
    """Removes the socket of a recorder that is gone; leaves a living one's alone, and files."""
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
