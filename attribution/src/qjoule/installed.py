# SPDX-License-Identifier: Apache-2.0
"""Finds the C programs and the agent's files that come with qjoule."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from qjoule.errors import QjouleError

#: Where a wheel has them, and where `make build` puts programs and the agent's files.
#: `qjoule.start` looks for the root part in the same places, in the same order.
PLACES = (
    Path(__file__).parent / "programs",
    Path(sys.executable).parent,
    Path(sys.prefix) / "lib" / "qjoule",
    Path("/usr/lib/qjoule"),
)


def installed_program(name: str) -> Path:
    """The program of this installation, or one on PATH.

    Raises:
        QjouleError: there is none.
    """
    found = installed_files(name)
    if found is not None:
        return found[0]
    on_path = shutil.which(name)
    if on_path is None:
        raise QjouleError(
            f"{name} is not installed beside {sys.executable}: run 'make', or install a wheel "
            "that was made for this machine"
        )
    return Path(on_path)


def installed_files(*names: str) -> tuple[Path, ...] | None:
    """Files of this installation that are all in one place; None if no place has them all."""
    for place in PLACES:
        files = tuple(place / name for name in names)
        if all(file.is_file() for file in files):
            return files
    return None
