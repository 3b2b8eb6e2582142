# SPDX-License-Identifier: Apache-2.0
"""Decides where exactly to put a uprobe, and looks up its cost there.

The kernel emulates a few kinds of first instructions and single-steps the rest in a copy, which
costs ten times as much (arch/x86/kernel/uprobes.c: branch_setup_xol_ops, push_setup_xol_ops). Often
a function's first instructions do not change its arguments and return address. Then the probe goes
to the first cheap instruction. The kernel refuses some instructions (the same file: is_prefix_bad,
good_insns_64).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Any

from qjoule.errors import QjouleError
from qjoule.servers.function_code import instructions

ENDBR64 = bytes.fromhex("f30f1efa")
CODE_BYTES = 64  #: enough of a function to inspect
_INSTRUCTIONS_MAX = 8  #: most instructions before the probe


class CannotProbe(QjouleError):
    """The kernel would refuse this probe."""


@dataclass(frozen=True)
class SiteCost:
    """Nanoseconds per hit, measured on a virtual machine: for comparison, not exact."""

    entry_ns: int
    both_ns: int


NOP5 = SiteCost(451, 959)
EMULATED_JUMP = SiteCost(613, 1130)
EMULATED_PUSH = SiteCost(667, 1160)
SINGLE_STEPPED = SiteCost(9000, 9690)


@dataclass(frozen=True)
class ProbeSite:
    """`offset` is in the file. Arguments and return address are still in place there."""

    offset: int
    instruction: str
    cost: SiteCost
    reason: str
    code: bytes  #: the whole instruction; must still be there when the probe is set


def inspect_site(code: bytes, offset: int) -> ProbeSite:
    """Chooses the site in a function whose first bytes are `code`, at `offset` of the file.

    Raises:
        CannotProbe: the bytes are no instruction, or one that the kernel refuses.
    """
    first = 4 if code.startswith(ENDBR64) else 0
    looked_at = list(islice(instructions(code[first:]), _INSTRUCTIONS_MAX))
    if not looked_at:
        raise CannotProbe(f"no instruction at file offset {offset:#x}")
    chosen, skipped = _cheapest(looked_at)
    refusal = _refusal(bytes(chosen.bytes))
    if refusal:
        raise CannotProbe(f"{_text(chosen)} at file offset {offset:#x}: {refusal}")
    cost = _cost(bytes(chosen.bytes))
    notes = (["4 bytes after endbr64"] if first else []) + (
        [f"{skipped} instructions further"] if skipped else []
    )
    how = "single-stepped" if cost is SINGLE_STEPPED else "emulated"
    reason = f"{_text(chosen)}: {how}" + (f" ({', '.join(notes)})" if notes else "")
    at = offset + first + chosen.address
    return ProbeSite(at, _text(chosen), cost, reason, bytes(chosen.bytes))


def _cheapest(looked_at: list[Any]) -> tuple[Any, int]:
    """Returns the first emulated instruction in straight-line code, else the first instruction."""
    for index, instruction in enumerate(looked_at):
        raw = bytes(instruction.bytes)
        if _cost(raw) is not SINGLE_STEPPED and not _refusal(raw):
            # A later jump or call may be a loop's target, so only a first one counts.
            if index and _cost(raw) is EMULATED_JUMP:
                break
            return instruction, index
        if not _harmless(instruction):
            break
    return looked_at[0], 0


def _harmless(instruction: Any) -> bool:
    """Returns true if it falls through, and keeps the arguments and the stack pointer."""
    import capstone  # noqa: PLC0415

    control = (capstone.CS_GRP_JUMP, capstone.CS_GRP_CALL, capstone.CS_GRP_RET, capstone.CS_GRP_INT)
    if any(instruction.group(group) for group in control):
        return False
    _, written = instruction.regs_access()
    return not {instruction.reg_name(register) for register in written} & _PRECIOUS


#: System V AMD64 ABI, figure 3.4: the integer arguments under all their names, the stack pointer.
_PRECIOUS = frozenset(
    name
    for names in (
        "rdi edi di dil",
        "rsi esi si sil",
        "rdx edx dx dl dh",
        "rcx ecx cx cl ch",
        "r8 r8d r8w r8b",
        "r9 r9d r9w r9b",
        "rsp esp sp spl",
    )
    for name in names.split()
)


def _cost(raw: bytes) -> SiteCost:
    if raw == bytes.fromhex("0f1f440000"):
        return NOP5
    if 0x50 <= raw[0] <= 0x57 or (len(raw) == 2 and raw[0] == 0x41 and 0x50 <= raw[1] <= 0x57):
        return EMULATED_PUSH
    nop = raw in (b"\x90", b"\x66\x90")
    jump = raw[0] in (0xE8, 0xE9, 0xEB) or 0x70 <= raw[0] <= 0x7F
    conditional = len(raw) == 6 and raw[0] == 0x0F and 0x80 <= raw[1] <= 0x8F
    return EMULATED_JUMP if nop or jump or conditional else SINGLE_STEPPED


_BAD_PREFIXES = frozenset((0x26, 0x2E, 0x36, 0x3E, 0xF0))
_PREFIXES = _BAD_PREFIXES | frozenset((0x64, 0x65, 0x66, 0x67, 0xF2, 0xF3))
#: Opcodes that the kernel refuses in 64-bit code: invalid ones, port and interrupt instructions.
#: VEX (c4, c5) and EVEX (62) depend on the kernel's version and begin no function that we probe.
_BAD_OPCODES = frozenset(
    bytes.fromhex(
        "06070e1617 1e1f272f373f 606162 6c6d6e6f 82 c4c5cccdcecf d4d5d6 e4e5e6e7ecedeeef f1f4fafb"
    )
)
_BAD_OPCODES_0F = frozenset(
    (*range(0x00, 0x0E), 0x18, *range(0x24, 0x28), 0x30, *range(0x34, 0x40), *range(0x78, 0x7E))
) | frozenset((0xA6, 0xA7, 0xAE, 0xB8, 0xD0, 0xF0, 0xFF))


def _refusal(raw: bytes) -> str:
    """Returns why the kernel would refuse the instruction; empty if it would not."""
    position = 0
    while position < len(raw) - 1 and raw[position] in _PREFIXES:
        if raw[position] in _BAD_PREFIXES:
            return f"the kernel takes no probe on prefix {raw[position]:#04x}"
        position += 1
    if 0x40 <= raw[position] <= 0x4F and position + 1 < len(raw):  # REX
        position += 1
    opcode = raw[position]
    bad = opcode in _BAD_OPCODES
    if opcode == 0x0F and position + 1 < len(raw):
        opcode = 0x0F00 | raw[position + 1]
        bad = raw[position + 1] in _BAD_OPCODES_0F
    return f"the kernel takes no probe on opcode {opcode:#04x}" if bad else ""


def _text(instruction: Any) -> str:
    return f"{instruction.mnemonic} {instruction.op_str}".strip()
