# SPDX-License-Identifier: Apache-2.0
"""Forms of x86-64 code from which `memory` takes offsets of members.

Each function takes a function's first bytes. Arguments are in rdi, rsi, rdx (System V ABI, AMD64).
Code of another form gives nothing, or `CannotResolve`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from qjoule.servers.function_code import instructions
from qjoule.servers.signatures import CannotResolve

_MOST = 0xFFFF  #: no member is further into its struct
_NEAR = 8  #: instructions between the parts of one form
_FIRST, _SECOND, _THIRD = "rdi", "rsi", "rdx"
_REGISTER, _CONSTANT, _MEMORY = 1, 2, 3  #: capstone's types of operands


@dataclass(frozen=True)
class _Place:
    """A place in memory: a distance from a register. No registers: from a segment's start."""

    base: str
    distance: int
    segment: str

    @property
    def is_member(self) -> bool:
        return bool(self.base) and 0 < self.distance <= _MOST


@dataclass(frozen=True)
class _Step:
    """An instruction and those of its first two operands that these forms consist of."""

    name: str  #: its mnemonic, without prefixes
    to: str | _Place | None = None
    source: str | _Place | None = None
    target: int | None = None  #: that it calls or jumps to

    def loads(self) -> tuple[str, _Place] | None:
        """(register, place) of a move from memory into a register."""
        if self.name == "mov" and isinstance(self.to, str) and isinstance(self.source, _Place):
            return self.to, self.source
        return None

    def computes(self) -> tuple[str, _Place] | None:
        """(register, place) of an instruction that computes a place's address."""
        if self.name == "lea" and isinstance(self.to, str) and isinstance(self.source, _Place):
            return self.to, self.source
        return None

    def compares(self) -> tuple[_Place, str] | None:
        """(place, register) of a comparison of these."""
        if self.name != "cmp":
            return None
        for place, register in ((self.to, self.source), (self.source, self.to)):
            if isinstance(place, _Place) and isinstance(register, str):
                return place, register
        return None

    def writes(self, register: str) -> bool:
        return self.to == register and self.name not in ("cmp", "test", "push")


def below_thread_pointer(code: bytes) -> int:
    """How far below the thread pointer the variable is that a function returns (ELF TLS, "local
    exec").

    Raises:
        CannotResolve: the function does not read one such variable.
    """
    places: dict[str, int] = {}  # distance from the thread pointer of what a register holds
    found = set()
    for step in _body(code):
        part = step.loads() or step.computes()
        if part is None:
            continue
        register, place = part
        base = places.get(place.base)
        places.pop(register, None)
        if place.segment == "fs" and not place.base:
            if place.distance == 0:
                places[register] = 0
            elif place.distance < 0:
                found.add(-place.distance)
        elif base is not None and step.name == "lea":
            places[register] = base + place.distance
        elif base is not None:
            found.add(-(base + place.distance))
    return _one(found, "does not return a variable of its thread")


def found_by_id(code: bytes) -> set[tuple[int, int]]:
    """Pairs (member of the first argument that points to a struct, member of that struct that is
    compared with the second argument).
    """
    pairs: set[tuple[int, int]] = set()
    pointers: dict[str, tuple[int, int]] = {}  # register: (member, number of its step)
    changed = False  # up to the next jump or return the arguments may be elsewhere
    for number, step in enumerate(_steps(code)):
        if step.name in ("ret", "jmp"):
            changed = False
        if step.name == "call" or step.writes(_FIRST) or step.writes(_SECOND):
            changed = True
            pointers.clear()
        if changed:
            continue
        if (loaded := step.loads()) is not None:
            register, place = loaded
            pointers.pop(register, None)
            if place.base == _FIRST and place.is_member:
                pointers[register] = place.distance, number
        if (compared := step.compares()) is not None:
            place, register = compared
            member, before = pointers.get(place.base, (0, 0))
            if member and register == _SECOND and number - before <= _NEAR and place.is_member:
                pairs.add((member, place.distance))
    return pairs


def address_of(code: bytes) -> int:
    """The member of the first argument whose address a function returns.

    Raises:
        CannotResolve: it does something else.
    """
    parts = [part for step in _body(code) if (part := step.computes()) is not None]
    found = {place.distance for _, place in parts if place.base == _FIRST}
    return _one(found, "does not return a member's address")


def stores(code: bytes) -> set[int]:
    """Members of the first argument that get a value."""
    return {
        step.to.distance
        for step in _steps(code)
        if isinstance(step.to, _Place) and step.to.base == _FIRST and step.name.startswith("mov")
    }


