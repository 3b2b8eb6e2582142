# SPDX-License-Identifier: Apache-2.0
"""Recognises a FerretDB. Its executable contains no certain version."""

from __future__ import annotations

from qjoule.servers.elf import Executable
from qjoule.servers.support import Identified

_MODULE = b"github.com/FerretDB/FerretDB/"  #: where Go has its packages from


def identify(executable: Executable) -> Identified | None:
    return Identified("ferretdb") if _MODULE in executable.constants() else None
