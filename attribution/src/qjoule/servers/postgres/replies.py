# SPDX-License-Identifier: Apache-2.0
"""Finds where a PostgreSQL backend keeps the reply that it is about to send, and how far it is in
what it has read.

That is a static variable (`PqSendBuffer`, src/backend/libpq/pqcomm.c), so it has no symbol. Every
version since 9.2 sets it in `pq_init()`, which is exported, to the result of `MemoryContextAlloc(
TopMemoryContext, PQ_SEND_BUFFER_SIZE)`. Its address is taken from that code.

Of what it has read, `PqRecvPointer` is where the next byte is taken from, and `PqRecvLength` where
it ends, static too. `pq_peekbyte()`, which is exported, begins by comparing the two.
"""

from __future__ import annotations

from typing import Any

from qjoule.servers.code_steps import Place, as_64_bits, body_steps
from qjoule.servers.elf import Executable
from qjoule.servers.function_code import code_of, instructions, the_function
from qjoule.servers.signatures import CannotResolve

_INIT = "pq_init"
_ALLOCATE = "MemoryContextAlloc"
SEND_BUFFER_BYTES = 8192  #: PQ_SEND_BUFFER_SIZE
_CODE_BYTES = 1024  #: the function has some 250
_PEEK = "pq_peekbyte"


def send_buffer(executable: Executable) -> int:
    """The address of the pointer, in bytes from the start of the executable's data.

    The start of data is the start of the last loadable segment, as in the kernel (`start_data` of
    `struct mm_struct`, fs/binfmt_elf.c).

    Raises:
        CannotResolve: the code is not as expected; the message describes how.
    """
    function = the_function(executable, _INIT)
    _, code = code_of(executable, function, _CODE_BYTES)
    allocators = {symbol.vaddr for symbol in executable.functions(_ALLOCATE)}
    pointer = _kept_result(code, function.vaddr, allocators)
    if pointer is None:
        raise CannotResolve(f"{_INIT} does not keep what {_ALLOCATE} returns as expected")
    distance = pointer - executable.data_vaddr
    if not 0 < distance < executable.data_size:
        raise CannotResolve(f"{_INIT} keeps its buffer outside of the data")
    return distance


def read_bounds(executable: Executable) -> tuple[int, int]:
    """The two variables, in no particular order, likewise in bytes from the start of the data.

    Raises:
        CannotResolve: the code is not as expected.
    """
    function = the_function(executable, _PEEK)
    _, code = code_of(executable, function, _CODE_BYTES)
    loaded: dict[str, int] = {}

    def variable(operand: str | Place | None) -> int:
        if isinstance(operand, Place):
            return operand.distance - executable.data_vaddr if operand.base == "rip" else 0
        return loaded.get(as_64_bits(operand), 0) if operand else 0

    for step in body_steps(code, function.vaddr):
        if step.name in ("mov", "movsxd") and isinstance(step.to, str):
            loaded[as_64_bits(step.to)] = variable(step.source)
        elif step.name == "cmp":
            pair = variable(step.to), variable(step.source)
            if pair[0] != pair[1] and all(0 < at < executable.data_size for at in pair):
                return pair
            break
    raise CannotResolve(f"{_PEEK} does not compare two variables as expected")


def _kept_result(code: bytes, vaddr: int, allocators: set[int]) -> int | None:
    """Where the first block of the right size from one of these functions is stored."""
    from capstone import x86  # noqa: PLC0415 - loads a shared library: only when it is needed

    size, returned = 0, False
    for instruction in instructions(code, vaddr):
        operands = instruction.operands
        if instruction.id == x86.X86_INS_CALL:
            target = operands[0].imm if operands[0].type == x86.X86_OP_IMM else 0
            returned = target in allocators and size == SEND_BUFFER_BYTES
            size = 0
        elif instruction.id == x86.X86_INS_MOV and len(operands) == 2:
            to, of = operands
            if to.type == x86.X86_OP_REG and to.reg in (x86.X86_REG_ESI, x86.X86_REG_RSI):
                size = of.imm if of.type == x86.X86_OP_IMM else 0
            elif returned and _is(of, x86.X86_REG_RAX, x86) and _is_variable(to, x86):
                return int(instruction.address + instruction.size + to.mem.disp)
            elif returned and _is(to, x86.X86_REG_RAX, x86):
                returned = False
    return None


def _is(operand: Any, register: int, x86: Any) -> bool:
    return bool(operand.type == x86.X86_OP_REG and operand.reg == register)


def _is_variable(operand: Any, x86: Any) -> bool:
    """Whether it is addressed relative to the instruction, like all data of a relocatable
    executable.
    """
    return bool(operand.type == x86.X86_OP_MEM and operand.mem.base == x86.X86_REG_RIP)
