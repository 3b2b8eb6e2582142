# SPDX-License-Identifier: Apache-2.0
"""Finds functions and reads their machine code, which is inspected before probes rely on it.

A plain name is not enough to be sure of the positions of arguments: other versions of a server have
a function of the same name with other arguments. The mangled name contains the types of all
arguments (Itanium C++ ABI, "Mangling"), so equal names mean equal layout. Each server's functions
are listed in its folder.

Servers' folders search the code for known forms that contain a member's offset or a variable's
address. They search steps: instructions with the names of registers and places in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

from qjoule.errors import QjouleError
from qjoule.servers.elf import Executable, Symbol

_Role = TypeVar("_Role", bound=str)  #: a server's enumeration of roles


class CannotResolve(QjouleError):
    """A probe point is missing or uncertain; the message names it and gives the reason."""


def the_only(
    executable: Executable,
    what: str,
    names: Sequence[str],
    *,
    prefixes: Sequence[str] = (),
    missing: str = "",
) -> Symbol:
    """Returns the one of these functions that exists.

    Args:
        what: names them in messages; `missing`: the message if none exists, if it is another.
        prefixes: functions that begin so have an unknown signature.

    Raises:
        CannotResolve: none or several exist, or see `the_one`.
    """
    present = [name for name in names if executable.functions(name)]
    if len(present) > 1:
        raise CannotResolve(f"two signatures of {what}: {' and '.join(present)}")
    if present:
        return the_one(executable, present[0])
    for prefix in prefixes:
        if strangers := executable.names_with_prefix(prefix)[:1]:
            raise CannotResolve(f"{what} has a signature that is not known: {strangers[0]}")
    raise absent(missing or f"{what} of a known signature", executable)


def by_role(names: Mapping[_Role, str], executable: Executable) -> dict[str, Symbol]:
    """Returns the function of each role.

    Raises:
        CannotResolve: one is missing, ambiguous, or has clones that callers may use instead.
    """
    return {role: the_one(executable, name) for role, name in names.items()}


def the_one(executable: Executable, name: str) -> Symbol:
    """Returns the function of this name, which all its callers use.

    Raises:
        CannotResolve: it is missing, ambiguous, or has clones that callers may use instead.
    """
    functions = executable.functions(name)
    if not functions:
        raise absent(name, executable)
    if len(functions) > 1:
        raise CannotResolve(f"{len(functions)} functions are named {name}")
    # The compiler may send some callers to a copy (.constprop, .isra) or inline a function's head
    # and call its rest (.part); probes on the whole would then miss calls. `.cold` is only a jump
    # target inside the function.
    for clone in executable.names_with_prefix(name + "."):
        if not clone.removeprefix(name).startswith(".cold"):
            raise CannotResolve(f"{name} also exists as {clone}, which some callers may use")
    return functions[0]


def absent(name: str, executable: Executable) -> CannotResolve:
    """Returns an error that lists where we searched, and what would help."""
    tables = " or ".join(executable.tables) if executable.tables else "a file without symbols"
    stripped = not set(executable.tables) & {".symtab", ".gnu_debugdata"}
    mend = "; it is stripped: use a build that is not" if stripped else ""
    return CannotResolve(f"no {name} in {tables}{mend}")


NUMBER = rb"\d{1,2}\.\d{1,2}\.\d{1,3}"  #: a version
BEFORE, AFTER = 96, 24  #: bytes around a name in which to look for its version
FOUND_MAX = 100_000  #: occurrences examined: a server has some hundreds


def places(strings: bytes, name: bytes) -> Iterator[int]:
    """Yields positions where a name begins.

    Searching for a plain word takes a tenth of a second in 100 MB, whatever the content; a pattern
    takes minutes.
    """
    position = strings.find(name)
    for _ in range(FOUND_MAX):
        if position < 0:
            return
        yield position
        position = strings.find(name, position + len(name))


def is_whole(strings: bytes, begins: int, ends: int) -> bool:
    """Returns true if this is a whole string between two zeros."""
    return strings[max(begins - 1, 0) : begins] == strings[ends : ends + 1] == b"\0"


def the_function(executable: Executable, name: str) -> Symbol:
    """Returns the only function of this name, whose instructions will be inspected.

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
    """Returns its offset in the file, and at most `most` of its bytes.

    Raises:
        CannotResolve: no code segment of the file contains its address.
    """
    offset = executable.file_offset(function.vaddr)
    if offset is None:
        raise CannotResolve(f"{function.name} is not in the code of {executable.path}")
    return offset, executable.read(offset, min(function.size or most, most))


