# SPDX-License-Identifier: Apache-2.0
"""Reads offsets of members from known forms of x86-64 code, for `memory`.

Each function gets a function's first bytes. Arguments are in rdi, rsi, rdx (System V ABI, AMD64).
Code of another form gives nothing, or `CannotResolve`.
"""

from __future__ import annotations

from qjoule.servers.function_code import (
    MEMBER_MAX,
    VOLATILE,
    CannotResolve,
    Place,
    Step,
    as_64_bits,
    body_steps,
    steps,
)

_NEAR = 8  #: most instructions between the parts of one form
_FIRST, _SECOND, _THIRD = "rdi", "rsi", "rdx"


def below_thread_pointer(code: bytes) -> int:
    """Returns how far below the thread pointer the variable is that a function returns (ELF TLS,
    "local exec").

    Raises:
        CannotResolve: the function does not read one such variable.
    """
    places: dict[str, int] = {}  # distance of a register's value from the thread pointer
    candidates = set()
    for step in body_steps(code):
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
                candidates.add(-place.distance)
        elif base is not None and step.name == "lea":
            places[register] = base + place.distance
        elif base is not None:
            candidates.add(-(base + place.distance))
    return _single(candidates - {0}, "does not return a variable of its thread")


class _ArgumentCopies:
    """Follows the registers that hold a certain argument of a function.

    Code after a jump or a return is reached from elsewhere: there the argument may be back.
    """

    def __init__(self, argument: str) -> None:
        self._argument = argument
        self.registers = {argument}

    def follow(self, step: Step) -> None:
        if step.name == "call":
            self.registers -= VOLATILE
        elif step.name in ("ret", "jmp"):
            self.registers.add(self._argument)
        elif isinstance(step.to, str) and step.writes(step.to) and step.name != "pop":
            # A pop restores a register for the caller: a return follows.
            self.registers.discard(as_64_bits(step.to))
            if step.name == "mov" and step.source in self.registers:
                self.registers.add(step.to)


def found_by_id(code: bytes, *, in_packet: bool = False) -> set[tuple[int, int]]:
    """Returns pairs (member of the first argument that points to a struct, member of that struct
    that is compared with the second argument). `in_packet`: with the value that the second argument
    points to.
    """
    pairs: set[tuple[int, int]] = set()
    first, second = _ArgumentCopies(_FIRST), _ArgumentCopies(_SECOND)
    read: set[str] = set()  # 32-bit registers with the packet's first word
    pointers: dict[str, tuple[int, int]] = {}  # by register: (member, its step's number)
    for number, step in enumerate(steps(code)):
        if (compared := step.compares()) is not None:
            place, register = compared
            member, before = pointers.get(place.base, (0, 0))
            is_id = as_64_bits(register) in read if in_packet else register in second.registers
            if member and is_id and number - before <= _NEAR and place.is_member:
                pairs.add((member, place.distance))
        loaded = step.loads()
        if isinstance(step.to, str) and step.writes(step.to) and step.name != "pop":
            pointers.pop(as_64_bits(step.to), None)
            read.discard(as_64_bits(step.to))
        if loaded is not None and loaded[1].base in first.registers and loaded[1].is_member:
            pointers[loaded[0]] = loaded[1].distance, number
        if loaded is not None and loaded[1].base in second.registers and not loaded[1].distance:
            read.add(as_64_bits(loaded[0]))
        if step.name == "call":
            pointers = {to: of for to, of in pointers.items() if to not in VOLATILE}
            read -= VOLATILE
        first.follow(step)
        second.follow(step)
    return pairs


def address_of(code: bytes) -> int:
    """Returns the member of the first argument whose address a function returns.

    Raises:
        CannotResolve: it does something else.
    """
    parts = [part for step in body_steps(code) if (part := step.computes()) is not None]
    candidates = {place.distance for _, place in parts if place.base == _FIRST}
    return _single(candidates, "does not return a member's address")


def stores(code: bytes) -> set[int]:
    """Returns the members of the first argument that get a value."""
    return {
        step.to.distance
        for step in steps(code)
        if isinstance(step.to, Place) and step.to.base == _FIRST and step.name.startswith("mov")
    }


def returned_value(code: bytes) -> int:
    """Returns the member of the first argument whose value a function returns.

    Raises:
        CannotResolve: it does something else.
    """
    parts = [part for step in body_steps(code) if (part := step.loads()) is not None]
    if len(parts) != 1 or parts[0][0] != "rax" or parts[0][1].base != _FIRST:
        raise CannotResolve("a function does not return a member")
    return parts[0][1].distance


def member_tested(code: bytes, bits: int) -> int:
    """Returns the member of the first argument of which a function tests only these bits. The
    compiler may test only the byte that contains them.

    Raises:
        CannotResolve: it does something else.
    """
    candidates = set()
    for step in body_steps(code):
        if step.name != "test" or not isinstance(step.to, Place) or step.to.base != _FIRST:
            continue
        skipped = [n for n in range(8) if step.constant and step.constant << 8 * n == bits]
        candidates.add(step.to.distance - skipped[0] if skipped else -1)
    return _single(candidates, f"does not test the bits {bits:#x} of a member")


