# SPDX-License-Identifier: Apache-2.0
"""Finds the variables in a PostgreSQL backend's memory that the BPF programs read.

`MyProcPort` (src/include/miscadmin.h) and `application_name` (src/backend/utils/misc/guc_tables.c)
are global variables, which every executable exports to its extensions. `atStart` is a field of
PortalData (src/include/utils/portal.h), whose layout differs between versions. Its offset is read
from the code of `CreatePortal()`, which initialises the end of the struct. From 13 to 18 that is
atStart and atEnd in one word, portalPos, creation_time and visible, with the flags set to true.

A backend's last statement is in its entry of the list of backends: `MyBEEntry`, also a global
variable, points to a PgBackendStatus (src/include/utils/backend_status.h). Its st_activity_raw is
the only pointer through which `pgstat_report_activity()` ends a string.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from qjoule.servers.elf import Executable
from qjoule.servers.function_code import code_of, instructions, the_function
from qjoule.servers.signatures import CannotResolve

_CLIENT, _APPLICATION = "MyProcPort", "application_name"
_ENTRY, _ENTRY_BYTES = "MyBEEntry", "pgstat_track_activity_query_size"
_REPORT = "pgstat_report_activity"
_CREATE = "CreatePortal"
_CODE_BYTES = 1024  #: the function has some 400
_FLAGS_TO_VISIBLE = 24
_STRUCT_BYTES_MAX = 1024


@dataclass(frozen=True)
class BackendMemory:
    """Offsets in bytes; 0: unknown."""

    client: int = 0  #: of MyProcPort, from the start of the executable's data (`postgres.replies`)
    application: int = 0  #: of application_name, likewise
    portal_start: int = 0  #: of atStart, in PortalData

    def facts(self) -> dict[str, int]:
        """The offsets by their names in the registry."""
        return {name.replace("_", "-"): number for name, number in asdict(self).items()}


@dataclass(frozen=True)
class LastText:
    """Where a backend's last statement is, in bytes; 0: unknown."""

    entry: int = 0  #: of MyBEEntry, from the start of the executable's data
    entry_bytes: int = 0  #: of the variable with the length at which texts are cut, likewise
    entry_text: int = 0  #: of st_activity_raw in a PgBackendStatus

    def facts(self) -> dict[str, int]:
        """The offsets by their names in the registry."""
        return {name.replace("_", "-"): number for name, number in asdict(self).items()}


def last_text(executable: Executable) -> LastText:
    """
    Raises:
        CannotResolve: something is not as expected; the message describes what.
    """
    _, code = code_of(executable, the_function(executable, _REPORT), _CODE_BYTES)
    texts = _ended_strings(code)
    if len(texts) != 1:
        raise CannotResolve(f"{_REPORT} ends {len(texts)} strings instead of one")
    found = LastText(
        _distance(executable, _ENTRY), _distance(executable, _ENTRY_BYTES), texts.pop()
    )
    if not found.entry or not found.entry_bytes:
        raise CannotResolve(f"no {_ENTRY} or {_ENTRY_BYTES} in the executable")
    return found


def backend_memory(executable: Executable) -> tuple[BackendMemory, tuple[str, ...]]:
    """The offsets found, and for each missing one a line with what the symbol rung lacks without
    it.
    """
    notes = []
    client = _distance(executable, _CLIENT)
    if not client:
        notes.append(f"queries of its symbol rung have no tags: no {_CLIENT} in the executable")
    application = _distance(executable, _APPLICATION)
    try:
        portal_start = portal_start_offset(executable)
    except CannotResolve as error:
        portal_start = 0
        notes.append(f"each part that is fetched of a portal counts as an execution: {error}")
    return BackendMemory(client, application, portal_start), tuple(notes)


def portal_start_offset(executable: Executable) -> int:
    """The offset of atStart in PortalData.

    Raises:
        CannotResolve: the code is not as expected; the message describes how.
    """
    _, code = code_of(executable, the_function(executable, _CREATE), _CODE_BYTES)
    flags, pairs = _stores(code)
    found = {at - _FLAGS_TO_VISIBLE for at in flags} & pairs
    if len(found) != 1:
        raise CannotResolve(f"{_CREATE} does not set a portal's flags as expected")
    return found.pop()


def _distance(executable: Executable, name: str) -> int:
    variable = executable.variable(name)
    distance = variable.vaddr - executable.data_vaddr if variable else 0
    return distance if 0 < distance < executable.data_size else 0


def _stores(code: bytes) -> tuple[set[int], set[int]]:
    """Offsets at which the code sets one byte to 1, and at which it sets two neighbours, both to
    1.
    """
    from capstone import x86  # noqa: PLC0415 - loads a shared library: only when it is needed

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


def _ended_strings(code: bytes) -> set[int]:
    """Offsets of pointers through which the code stores a NUL byte directly after loading them."""
    from capstone import x86  # noqa: PLC0415 - loads a shared library: only when it is needed

    found: set[int] = set()
    pointer = offset = 0
    for instruction in instructions(code):
        if len(instruction.operands) != 2:
            pointer = 0
            continue
        to, of = instruction.operands
        is_move = instruction.id == x86.X86_INS_MOV
        ends = is_move and to.type == x86.X86_OP_MEM and to.size == 1 and of.type == x86.X86_OP_IMM
        if ends and not of.imm and to.mem.base == pointer != 0:
            found.add(offset)
        pointer = 0
        loads = is_move and to.type == x86.X86_OP_REG and of.type == x86.X86_OP_MEM
        if loads and to.size == 8 and of.mem.base != x86.X86_REG_RIP:
            pointer, offset = to.reg, int(of.mem.disp)
    return {at for at in found if 0 < at < _STRUCT_BYTES_MAX}
