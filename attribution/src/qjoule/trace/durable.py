# SPDX-License-Identifier: Apache-2.0
"""Writes files that are complete or absent, even after a crash or a power cut."""

from __future__ import annotations

import os
from pathlib import Path

from qjoule.lazy_import import pa
from qjoule.trace.meta import Meta


def hidden(path: Path) -> Path:
    """The temporary name under which `path` is written."""
    return path.with_name(f".{path.name}.tmp")


def write_whole(
    path: Path,
    data: bytes | pa.Buffer,
    *,
    durable: bool = True,
    unfinished: Path | None = None,
    mode: int = 0o666,
) -> None:
    """Atomically makes `path` hold `data`. `mode`: before the umask.

    Processes that may write the same `path` at once need different `unfinished` names.

    If not `durable`, the kernel only starts writing. A later `sync` of any file then waits for all
    metadata, and delays the syncs of a database on the same disk.
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
