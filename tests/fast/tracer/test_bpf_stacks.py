# SPDX-License-Identifier: Apache-2.0
"""The stacks of BPF programs and of all functions that they call, as Linux 6.1 adds them up.

A program and the functions that it is in the middle of have 512 bytes together. Linux 6.1 rounds
each function's stack up to 32 bytes (check_max_stack_depth(), kernel/bpf/verifier.c). Newer kernels
are less strict, so a program that loads on one of those may not load there.
"""

from __future__ import annotations

import re
import subprocess

import pytest

from host_library import built_file

MOST_BYTES, ROUNDED_TO = 512, 32  #: MAX_BPF_STACK, include/linux/filter.h
#: Programs on reads of sockets: kernels that get the early variant have nothing to attach them to.
ON_READS = re.compile(r"_recv$")

SECTION = re.compile(r"Disassembly of section (.*):")
FUNCTION = re.compile(r"([0-9a-f]+) <(?!LBB)(.+)>:")
SLOT = re.compile(r"\br10 - (\w+)")
SET, MOVED = re.compile(r"\b[rw](\d) = (.*)"), re.compile(r"\br(\d) \+= -(\w+)$")
NUMBER = re.compile(r"(?:call|r\d =) (-?(?:0x)?[0-9a-f]+)(?: ll)?$")
#: A call within a section, which has no relocation: its place, and how far away the function is.
NEAR = re.compile(r"(\d+):\s+85 10(?: [0-9a-f]{2}){6}\s+call (?!-1$)(-?\w+)$")
RELOCATION = re.compile(r"R_BPF_64_(32|64)\s+(\S+)")


def _called(line: str) -> list[int]:
    """The place of a function in the same section."""
    return [8 * (int(at) + 1 + int(away, 0)) for at, away in NEAR.findall(line)]


class Functions:
    """The functions of an object: `size` is bytes of stack, `calls` whom each calls or passes to
    bpf_loop(), and `programs` are the entries."""

    def __init__(self, listing: str) -> None:
        self.size: dict[str, int] = {}
        self.calls: dict[str, set[str]] = {}
        self.programs: list[str] = []
        static: dict[int, str] = {}  #: functions of .text by place: calls of some name no symbol
        places: list[tuple[str, int]] = []
        section = function = ""
        copies: set[str] = set()  #: registers with the frame's end
        number = 0
        for line in map(str.rstrip, listing.splitlines()):
            if match := SECTION.match(line):
                section = match[1]
            elif match := FUNCTION.match(line):
                function = match[2]
                self.size[function], self.calls[function] = 0, set()
                if section == ".text":
                    static[int(match[1], 16)] = function
                else:
                    self.programs.append(function)
            elif match := RELOCATION.search(line):
                is_call, symbol = match[1] == "32", match[2]
                if symbol.startswith(".text"):
                    places.append((function, 8 * (number + 1) if is_call else number))
                elif is_call:
                    self.calls[function].add(symbol)
            elif function:
                places += [(function, place) for place in _called(line) if section == ".text"]
                used = SLOT.findall(line)
                if (moved := MOVED.search(line)) and moved[1] in copies:
                    used.append(moved[2])
                    copies.remove(moved[1])
                if assigned := SET.search(line):
                    copies = (
                        copies | {assigned[1]} if assigned[2] == "r10" else copies - {assigned[1]}
                    )
                self.size[function] = max(
                    self.size[function], *(int(offset, 0) for offset in used), 0
                )
                number = int(match[1], 0) if (match := NUMBER.search(line)) else number
        for function, place in places:
            self.calls[function].add(static[place])

    def deepest(self, function: str) -> tuple[int, tuple[str, ...]]:
        """The most bytes from this function down, and through which functions."""
        below, path = max(map(self.deepest, self.calls[function]), default=(0, ()))
        own = max(-(-self.size[function] // ROUNDED_TO), 1) * ROUNDED_TO
        return own + below, (f"{function}: {self.size[function]}", *path)


@pytest.mark.parametrize("name", ["qjoule", "qjoule_early"])
def test_nested_functions_fit_on_the_stack_that_linux_6_1_gives_them(name: str) -> None:
    command = ["llvm-objdump", "-dr", str(built_file(f"{name}.bpf.o"))]
    functions = Functions(
        subprocess.run(command, check=True, capture_output=True, text=True).stdout
    )
    programs = [
        program
        for program in functions.programs
        if name != "qjoule_early" or not ON_READS.search(program)
    ]
    assert len(programs) > 60
    deepest = {program: functions.deepest(program) for program in programs}
    assert max(len(path) for _, path in deepest.values()) > 3, "calls are found"
    assert max(functions.size.values()) > 200, "and stacks"
    assert [path for size, path in deepest.values() if size > MOST_BYTES] == []
