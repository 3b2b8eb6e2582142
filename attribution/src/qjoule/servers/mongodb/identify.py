# SPDX-License-Identifier: Apache-2.0
"""Recognises a mongod. Its executable contains no certain version."""

from __future__ import annotations

from qjoule.servers.elf import Executable
from qjoule.servers.support import Identified

#: Names of options, in every mongod since 2.6 and in no mongos.
_OPTIONS = (b"storage.dbPath", b"systemLog.destination")


def identify(executable: Executable) -> Identified | None:
    strings = executable.constants()
    return Identified("mongodb") if all(option in strings for option in _OPTIONS) else None
