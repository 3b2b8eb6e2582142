# SPDX-License-Identifier: Apache-2.0
"""Finds the C programs that come with qjoule."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from qjoule.errors import QjouleError


def installed_program(name: str) -> Path:
    """The program beside the running Python, where `make build` puts it, or on PATH.

    Raises:
        QjouleError: there is none.
    """
    beside = Path(sys.executable).parent / name
    if beside.exists():
        return beside
    found = shutil.which(name)
    if found is None:
        raise QjouleError(f"{name} is not installed beside {sys.executable}: run 'make'")
    return Path(found)