def pointer_in_pointer(code: bytes) -> tuple[int, int]:
    """(member of the first argument that points to a struct, member of that which is returned).

    Raises:
        CannotResolve: it does something else.
    """
    reads = [part for step in _body(code) if (part := step.loads()) is not None]
    if len(reads) == 2 and reads[0][1].base == _FIRST and reads[1][1].base == reads[0][0]:
        return reads[0][1].distance, reads[1][1].distance
    raise CannotResolve("a function does not return a member of a member")


def returned_member(code: bytes) -> int:
    """The member of the first argument that is stored where the second one points.

    Raises:
        CannotResolve: it does something else.
    """
    last: dict[str, int] = {}
    found = set()
    for step in _body(code):
        if (loaded := step.loads()) is not None and loaded[1].base == _FIRST:
            last[loaded[0]] = loaded[1].distance
        elif step.to == _Place(_SECOND, 0, "") and isinstance(step.source, str):
            found |= {last[step.source]} if step.source in last else set()
    return _one(found, "does not store a member for its caller")


def compared_members(code: bytes) -> int:
    """The member of both arguments with which they are compared.

    Raises:
        CannotResolve: it does something else.
    """
    read: dict[str, set[int]] = {_FIRST: set(), _SECOND: set()}
    for step in _steps(code):
        if step.name == "call":
            break
        if (loaded := step.loads()) is not None and loaded[1].base == loaded[0] in read:
            read[loaded[0]].add(loaded[1].distance)
    if read[_FIRST] != read[_SECOND]:
        raise CannotResolve("a function compares two different members")
    return _one(read[_FIRST], "does not compare a member of both arguments")


def compared_string(code: bytes) -> int:
    """A pointer whose length, the next word, is compared with another string's.

    Raises:
        CannotResolve: there is none, or several.
    """
    read: list[tuple[str, int]] = []
    found = set()
    for step in _steps(code):
        if (loaded := step.loads()) is not None and loaded[1].is_member:
            read.append((loaded[1].base, loaded[1].distance))
        if (compared := step.compares()) is not None:
            place = compared[0]
            if (place.base, place.distance - 8) in read[-_NEAR:]:
                found.add(place.distance - 8)
    return _one(found, "compares no string")


def calls(code: bytes, vaddr: int) -> list[int]:
    """Addresses that a short function calls directly."""
    return [step.target for step in _body(code, vaddr) if step.name == "call" and step.target]


def first_arguments(code: bytes, vaddr: int, target: int) -> set[int]:
    """Members whose address is the first argument of the calls of `target`; empty: uncertain."""
    found: set[int] = set()
    member = 0
    for step in _steps(code, vaddr):
        if step.name == "call" and step.target == target:
            found.add(member)
        computed = step.computes()
        if step.name == "call":
            member = 0
        elif step.writes(_FIRST):
            member = computed[1].distance if computed and computed[1].is_member else 0
    return found if 0 not in found else set()


def passed_strings(code: bytes, vaddr: int, target: int) -> set[int]:
    """The member of the second argument, a pointer before a length, that the first call passes on
    as second and third argument, if that is a call of `target`.
    """
    read: dict[str, int] = {}
    for step in _steps(code, vaddr):
        if step.name == "call":
            text, length = read.get(_SECOND, 0), read.get(_THIRD, 0)
            passes = step.target == target and text and length == text + 8
            return {text} if passes else set()
        if (loaded := step.loads()) is not None:
            read.pop(loaded[0], None)
            if loaded[1].base == _SECOND and loaded[1].is_member:
                read[loaded[0]] = loaded[1].distance
    return set()


def _body(code: bytes, vaddr: int = 0) -> list[_Step]:
    """A short function's steps, up to the first return."""
    body = []
    for step in _steps(code, vaddr):
        if step.name == "ret":
            break
        body.append(step)
    return body


def _steps(code: bytes, vaddr: int = 0) -> Iterator[_Step]:
    for instruction in instructions(code, vaddr):
        operands = [_operand(instruction, one) for one in instruction.operands[:2]]
        first, second = (*operands, None, None)[:2]
        target = None
        if instruction.operands and instruction.operands[0].type == _CONSTANT:
            target = int(instruction.operands[0].imm)
        yield _Step(instruction.mnemonic.split()[-1], first, second, target)


def _operand(instruction: Any, operand: Any) -> str | _Place | None:
    if operand.type == _REGISTER:
        return str(instruction.reg_name(operand.reg))
    if operand.type != _MEMORY or operand.mem.index:
        return None
    memory = operand.mem
    base = instruction.reg_name(memory.base) if memory.base else ""
    segment = instruction.reg_name(memory.segment) if memory.segment else ""
    return _Place(base, int(memory.disp), segment)


def _one(found: set[int], problem: str) -> int:
    if len(found) != 1 or not 0 <= min(found) <= _MOST:
        raise CannotResolve(f"a function {problem}")
    return found.pop()
