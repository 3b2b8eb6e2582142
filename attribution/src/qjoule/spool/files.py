# SPDX-License-Identifier: Apache-2.0
"""The files of a recording that is not converted yet, below the trace's directory."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

from qjoule.errors import QjouleError

#: The folder of both. Once its trace is whole, it is removed.
FOLDER = "capture"
SPOOL, NAMES = "spool", "names"
#: Where a conversion writes its tables until they are whole.
CONVERTING = "converting"


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


def _no_file(path: Path) -> QjouleError:
    return QjouleError(f"{path} is no regular file: no recorder made that")
