# SPDX-License-Identifier: Apache-2.0
"""The store's directory: its lock, its host's id, and its group's access."""

from __future__ import annotations

import fcntl
import os
import re
from contextlib import suppress
from pathlib import Path

from qjoule.agent.rollup_layout import SAMPLES, TABLES
from qjoule.errors import QjouleError
from qjoule.machine.facts import read_text
from qjoule.machine.identity import ROOT, machine_hash
from qjoule.trace.durable import write_whole

MODE = 0o600  #: of files that are not shipped
_LOCK = ".lock"
_KEY = b"qjoule.rollups"
_FILE = "host-id"
_DIGITS = 16


def locked(path: Path) -> int:
    """Locks the store; returns a descriptor. Raises `QjouleError`: not ours, or in use."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, MODE)
    except OSError as error:
        raise not_ours(path, error) from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise QjouleError(f"store.path: {path}: another agent writes to it") from None
    return descriptor


def not_ours(path: Path, error: OSError) -> QjouleError:
    return QjouleError(
        f"store.path: {path}: {error.strerror}: make it a directory of the agent's user "
        f"(uid {os.geteuid()}), or set store.enabled = false"
    )


def host_id_of(store: Path, root: Path = ROOT) -> str:
    """16 hex digits. Without a machine id: random ones, which the store keeps.

    Raises `OSError`: they cannot be kept.
    """
    if machine_id := machine_hash(root, _KEY):
        return machine_id[:_DIGITS]
    stored = read_text(store / _FILE)
    if re.fullmatch(rf"[0-9a-f]{{{_DIGITS}}}", stored):
        return stored
    host_id = os.urandom(_DIGITS // 2).hex()
    write_whole(store / _FILE, host_id.encode(), durable=True, mode=MODE)
    return host_id


def let_group_read(root: Path) -> None:
    """Lets our own group read what is shipped, if whoever made the store lets it enter.

    `qjoule ship` is another user of that group. All else in a store stays for our user alone: files
    by their mode, the sample in a directory that nobody else enters. It is this process's umask
    that lets the group in, because we may change no modes once we are confined. Raises `OSError`.
    """
    about = root.stat() if root.is_dir() else None
    if about is None or about.st_gid != os.getegid() or about.st_mode & 0o050 != 0o050:
        return
    os.umask(0o027)
    (root / SAMPLES).mkdir(mode=0o700, exist_ok=True)
    for table in TABLES:  # what was written while the group was kept out
        for path in (root / table).glob("**/*"):
            path.chmod(0o750 if path.is_dir() else 0o640)
        with suppress(FileNotFoundError):
            (root / table).chmod(0o750)  # last: until then nobody enters
