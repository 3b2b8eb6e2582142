# SPDX-License-Identifier: Apache-2.0
"""Stack frames and calls of the functions in a BPF object, from its disassembly.

A frame is as large as the lowest byte that the code reaches below r10: what the verifier finds
when it follows every path. A kernel to which some code is dead counts less, never more.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

INSTRUCTION = 8
#: Of an address on the stack: `*(u64 *)(r10 - 8)`, or `r1 = r10` with `r1 += -8` behind it.
_DIRECT = re.compile(r"\(r10 - (\d+)\)")
_COPY = re.compile(r"\t(r\d) = r10$")
_ADDED = re.compile(r"\t(r\d) \+= (-?\d+)$")
_INSTRUCTION = re.compile(r"^\s*(\d+):\t((?:[0-9a-f]{2} )+[0-9a-f]{2})(\t.*)$")
_RELOCATION = re.compile(r"R_BPF_64_(32|64)\t(\S+)$")
_SYMBOL = re.compile(r"^([0-9a-f]{16}) [lg]\s+F (\S+)\t[0-9a-f]{16} (?:\.hidden )?(\S+)$")
_CALL = "85 10 00 00"  #: of a function; helpers have another second byte
_ADDRESS = "18 "  #: loads 64 bits: of a callback too


@dataclass
class Function:
    """A function, or a program: `section` begins with its type, such as `?uprobe`."""

    name: str
    section: str
    frame: int = 0  #: bytes
    calls: set[tuple[str, int]] = field(default_factory=set)  #: section and offset of each


def functions(target: Path) -> dict[tuple[str, int], Function]:
    """The functions of an object by section and offset, with callbacks among their calls."""
    command = ["llvm-objdump", "-t", "-d", "-r", str(target)]
    listing = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    lines = listing.splitlines()
    found = {
        (symbol[2], int(symbol[1], 16)): Function(symbol[3], symbol[2])
        for symbol in map(_SYMBOL.match, lines)
        if symbol
    }
    globally = {one.name: place for place, one in found.items()}
    copies: dict[str, int] = {}
    function = None
    for section, at, code, text, relocation in _instructions(lines):
        if (section, at) in found:
            function, copies = found[section, at], {}
        assert function is not None
        _reach(function, text, copies)
        callee = _callee(section, at, code, relocation, globally)
        if callee in found:
            function.calls.add(callee)
        else:
            assert not code.startswith(_CALL), f"{function.name} calls {callee}"
    return found


def _instructions(lines: list[str]) -> Iterator[tuple[str, int, str, str, str]]:
    """Section, offset, bytes, text, and the name of the relocation, which stands behind it."""
    section, held = "", None
    for line in lines:
        if line.startswith("Disassembly of section "):
            section = line.removeprefix("Disassembly of section ").rstrip(":")
        if instruction := _INSTRUCTION.match(line):
            if held:
                yield (*held, "")
            held = (section, int(instruction[1]) * INSTRUCTION, instruction[2], instruction[3])
        elif held and (relocation := _RELOCATION.search(line)):
            yield (*held, relocation[2])
            held = None
    if held:
        yield (*held, "")


def _reach(function: Function, text: str, copies: dict[str, int]) -> None:
    """Notes what an instruction reaches. `copies`: registers that point to the stack, and where."""
    for direct in _DIRECT.finditer(text):
        function.frame = max(function.frame, int(direct[1]))
    if copy := _COPY.search(text):
        copies[copy[1]] = 0
    elif (added := _ADDED.search(text)) and added[1] in copies:
        copies[added[1]] += int(added[2])
        function.frame = max(function.frame, -copies[added[1]])
    elif written := re.match(r"\t[rw](\d) =", text):
        copies.pop(f"r{written[1]}", None)


def _callee(
    section: str, at: int, code: str, relocation: str, globally: Mapping[str, tuple[str, int]]
) -> tuple[str, int] | None:
    value = int.from_bytes(bytes.fromhex(code)[4:8], "little", signed=True)
    if code.startswith(_CALL):
        if not relocation:
            return section, at + (value + 1) * INSTRUCTION
        return globally.get(relocation) or (relocation, (value + 1) * INSTRUCTION)
    if code.startswith(_ADDRESS) and relocation:
        return globally.get(relocation) or (relocation, value)
    return None


def deepest(
    found: Mapping[tuple[str, int], Function], place: tuple[str, int], rounded: int
) -> tuple[int, tuple[str, ...]]:
    """The largest sum of frames along a chain of calls, and the chain.

    Args:
        rounded: each frame counts as a multiple of this, and at least once.
    """
    one = found[place]
    below = [deepest(found, callee, rounded) for callee in one.calls]
    depth, chain = max(below, default=(0, ()))
    own = max(-(-one.frame // rounded), 1) * rounded
    return own + depth, (f"{one.name} {own}", *chain)
