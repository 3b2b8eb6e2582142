# SPDX-License-Identifier: Apache-2.0
"""Writes files that are complete or absent, even after a crash or a power cut."""

from __future__ import annotations

import os
from pathlib import Path

from qjoule.lazy_import import pa
from qjoule.trace.meta import Meta


def hidden(path: Path) -> Path:
    """The name of `path` while it is being written."""
    return path.with_name(f".{path.name}.tmp")


def write_whole(
    path: Path,
    data: bytes | pa.Buffer,
    *,
    durable: bool = True,
    unfinished: Path | None = None,
    mode: int = 0o666,
) -> None:
    """Makes `path` hold `data`, and never just a part of it. `mode`: less the umask.

    Where several processes may write the same `path`, each needs an `unfinished` name of its own.

    If not `durable`, the kernel starts writing it to disk, and a later `sync` of any file waits for
    the metadata of all. Each sync makes a database on the same disk wait for its own.
    """
    unfinished = unfinished or hidden(path)
    try:
        opened = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
        with os.fdopen(opened, "wb", buffering=0) as file:
            unwritten = memoryview(data)
            while unwritten.nbytes:
                unwritten = unwritten[file.write(unwritten) :]
            if durable:
                os.fsync(file.fileno())
            else:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        if durable:
            publish(unfinished, path)
        else:
            unfinished.rename(path)
    except OSError:
        unfinished.unlink(missing_ok=True)
        raise


def replace_meta(trace: Path, meta: Meta) -> None:
    """Makes `meta` the trace's meta.json. Raises `OSError`."""
    write_whole(trace / "meta.json", meta.to_json().encode())


def publish(unfinished: Path, path: Path) -> None:
    """Renames a synced file into place, durably."""
    unfinished.rename(path)
    sync(path.parent)


def sync(path: Path) -> None:
    """Syncs a file, or a directory after names in it have changed."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
