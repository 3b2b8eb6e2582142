# SPDX-License-Identifier: Apache-2.0
"""Finds the members of a PostgreSQL backend's memory that the BPF programs read.

`MyProcPort` (src/include/miscadmin.h), `debug_query_string` (tcop/tcopprot.h),
`ClientAuthInProgress` (postmaster/postmaster.h) and `application_name` (utils/misc/guc_tables.c)
are global variables, which every executable exports to its extensions. `atStart` is a field of
PortalData (src/include/utils/portal.h), whose layout differs between versions. Its offset is read
from the code of `CreatePortal()`, which initialises the end of the struct. From 13 to 18 that is
atStart and atEnd in one word, portalPos, creation_time and visible, with the flags set to true.

The buffer of the next reply is a static variable (`PqSendBuffer`, src/backend/libpq/pqcomm.c), so
it has no symbol. Every version since 9.2 sets it in `pq_init()`, which is exported, to the result
of `MemoryContextAlloc(TopMemoryContext, PQ_SEND_BUFFER_SIZE)`. Its address is taken from that code.

`PqRecvPointer` and `PqRecvLength`, position and end of the received bytes, are static, too.
`pq_peekbyte()`, which is exported, begins by comparing the two.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from qjoule.servers.elf import Executable
from qjoule.servers.function_code import (
    CannotResolve,
    Place,
    as_64_bits,
    body_steps,
    code_of,
    instructions,
    the_function,
)

_CLIENT, _APPLICATION = "MyProcPort", "application_name"
_CONFORMING = "standard_conforming_strings"  # src/include/parser/gramparse.h
_WAIT_EVENT = "my_wait_event_info"  # src/include/utils/wait_event.h
_STATEMENT, _AUTHENTICATES = "debug_query_string", "ClientAuthInProgress"
_CREATE = "CreatePortal"
_PORTAL_CODE_BYTES = 1024  #: the function has some 400
_FLAGS_TO_VISIBLE = 24
_STRUCT_BYTES_MAX = 1024


@dataclass(frozen=True)
class BackendMemory:
    """Offsets in bytes; 0: unknown."""

    client: int = 0  #: MyProcPort, from the start of the executable's data (`postgres.replies`)
    application: int = 0  #: application_name, from the start of the executable's data
    portal_start: int = 0  #: atStart, in PortalData
    statement: int = 0  #: debug_query_string, from the start of the executable's data
    authenticates: int = 0  #: ClientAuthInProgress, from the start of the executable's data

    def facts(self) -> dict[str, int]:
        """Returns the offsets by their names in the registry."""
        return {name.replace("_", "-"): number for name, number in asdict(self).items()}


def backend_memory(executable: Executable) -> tuple[BackendMemory, tuple[str, ...]]:
    """Returns the offsets, and for each missing one a line with what the symbol mode then lacks."""
    notes = []
    client = _distance(executable, _CLIENT)
    if not client:
        notes.append(f"queries of its symbol mode have no tags: no {_CLIENT} in the executable")
    application = _distance(executable, _APPLICATION)
    try:
        portal_start = portal_start_offset(executable)
    except CannotResolve as error:
        portal_start = 0
        notes.append(f"each part that is fetched of a portal counts as an execution: {error}")
    statement = _distance(executable, _STATEMENT)
    authenticates = _distance(executable, _AUTHENTICATES)
    memory = BackendMemory(client, application, portal_start, statement, authenticates)
    return memory, tuple(notes)


def portal_start_offset(executable: Executable) -> int:
    """Returns the offset of atStart in PortalData.

    Raises:
        CannotResolve: the code is not as expected; the message describes how.
    """
    _, code = code_of(executable, the_function(executable, _CREATE), _PORTAL_CODE_BYTES)
    flags, pairs = _stores(code)
    offsets = {at - _FLAGS_TO_VISIBLE for at in flags} & pairs
    if len(offsets) != 1:
        raise CannotResolve(f"{_CREATE} does not set a portal's flags as expected")
    return offsets.pop()


def conforming_strings(executable: Executable) -> int:
    """Returns the offset of standard_conforming_strings from the start of the data; 0: unknown."""
    return _distance(executable, _CONFORMING)


def wait_event(executable: Executable) -> int:
    """Returns the offset of my_wait_event_info (since 14) from the data's start; 0: unknown."""
    return _distance(executable, _WAIT_EVENT)


