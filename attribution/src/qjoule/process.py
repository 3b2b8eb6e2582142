# SPDX-License-Identifier: Apache-2.0
"""Changes of the own process: its user, its rights, how it names files, and its heap.

A command that reads or writes what a stranger may have made gives up root for good. Its user may
have no access to the directories above the files that root named on the command line, so root opens
them first. The command then uses names below `/proc/self/fd`, which its messages show as they were
given.

`hide` keeps other processes of our user out of this one: they could take a socket to the root part
from it (pidfd_getfd(2)), or make it send what they like (ptrace(2)). A new program is open to them
until it calls `hide`. Until then a capability keeps them out: the root part leaves CAP_SETPCAP to
the programs that it starts (tracer/root/user.c), which permits nothing because the bounding set is
empty, and which the others lack.

What is said of the heap here holds for glibc; with another libc the functions leave it as it is.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import stat
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path

OPENED = Path("/proc/self/fd")
#: By O_PATH descriptor: the directory's name on the command line.
opened_directories: dict[int, str] = {}


def by_descriptor(descriptor: int, word: str) -> Path:
    """Path of what `descriptor` has open. Its user needs rights for that and all in it."""
    opened_directories[descriptor] = word
    return OPENED / str(descriptor)


def as_given(message: str) -> str:
    """Returns a message in which descriptors' paths are the names that the user gave."""
    for descriptor in sorted(opened_directories, reverse=True):
        message = message.replace(str(OPENED / str(descriptor)), opened_directories[descriptor])
    return message


_PR_SET_DUMPABLE, _PR_CAP_AMBIENT = 4, 47  #: prctl(2)
_IS_SET, _CLEAR_ALL = 1, 4  #: PR_CAP_AMBIENT_...
_SETPCAP = 8  #: linux/capability.h
_VERSION_3 = 0x20080522  #: capset(2), linux/capability.h: two words for each of three sets
_libc = ctypes.CDLL(None, use_errno=True)


def hide() -> None:
    """Keeps processes without CAP_SYS_PTRACE out of this one. Raises OSError."""
    _check(_libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0))


def drop_capability() -> None:
    """Drops the capability of this thread and of what it starts, if the root part started us.
    Raises OSError."""
    if _libc.prctl(_PR_CAP_AMBIENT, _IS_SET, _SETPCAP, 0, 0) != 1:
        return
    _check(_libc.prctl(_PR_CAP_AMBIENT, _CLEAR_ALL, 0, 0, 0))
    _check(_libc.capset((ctypes.c_uint32 * 2)(_VERSION_3, 0), (ctypes.c_uint32 * 6)()))


def _check(result: int) -> None:
    if result:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


READER = 61183  #: of root's own recordings, which have this group (tracer/root/outputs.c)
SHIPPER = "qjoule-ship"  #: the package's user for `ship` (packaging/systemd/sysusers.conf)
_ENTRIES = 10_000  #: of a directory that are checked


class User:
    """The user that a command becomes. No dataclass: its module takes 1 MB in each process."""

    def __init__(self, uid: int, gid: int, groups: tuple[int, ...] = ()) -> None:
        self.uid, self.gid, self.groups = uid, gid, groups

    def may(self, path: Path, mode: int) -> bool:
        """True if this user has that access (os.R_OK, os.W_OK, os.X_OK), tested as root."""
        with self._for_now():
            return os.access(path, mode, effective_ids=True)

    @contextmanager
    def _for_now(self) -> Iterator[None]:
        groups = os.getgroups()
        os.setgroups(self.groups)
        os.setegid(self.gid)
        os.seteuid(self.uid)
        try:
            yield
        finally:
            os.seteuid(0)
            os.setegid(0)
            os.setgroups(groups)


def drop_privileges(uid: int, gid: int, groups: Collection[int] = ()) -> None:
    """Makes this process that user's for good, without other groups (setresuid(2))."""
    os.setgroups(list(groups))
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)


