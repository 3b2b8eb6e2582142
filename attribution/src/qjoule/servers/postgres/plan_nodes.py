# SPDX-License-Identifier: Apache-2.0
"""Reads what bpf/postgres/plan_nodes.bpf.h needs to find nodes of PostgreSQL's plans on a stack,
and the names of these nodes.

Each node is executed by the function that its PlanState points to (`ExecProcNodeReal`), with two
exceptions. For nodes that return all of their rows at once, `MultiExecProcNode()` calls a function
of each kind. For scans, `ExecSeqScan()` and its siblings end in a call of
`ExecScan(node, SeqNext, ...)`, which without a filter ends in a call of `SeqNext()`.
`ExecSetExecProcNode(node, function)` shows where the pointers are
(src/backend/executor/execProcnode.c, the same from 11 to 18).

NodeTags differ from version to version. `ExecInitHashJoin()` and its siblings make the nodes, and
store the tag into them.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from qjoule.errors import QjouleError
from qjoule.servers.access import Opened
from qjoule.servers.elf import Executable, open_executable
from qjoule.servers.elf_file import MALFORMED
from qjoule.servers.function_code import (
    CannotResolve,
    Place,
    body_steps,
    code_of,
    instructions,
    steps,
    the_function,
)

#: Functions that execute nodes of several kinds, by their names in the registry.
SHARED = {
    "exec-scan": "ExecScan",
    "multi-hash": "MultiExecHash",
    "multi-bitmap-index": "MultiExecBitmapIndexScan",
    "multi-bitmap-and": "MultiExecBitmapAnd",
    "multi-bitmap-or": "MultiExecBitmapOr",
}
#: Functions that find a scan's next row, by how the scan is initialised. They have no symbols.
ACCESS = {
    "ExecInitSeqScan": ("seq-next",),
    "ExecInitIndexScan": ("index-next", "other-index-next"),
    "ExecInitIndexOnlyScan": ("index-only-next",),
    "ExecInitBitmapHeapScan": ("bitmap-heap-next",),
    "ExecInitSampleScan": ("sample-next",),
    "ExecInitTidScan": ("tid-next",),
    "ExecInitTidRangeScan": ("tid-range-next",),  # since 14
    "ExecInitSubqueryScan": ("subquery-next",),
    "ExecInitFunctionScan": ("function-next",),
    "ExecInitValuesScan": ("values-next",),
    "ExecInitCteScan": ("cte-next",),
    "ExecInitTableFuncScan": ("table-func-next",),
    "ExecInitNamedTuplestoreScan": ("named-tuplestore-next",),
    "ExecInitWorkTableScan": ("work-table-next",),
    "ExecInitForeignScan": ("foreign-next",),
}
NODE_FACTS = (*SHARED, *(fact for facts in ACCESS.values() for fact in facts))
_SET = "ExecSetExecProcNode"
_EXECUTE, _EXECUTE_REAL = 24, 32  #: offsets in a PlanState
_TAG_MAX = 1023
_CODE_BYTES, _INIT_BYTES, _SCAN_BYTES = 8192, 256, 160
#: EXPLAIN's names (src/backend/commands/explain.c), by the end of `ExecInit...`.
_NAMES = (
    *("Agg", "Append", "BitmapAnd", "BitmapHeapScan", "BitmapIndexScan", "BitmapOr", "CteScan"),
    *("CustomScan", "ForeignScan", "FunctionScan", "Gather", "GatherMerge", "Group", "Hash"),
    *("HashJoin", "IncrementalSort", "IndexOnlyScan", "IndexScan", "Limit", "LockRows", "Material"),
    *("Memoize", "MergeAppend", "MergeJoin", "ModifyTable", "NamedTuplestoreScan", "NestLoop"),
    *("ProjectSet", "RecursiveUnion", "Result", "SampleScan", "SeqScan", "SetOp", "Sort"),
    *("SubqueryScan", "TableFuncScan", "TidRangeScan", "TidScan", "Unique", "ValuesScan"),
    *("WindowAgg", "WorkTableScan"),
)
_TITLES = {
    "Agg": "Aggregate",
    "BitmapAnd": "BitmapAnd",
    "BitmapOr": "BitmapOr",
    "CteScan": "CTE Scan",
    "LockRows": "LockRows",
    "Material": "Materialize",
    "ModifyTable": "ModifyTable",
    "NestLoop": "Nested Loop",
    "ProjectSet": "ProjectSet",
    "SetOp": "SetOp",
    "WindowAgg": "WindowAgg",
    "WorkTableScan": "WorkTable Scan",
}


def node_functions(executable: Executable) -> dict[str, int]:
    """Returns the functions `NODE_FACTS`, in bytes from the start of the code; 0: there is none.

    Raises:
        CannotResolve: a function is missing, or nodes have an unknown layout.
    """
    function = the_function(executable, _SET)
    stores = {
        step.to.distance: step.source
        for step in body_steps(code_of(executable, function, 64)[1], function.vaddr)
        if step.name == "mov" and isinstance(step.to, Place) and step.to.base == "rdi"
    }
    if set(stores) != {_EXECUTE, _EXECUTE_REAL} or stores[_EXECUTE_REAL] != "rsi":
        raise CannotResolve(f"{_SET} does not set a node's functions as expected")
    functions = {fact: the_function(executable, name).vaddr for fact, name in SHARED.items()}
    for name, facts in ACCESS.items():
        if executable.functions(name):
            functions |= dict(zip(facts, _access(executable, name), strict=False))
    functions = {fact: vaddr - executable.code_vaddr for fact, vaddr in functions.items()}
    return dict.fromkeys(NODE_FACTS, 0) | functions


def _access(executable: Executable, name: str) -> list[int]:
    """Returns the second arguments of calls of `ExecScan()` in the function that this one sets."""
    init = the_function(executable, name)
    computed: dict[str, int] = {}
    executes = access = 0
    targets: list[int] = []
    for step in steps(code_of(executable, init, _INIT_BYTES)[1], init.vaddr):
        if (place := step.computes()) is not None:
            computed[place[0]] = place[1].distance if place[1].base == "rip" else 0
        elif (
            step.name == "mov" and isinstance(step.to, Place) and step.to.distance == _EXECUTE
        ) and isinstance(step.source, str):
            executes = executes or computed.get(step.source, 0)
    scan = the_function(executable, SHARED["exec-scan"]).vaddr
    offset = executable.file_offset(executes)
    if offset is None:
        raise CannotResolve(f"{name} does not set a node's function as expected")
    for step in steps(executable.read(offset, _SCAN_BYTES), executes):
        if (place := step.computes()) is not None and place[0] == "rsi":
            access = place[1].distance
        elif step.target == scan and access not in (0, *targets):
            targets.append(access)
    if not targets:
        raise CannotResolve(f"what {name} sets does not call ExecScan as expected")
    return targets


def node_kinds(executable: Executable) -> Mapping[int, str]:
    """Returns names of kinds of nodes by NodeTag, as far as the code shows them."""
    kinds: dict[int, str] = {}
    for name in _NAMES:
        functions = executable.functions(f"ExecInit{name}")
        if len(functions) == 1 and executable.machine == "x64":
            _, code = code_of(executable, functions[0], _CODE_BYTES)
            if tag := _stored_tag(code):
                kinds[tag] = _title(name)
    return kinds


def kinds_of_file(file: Opened, build_id: str) -> Mapping[int, str]:
    """Returns `node_kinds` of a file, which it closes; empty if the build id has changed."""
    with suppress(QjouleError, OSError, *MALFORMED):
        executable = open_executable(file)
        if build_id and executable.build_id == build_id:
            return node_kinds(executable)
    return {}


def _title(name: str) -> str:
    if name in _TITLES:
        return _TITLES[name]
    return "".join(f" {letter}" if letter.isupper() else letter for letter in name).strip()


def _stored_tag(code: bytes) -> int:
    """Returns the first number that is stored at the begin of a struct: that of the new node."""
    from capstone import x86  # noqa: PLC0415 - loads a shared library

    for instruction in instructions(code):
        if instruction.id != x86.X86_INS_MOV or len(instruction.operands) != 2:
            continue
        to, value = instruction.operands
        is_begin = to.type == x86.X86_OP_MEM and not to.mem.disp and not to.mem.index
        if (
            is_begin
            and to.size == 4
            and to.mem.base not in (0, x86.X86_REG_RSP)
            and value.type == x86.X86_OP_IMM
            and 0 < value.imm <= _TAG_MAX
        ):
            return int(value.imm)
    return 0