def instructions(code: bytes, vaddr: int = 0) -> Iterator[Any]:
    """Yields capstone's instructions with their operands, up to the first invalid bytes."""
    yield from _disassembler().disasm(code, vaddr)


def load_disassembler() -> None:
    """Loads files that capstone would otherwise open at the first instruction."""
    from capstone import x86  # noqa: F401, PLC0415 - see below

    list(_disassembler().disasm(b"\x90", 0))


@cache
def _disassembler() -> Any:
    import capstone  # noqa: PLC0415 - loads a shared library

    disassembler = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    disassembler.detail = True
    return disassembler


MEMBER_MAX = 0xFFFF  #: largest offset of a member in its struct
_REGISTER, _CONSTANT, _MEMORY = 1, 2, 3  #: capstone's types of operands
#: Registers that a called function may change (System V ABI, AMD64).
VOLATILE = frozenset({"rax", "rcx", "rdx", "rsi", "rdi", *(f"r{n}" for n in range(8, 12))})


@dataclass(frozen=True)
class Place:
    """A place in memory: an offset from a register, or from a segment's start without one. For a
    variable (`base` is "rip") the offset is its address."""

    base: str
    distance: int
    segment: str

    @property
    def is_member(self) -> bool:
        return self.base not in ("", "rip") and 0 < self.distance <= MEMBER_MAX


@dataclass(frozen=True)
class Step:
    """An instruction and its first two operands, as far as the known forms need them."""

    name: str  #: its mnemonic, without prefixes
    to: str | Place | None = None
    source: str | Place | None = None
    target: int | None = None  #: the address that it calls or jumps to
    constant: int | None = None  #: an immediate value in place of `source`

    def loads(self) -> tuple[str, Place] | None:
        """Returns (register, place) of a move from memory into a register."""
        if self.name == "mov" and isinstance(self.to, str) and isinstance(self.source, Place):
            return self.to, self.source
        return None

    def computes(self) -> tuple[str, Place] | None:
        """Returns (register, place) of an instruction that computes a place's address."""
        if self.name == "lea" and isinstance(self.to, str) and isinstance(self.source, Place):
            return self.to, self.source
        return None

    def compares(self) -> tuple[Place, str] | None:
        """Returns (place, register) of a comparison of these."""
        if self.name != "cmp":
            return None
        for place, register in ((self.to, self.source), (self.source, self.to)):
            if isinstance(place, Place) and isinstance(register, str):
                return place, register
        return None

    def writes(self, register: str) -> bool:
        return self.to == register and self.name not in ("cmp", "test", "push")


def as_64_bits(register: str) -> str:
    """Returns the whole of a 32-bit register; any other register unchanged."""
    if register.startswith("e"):
        return "r" + register[1:]
    return register.removesuffix("d") if register.startswith("r") else register


def body_steps(code: bytes, vaddr: int = 0) -> list[Step]:
    """Returns a short function's steps, up to the first return."""
    body = []
    for step in steps(code, vaddr):
        if step.name == "ret":
            break
        body.append(step)
    return body


def steps(code: bytes, vaddr: int = 0) -> Iterator[Step]:
    """Yields all steps of code at this address, up to the first invalid bytes."""
    for instruction in instructions(code, vaddr):
        operands = [_operand(instruction, operand) for operand in instruction.operands[:2]]
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
