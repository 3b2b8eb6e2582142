# SPDX-License-Identifier: Apache-2.0
"""Gives up root for good, for commands that read or write what a stranger may have made."""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from qjoule.named import as_given

READER = 61183  #: of root's own recordings, which have this group (tracer/root/outputs.c)
SHIPPER = "qjoule-ship"  #: the package's user for `ship` (packaging/systemd/sysusers.conf)
_ENTRIES = 10_000  #: of a directory that are looked at


@dataclass(frozen=True)
class User:
    """Whom a command becomes."""

    uid: int
    gid: int
    groups: tuple[int, ...] = ()

    def may(self, path: Path, mode: int) -> bool:
        """Whether this user may do that (os.R_OK, os.W_OK, os.X_OK), asked as root."""
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


def become(uid: int, gid: int, groups: Collection[int] = ()) -> None:
    """From here on this process is that user, without other groups (setresuid(2))."""
    os.setgroups(list(groups))
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)


def reader(pinned: Collection[Path]) -> User | None:
    """The user as whom root's command reads these files; None: root, because all are root's own.

    That is their owner, if there is one beside root; otherwise who called sudo, or `READER`.

    Args:
        pinned: made by `by_descriptor`, so that they stay what is judged here.
    """
    inside = [one for path in pinned for one in islice(path.rglob("*"), _ENTRIES)]
    statuses = [*(path.stat() for path in pinned), *map(_status, inside)]
    owners = {status.st_uid: status.st_gid for status in statuses if status.st_uid}
    if len(owners) == 1:
        return _user(*owners.popitem())
    if pinned and not owners and all(status.st_gid == READER for status in statuses):
        return User(READER, READER)
    caller = _caller()
    linked = any(path.is_symlink() for path in inside)
    if pinned and not owners and not linked and not any(map(_others_may_change, statuses)):
        named = ((Path(as_given(str(path))), needed(path)) for path in (*pinned, *inside))
        shared = caller is not None and all(caller.may(*one) for one in named)
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
    user = next(one for one in users if one is not None and one.uid != owner)
    return replace(user, groups=(group,) if group else ())


def needed(path: Path) -> int:
    """What one must be permitted to read a file or directory."""
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
    """Whether others than root may put something else there, before it is opened."""
    return stat.S_ISDIR(status.st_mode) and bool(status.st_mode & (stat.S_IWGRP | stat.S_IWOTH))


def _user(uid: int, gid: int) -> User:
    """With the user's own group: a file's may be another, by the directory that it is in."""
    try:
        return User(uid, pwd.getpwuid(uid).pw_gid)
    except KeyError:
        return User(uid, gid)
