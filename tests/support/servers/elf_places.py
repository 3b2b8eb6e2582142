# SPDX-License-Identifier: Apache-2.0
"""Where a function is in an executable file."""

from __future__ import annotations

from pathlib import Path

from qjoule.servers.elf import open_executable


def offset_of(path: Path, name: str) -> int:
    executable = open_executable(path)
    (symbol,) = executable.functions(name)
    offset = executable.file_offset(symbol.vaddr)
    assert offset is not None
    return offset
