# SPDX-License-Identifier: Apache-2.0
"""Reads the machine code of functions, to inspect it before relying on it.

Servers' folders look for the forms of code in which a member's offset, or a variable's address, can
be read. They look at steps: instructions with names of registers and places in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
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


MEMBER_MAX = 0xFFFF  #: no member is further into its struct
_REGISTER, _CONSTANT, _MEMORY = 1, 2, 3  #: capstone's types of operands
#: Registers that a called function may change (System V ABI, AMD64).
VOLATILE = frozenset({"rax", "rcx", "rdx", "rsi", "rdi", *(f"r{n}" for n in range(8, 12))})


@dataclass(frozen=True)
class Place:
    """A place in memory: a distance from a register, or from a segment's start without one. A
    variable (`base` is "rip") has its address as distance.
    """

    base: str
    distance: int
    segment: str

    @property
    def is_member(self) -> bool:
        return self.base not in ("", "rip") and 0 < self.distance <= MEMBER_MAX


@dataclass(frozen=True)
class Step:
    """An instruction and those of its first two operands that these forms consist of."""

    name: str  #: its mnemonic, without prefixes
    to: str | Place | None = None
    source: str | Place | None = None
    target: int | None = None  #: that it calls or jumps to
    constant: int | None = None  #: in place of `source`

    def loads(self) -> tuple[str, Place] | None:
        """(register, place) of a move from memory into a register."""
        if self.name == "mov" and isinstance(self.to, str) and isinstance(self.source, Place):
            return self.to, self.source
        return None

    def computes(self) -> tuple[str, Place] | None:
        """(register, place) of an instruction that computes a place's address."""
        if self.name == "lea" and isinstance(self.to, str) and isinstance(self.source, Place):
            return self.to, self.source
        return None

    def compares(self) -> tuple[Place, str] | None:
        """(place, register) of a comparison of these."""
        if self.name != "cmp":
            return None
        for place, register in ((self.to, self.source), (self.source, self.to)):
            if isinstance(place, Place) and isinstance(register, str):
                return place, register
        return None

    def writes(self, register: str) -> bool:
        return self.to == register and self.name not in ("cmp", "test", "push")


def as_64_bits(register: str) -> str:
    """The whole of a 32-bit register; any other register unchanged."""
    if register.startswith("e"):
        return "r" + register[1:]
    return register.removesuffix("d") if register.startswith("r") else register


def body_steps(code: bytes, vaddr: int = 0) -> list[Step]:
    """A short function's steps, up to the first return."""
    body = []
    for step in steps(code, vaddr):
        if step.name == "ret":
            break
        body.append(step)
    return body


def steps(code: bytes, vaddr: int = 0) -> Iterator[Step]:
    """All steps of code at this address, up to the first invalid bytes."""
    for instruction in instructions(code, vaddr):
        operands = [_operand(instruction, one) for one in instruction.operands[:2]]
        first, second = (*operands, None, None)[:2]
        target = None
        if instruction.operands and instruction.operands[0].type == _CONSTANT:
            target = int(instruction.operands[0].imm)
        constant = None
        if len(operands) > 1 and instruction.operands[1].type == _CONSTANT:
            constant = int(instruction.operands[1].imm)
        yield Step(instruction.mnemonic.split()[-1], first, second, target, constant)


def _operand(instruction: Any, operand: Any) -> str | Place | None:
    if operand.type == _REGISTER:
        return str(instruction.reg_name(operand.reg))
    if operand.type != _MEMORY or operand.mem.index:
        return None
    memory = operand.mem
    base = instruction.reg_name(memory.base) if memory.base else ""
    segment = instruction.reg_name(memory.segment) if memory.segment else ""
    here = instruction.address + instruction.size if base == "rip" else 0
    return Place(base, int(memory.disp) + here, segment)