def reader(pinned: Collection[Path], *, strangers: bool = False) -> User | None:
    """The user as whom root's command reads these files; None: root, because all are root's own.

    That is their owner, if there is one beside root; otherwise who called sudo, or `READER`.

    Args:
        pinned: made by `by_descriptor`, so that they stay what is judged here.
        strangers: files of anybody are read beside these, so it is never root.
    """
    inside = [entry for path in pinned for entry in islice(path.rglob("*"), _ENTRIES)]
    statuses = [*(path.stat() for path in pinned), *map(_status, inside)]
    owners = {status.st_uid: status.st_gid for status in statuses if status.st_uid}
    if len(owners) == 1:
        return _user(*owners.popitem())
    if pinned and not owners and all(status.st_gid == READER for status in statuses):
        return User(READER, READER)
    caller = _caller()
    linked = any(path.is_symlink() for path in inside)
    if pinned and not owners and not linked and not any(map(_others_may_change, statuses)):
        needs = ((Path(as_given(str(path))), needed(path)) for path in (*pinned, *inside))
        shared = caller is not None and all(caller.may(*need) for need in needs)
        if shared or not strangers:
            return caller if shared else None
    return caller or User(READER, READER)


def shipper(store: Path) -> User:
    """The user as whom root's `ship` reads an agent's store: by the store's group, never its owner.

    That is the package's user, else who called sudo, else `READER`.
    """
    owner = group = 0
    with suppress(FileNotFoundError):  # which the command then reports
        owner, group = store.stat().st_uid, store.stat().st_gid
    users = [_caller(), User(READER, READER)]
    with suppress(KeyError):
        package = pwd.getpwnam(SHIPPER)
        users.insert(0, User(package.pw_uid, package.pw_gid))
    user = next(
        candidate for candidate in users if candidate is not None and candidate.uid != owner
    )
    return User(user.uid, user.gid, (group,) if group else ())


def needed(path: Path) -> int:
    """Access (os.R_OK, os.X_OK) that it takes to read a file or directory."""
    return os.R_OK | os.X_OK if path.is_dir() else os.R_OK


def _caller() -> User | None:
    """Who called sudo."""
    uid, gid = (int(os.environ.get(name) or 0) for name in ("SUDO_UID", "SUDO_GID"))
    return User(uid, gid) if uid and gid else None


def _status(path: Path) -> os.stat_result:
    try:
        return path.stat()
    except OSError:  # a link to nothing
        return path.lstat()


def _others_may_change(status: os.stat_result) -> bool:
    """True if others than root may replace a directory's entries before they are opened."""
    return stat.S_ISDIR(status.st_mode) and bool(status.st_mode & (stat.S_IWGRP | stat.S_IWOTH))


def _user(uid: int, gid: int) -> User:
    """With the user's own group: a file's may be another, by the directory that it is in."""
    try:
        return User(uid, pwd.getpwuid(uid).pw_gid)
    except KeyError:
        return User(uid, gid)


#: Parameters of mallopt(3) (malloc.h).
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8


def keep_freed_memory() -> None:
    """Lets the process keep what it frees, for commands that read a trace in many equal parts.

    Without it, glibc and Arrow's own heap return the arrays of each part to the kernel, which
    clears the same pages for the next part.
    """
    import pyarrow as pa  # noqa: PLC0415 (the spool's keeper needs little of this module)

    _tune_malloc({_M_MMAP_THRESHOLD: 32 << 20, _M_TRIM_THRESHOLD: 128 << 20})
    pa.set_memory_pool(pa.system_memory_pool())


def limit_memory() -> None:
    """Keeps the agent's engine small over weeks: restrains BLAS, Arrow and the heap.

    To be called before numpy and pyarrow are imported. The model's matrices are small: a second
    BLAS thread only spins beside the first. By default glibc raises the threshold from which
    temporaries are mapped, and given back when they are freed, up to 32 MB, and the heap then grows
    in pieces that it cannot give back. The engine's thread and the store's share one heap.
    """
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"
    _tune_malloc({_M_MMAP_THRESHOLD: 1 << 18, _M_TRIM_THRESHOLD: 1 << 20, _M_ARENA_MAX: 1})


def return_freed_memory() -> None:
    """Gives the kernel the pages between what the heap holds (malloc_trim(3))."""
    with suppress(AttributeError):  # not glibc
        ctypes.CDLL(None).malloc_trim(0)


def _tune_malloc(parameters: dict[int, int]) -> None:
    if mallopt := getattr(ctypes.CDLL(None), "mallopt", None):
        for parameter, value in parameters.items():
            mallopt(parameter, value)
