# SPDX-License-Identifier: Apache-2.0
"""Reads the machine code of functions, to inspect it before relying on it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from qjoule.servers.elf import Executable, Symbol
from qjoule.servers.signatures import CannotResolve


def the_function(executable: Executable, name: str) -> Symbol:
    """The only function of this name, whose instructions will be inspected.

    Raises:
        CannotResolve: there is none or several, or the code is not x86-64.
    """
    if executable.machine != "x64":
        raise CannotResolve(f"{name} is read on x86-64 only, not {executable.machine}")
    functions = executable.functions(name)
    if len(functions) != 1:
        raise CannotResolve(f"{len(functions)} functions are named {name}")
    return functions[0]


def code_of(executable: Executable, function: Symbol, most: int) -> tuple[int, bytes]:
    """Its offset in the file and its bytes, at most so many.

    Raises:
        CannotResolve: no part of the file that is code has its address.
    """
    offset = executable.file_offset(function.vaddr)
    if offset is None:
        raise CannotResolve(f"{function.name} is not in the code of {executable.path}")
    return offset, executable.read(offset, min(function.size or most, most))


def instructions(code: bytes, vaddr: int = 0) -> Iterator[Any]:
    """capstone's instructions with their operands, up to the first invalid bytes."""
    yield from _disassembler().disasm(code, vaddr)


def load_disassembler() -> None:
    """Loads what capstone would otherwise load, opening files, at the first instruction."""
    from capstone import x86  # noqa: F401, PLC0415 - see below

    list(_disassembler().disasm(b"\x90", 0))


@cache
def _disassembler() -> Any:
    import capstone  # noqa: PLC0415 - loads a shared library: only when code is looked at

    disassembler = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    disassembler.detail = True
    return disassembler
