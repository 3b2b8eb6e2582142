# SPDX-License-Identifier: Apache-2.0
"""Where a probe is placed in a function's first bytes, and what it costs there."""

from __future__ import annotations

from pathlib import Path

import pytest

from qjoule.servers.elf import open_executable
from qjoule.servers.probe_site import (
    EMULATED_JUMP,
    EMULATED_PUSH,
    NOP5,
    SINGLE_STEPPED,
    CannotProbe,
    SiteCost,
    inspect_site,
)
from servers.toy_elf import MYSQL_8, toy_server

PUSH, RET = "55", "c3"
ENDBR64 = "f30f1efa"
MOV_RBX_RIPREL = "488b1d309c4000"  # mov rbx, [rip+...]: writes no argument
TEST_RDI = "4885ff"
MOV_RDI_RAX = "4889c7"  # writes the first argument
SUB_RSP = "4883ec18"
JE = "740a"
CALL = "e800000000"


@pytest.mark.parametrize(
    ("code", "moved", "cost"),
    [
        ("0f1f440000" + RET, 0, NOP5),
        ("90" + PUSH, 0, EMULATED_JUMP),
        ("6690" + PUSH, 0, EMULATED_JUMP),
        ("eb05", 0, EMULATED_JUMP),
        ("e900000000", 0, EMULATED_JUMP),
        (CALL, 0, EMULATED_JUMP),
        (JE, 0, EMULATED_JUMP),
        ("0f8410000000", 0, EMULATED_JUMP),
        (PUSH + RET, 0, EMULATED_PUSH),
        ("4157" + RET, 0, EMULATED_PUSH),  # push r15
        (ENDBR64 + PUSH, 4, EMULATED_PUSH),
        (ENDBR64 + SUB_RSP + PUSH, 4, SINGLE_STEPPED),
        (SUB_RSP + PUSH, 0, SINGLE_STEPPED),  # the return address would have moved
        (MOV_RDI_RAX + PUSH, 0, SINGLE_STEPPED),  # an argument would be overwritten
        (MOV_RBX_RIPREL + PUSH, 7, EMULATED_PUSH),
        (ENDBR64 + TEST_RDI + "4889f8" + PUSH, 10, EMULATED_PUSH),
        (TEST_RDI + JE + PUSH, 0, SINGLE_STEPPED),  # not every call gets past the jump
        (TEST_RDI + CALL + PUSH, 0, SINGLE_STEPPED),
        (TEST_RDI + RET, 0, SINGLE_STEPPED),
        (TEST_RDI * 9 + PUSH, 0, SINGLE_STEPPED),  # too far into the function
    ],
)
def test_site_and_cost(code: str, moved: int, cost: SiteCost) -> None:
    site = inspect_site(bytes.fromhex(code), 0x1000)
    assert (site.offset - 0x1000, site.cost) == (moved, cost)
    assert site.reason


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("", "no instruction"),
        ("06", "no instruction"),  # invalid in 64-bit code
        (ENDBR64, "no instruction"),
        ("48", "no instruction"),  # cut off
        ("f0480fb11f", "prefix 0xf0"),
        ("2e660f1f840000000000", "prefix 0x2e"),
        ("cc", "opcode 0xcc"),
        ("f4", "opcode 0xf4"),
        ("ec", "opcode 0xec"),
        ("0f0b", "opcode 0xf0b"),
        ("0fa2", ""),
    ],
)
def test_refused_by_the_kernel(code: str, why: str) -> None:
    if not why:  # cpuid is in the kernel's table
        assert inspect_site(bytes.fromhex(code), 0).cost is SINGLE_STEPPED
        return
    with pytest.raises(CannotProbe, match=why):
        inspect_site(bytes.fromhex(code), 0)


@pytest.mark.parametrize(
    ("flags", "moved", "cost"),
    [
        (("-O0", "-fcf-protection=full"), 4, EMULATED_PUSH),
        (("-O0",), 0, EMULATED_PUSH),
        (("-fpatchable-function-entry=1",), 0, EMULATED_JUMP),
    ],
)
def test_compiled_functions(
    tmp_path: Path, flags: tuple[str, ...], moved: int, cost: SiteCost
) -> None:
    executable = open_executable(toy_server(tmp_path / "toy", [MYSQL_8], flags=flags))
    (symbol,) = executable.functions(MYSQL_8)
    offset = executable.file_offset(symbol.vaddr)
    assert offset is not None
    site = inspect_site(executable.read(offset, symbol.size), offset)
    assert (site.offset - offset, site.cost) == (moved, cost)
