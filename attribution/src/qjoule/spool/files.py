# SPDX-License-Identifier: Apache-2.0
"""The files of a recording that is not converted yet, below the trace's directory."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

from qjoule.errors import QjouleError
from qjoule.trace.meta import Meta, parse_meta

#: The folder of both. Once its trace is whole, it is removed.
FOLDER = "capture"
SPOOL, NAMES = "spool", "names"
#: Where a conversion writes its tables until they are whole.
CONVERTING = "converting"
#: A server is a few hundred bytes, and a trace has at most some thousand changes of them.
_MOST_META_BYTES = 16 << 20


def spool_of(trace: Path) -> Path:
    return trace / FOLDER / SPOOL


def names_of(trace: Path) -> Path:
    return trace / FOLDER / NAMES


def is_captured(trace: Path) -> bool:
    """Whether a trace has something to convert."""
    return os.path.lexists(spool_of(trace))


def open_regular(path: Path) -> BinaryIO:
    """Opens a file of a recording to read. It may come from anybody.

    Raises:
        QjouleError: it is a link, a pipe, a device or the like.
        OSError: it cannot be opened.
    """
    # Without O_NONBLOCK a pipe would make us wait, and opening some devices does something.
    if not stat.S_ISREG(path.lstat().st_mode):
        raise _no_file(path)
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _no_file(path)
    return os.fdopen(descriptor, "rb")


def meta_of(trace: Path) -> Meta:
    """Raises QjouleError: meta.json is damaged; `OSError`."""
    try:
        with open_regular(trace / "meta.json") as file:
            content = file.read(_MOST_META_BYTES + 1)
        if len(content) > _MOST_META_BYTES:
            raise ValueError("it is too large")
        return parse_meta(content)
    except ValueError as error:
        raise QjouleError(f"{trace / 'meta.json'}: {error}; the recording is as it was") from None


def _no_file(path: Path) -> QjouleError:
    return QjouleError(f"{path} is no regular file: no recorder made that")