def _distance(executable: Executable, name: str) -> int:
    variable = executable.variable(name)
    distance = variable.vaddr - executable.data_vaddr if variable else 0
    return distance if 0 < distance < executable.data_size else 0


def _stores(code: bytes) -> tuple[set[int], set[int]]:
    """Returns offsets at which the code sets one byte to 1, and at which it sets two neighbours to
    1."""
    from capstone import x86  # noqa: PLC0415 - loads a shared library

    flags: set[int] = set()
    pairs: set[int] = set()
    for instruction in instructions(code):
        if instruction.id != x86.X86_INS_MOV or len(instruction.operands) != 2:
            continue
        to, value = instruction.operands
        if to.type != x86.X86_OP_MEM or not 0 < to.mem.disp < _STRUCT_BYTES_MAX:
            continue
        if to.mem.base in (x86.X86_REG_RIP, x86.X86_REG_RSP, x86.X86_REG_RBP):
            continue
        constant = value.imm if value.type == x86.X86_OP_IMM else None
        if to.size == 1 and constant == 1:
            flags.add(int(to.mem.disp))
        elif to.size == 2 and constant in (None, 0x0101):
            pairs.add(int(to.mem.disp))
    pairs |= {at for at in flags if at + 1 in flags}
    return flags, pairs


_INIT = "pq_init"
_ALLOCATE = "MemoryContextAlloc"
SEND_BUFFER_BYTES = 8192  #: PQ_SEND_BUFFER_SIZE
_REPLY_CODE_BYTES = 1024  #: the function has some 250
_PEEK = "pq_peekbyte"


def send_buffer(executable: Executable) -> int:
    """Returns the address of the pointer, in bytes from the start of the executable's data.

    The start of data is the start of the last loadable segment, as in the kernel (`start_data` of
    `struct mm_struct`, fs/binfmt_elf.c).

    Raises:
        CannotResolve: the code is not as expected; the message describes how.
    """
    function = the_function(executable, _INIT)
    _, code = code_of(executable, function, _REPLY_CODE_BYTES)
    allocators = {symbol.vaddr for symbol in executable.functions(_ALLOCATE)}
    pointer = _stored_result(code, function.vaddr, allocators)
    if pointer is None:
        raise CannotResolve(f"{_INIT} does not keep what {_ALLOCATE} returns as expected")
    distance = pointer - executable.data_vaddr
    if not 0 < distance < executable.data_size:
        raise CannotResolve(f"{_INIT} keeps its buffer outside of the data")
    return distance


def read_bounds(executable: Executable) -> tuple[int, int]:
    """Returns both variables, in no particular order, in bytes from the start of the data.

    Raises:
        CannotResolve: the code is not as expected.
    """
    function = the_function(executable, _PEEK)
    _, code = code_of(executable, function, _REPLY_CODE_BYTES)
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


def _stored_result(code: bytes, vaddr: int, allocators: set[int]) -> int | None:
    """Returns where the first block of the right size from one of these functions is stored."""
    from capstone import x86  # noqa: PLC0415 - loads a shared library

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
            elif returned and _is_register(of, x86.X86_REG_RAX, x86) and _is_variable(to, x86):
                return int(instruction.address + instruction.size + to.mem.disp)
            elif returned and _is_register(to, x86.X86_REG_RAX, x86):
                returned = False
    return None


def _is_register(operand: Any, register: int, x86: Any) -> bool:
    return bool(operand.type == x86.X86_OP_REG and operand.reg == register)


def _is_variable(operand: Any, x86: Any) -> bool:
    """Returns true for an address relative to the instruction, as of all data of a relocatable
    executable."""
    return bool(operand.type == x86.X86_OP_MEM and operand.mem.base == x86.X86_REG_RIP)
