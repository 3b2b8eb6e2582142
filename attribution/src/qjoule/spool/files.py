# SPDX-License-Identifier: Apache-2.0
"""The files of a recording that is not converted yet, below the trace's directory."""

from __future__ import annotations

import os
from pathlib import Path

from qjoule.errors import QjouleError
from qjoule.trace.meta import Meta, read_meta

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


def meta_of(trace: Path) -> Meta:
    """Raises QjouleError: meta.json is damaged; `OSError`."""
    try:
        return read_meta(trace)
    except ValueError as error:
        raise QjouleError(f"{trace / 'meta.json'}: {error}; the recording is as it was") from None