def pointer_in_pointer(code: bytes) -> tuple[int, int]:
    """Returns (member of the first argument that points to a struct, member of that is returned).

    Raises:
        CannotResolve: it does something else.
    """
    reads = [part for step in body_steps(code) if (part := step.loads()) is not None]
    if len(reads) == 2 and reads[0][1].base == _FIRST and reads[1][1].base == reads[0][0]:
        return reads[0][1].distance, reads[1][1].distance
    raise CannotResolve("a function does not return a member of a member")


def returned_member(code: bytes) -> int:
    """Returns the member of the first argument that is stored where the second one points.

    Raises:
        CannotResolve: it does something else.
    """
    last: dict[str, int] = {}
    candidates = set()
    for step in body_steps(code):
        if (loaded := step.loads()) is not None and loaded[1].base == _FIRST:
            last[loaded[0]] = loaded[1].distance
        elif step.to == Place(_SECOND, 0, "") and isinstance(step.source, str):
            candidates |= {last[step.source]} if step.source in last else set()
    return _single(candidates, "does not store a member for its caller")


def compared_members(code: bytes) -> int:
    """Returns the member by which both arguments are compared.

    Raises:
        CannotResolve: it does something else.
    """
    read: dict[str, set[int]] = {_FIRST: set(), _SECOND: set()}
    for step in steps(code):
        if step.name == "call":
            break
        if (loaded := step.loads()) is not None and loaded[1].base == loaded[0] in read:
            read[loaded[0]].add(loaded[1].distance)
    if read[_FIRST] != read[_SECOND]:
        raise CannotResolve("a function compares two different members")
    return _single(read[_FIRST], "does not compare a member of both arguments")


def compared_string(code: bytes) -> int:
    """Returns the member, a pointer before a length, whose length is compared with another length.

    Raises:
        CannotResolve: there is none, or several.
    """
    read: list[tuple[str, int]] = []
    candidates = set()
    for step in steps(code):
        if (loaded := step.loads()) is not None and loaded[1].is_member:
            read.append((loaded[1].base, loaded[1].distance))
        if (compared := step.compares()) is not None:
            place = compared[0]
            if (place.base, place.distance - 8) in read[-_NEAR:]:
                candidates.add(place.distance - 8)
    return _single(candidates, "compares no string")


def cleared_pointer(code: bytes) -> int:
    """Returns the first member of the first argument that is read; it is set to a constant later.

    Raises:
        CannotResolve: it does something else.
    """
    read = 0
    first = _ArgumentCopies(_FIRST)
    for step in body_steps(code):
        loaded = step.loads()
        if not read and loaded is not None:
            read = loaded[1].distance if loaded[1].base in first.registers else -1
        is_constant = step.name in ("mov", "and") and step.source is None
        if isinstance(step.to, Place) and is_constant and step.to.distance == read > 0:
            return _single({read}, "does not clear a member")
        first.follow(step)
    raise CannotResolve("a function does not clear a member that it reads first")


def calls(code: bytes, vaddr: int) -> list[int]:
    """Returns addresses that a short function calls directly."""
    return [step.target for step in body_steps(code, vaddr) if step.name == "call" and step.target]


def first_arguments(code: bytes, vaddr: int, target: int) -> set[int]:
    """Returns members whose address is the first argument of calls of `target`; empty: unknown."""
    candidates: set[int] = set()
    member = 0
    for step in steps(code, vaddr):
        if step.name == "call" and step.target == target:
            candidates.add(member)
        computed = step.computes()
        if step.name == "call":
            member = 0
        elif step.writes(_FIRST):
            member = computed[1].distance if computed and computed[1].is_member else 0
    return candidates if 0 not in candidates else set()


def returned_string(code: bytes) -> int:
    """Returns the member of the first argument, a pointer before a length, that is returned.

    Raises:
        CannotResolve: it does something else.
    """
    parts = [part for step in body_steps(code) if (part := step.loads()) is not None]
    candidates = {register: place.distance for register, place in parts if place.base == _FIRST}
    if candidates.keys() != {"rax", _THIRD} or candidates[_THIRD] != candidates["rax"] + 8:
        raise CannotResolve("a function does not return a string")
    return candidates["rax"]


def passed_strings(code: bytes, vaddr: int, target: int) -> set[int]:
    """Returns members of the second argument, pointers before lengths, that calls of `target` get
    as second and third arguments; empty: uncertain.
    """
    candidates: set[int] = set()
    second = _ArgumentCopies(_SECOND)
    read: dict[str, int] = {}
    for step in steps(code, vaddr):
        if step.name == "call":
            text, length = read.get(_SECOND, 0), read.get(_THIRD, 0)
            if step.target == target:
                candidates.add(text if length == text + 8 else 0)
            read.clear()
        elif (loaded := step.loads()) is not None:
            read.pop(loaded[0], None)
            if loaded[1].base in second.registers and loaded[1].is_member:
                read[loaded[0]] = loaded[1].distance
        second.follow(step)
    return candidates if 0 not in candidates else set()


def _single(candidates: set[int], problem: str) -> int:
    if len(candidates) != 1 or not 0 <= min(candidates) <= MEMBER_MAX:
        raise CannotResolve(f"a function {problem}")
    return candidates.pop()
