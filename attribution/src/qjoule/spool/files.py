# SPDX-License-Identifier: Apache-2.0
"""The files of a recording that is not converted yet, below the trace's directory."""

from __future__ import annotations

from pathlib import Path

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
    return spool_of(trace).is_file()
