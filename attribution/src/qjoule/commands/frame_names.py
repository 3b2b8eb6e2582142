# SPDX-License-Identifier: Apache-2.0
"""Names the frames of sampled stacks: functions, and plan nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from qjoule.contract import NODE, NODE_KIND
from qjoule.engine.stacks import Name, PlanNode
from qjoule.errors import QjouleError
from qjoule.servers.direct_access import open_regular
from qjoule.servers.function_code import load_disassembler
from qjoule.servers.registered import supported
from qjoule.servers.stack_tables import JIT_CODE, own_vdso
from qjoule.servers.symbols import SHOWN_MAX, OpenFile, Symbols, Unnamed, cxx_demangler
from qjoule.shapes.safe_text import sanitise
from qjoule.trace.meta import Module

if TYPE_CHECKING:
    import pyarrow as pa

    from qjoule.trace.reader import Trace


def trace_frame_names(trace: Trace, symfs: Path | None) -> Name:
    """Returns `frame_names` for a recording."""
    return frame_names(trace.meta.modules, symfs, compiled=_compiled_names(trace.table("code")))


def frame_names(
    modules: Iterable[Module],
    symfs: Path | None = None,
    open_file: OpenFile = open_regular,
    unnamed: Unnamed = lambda _module, _why: None,
    compiled: Name = lambda _module, _offset: JIT_CODE,
) -> Name:
    """Returns a function that names a frame by its module and offset. It opens the modules' files
    when needed, below `symfs` if given. `open_file` and `unnamed`: as in `Symbols`. `compiled`:
    names JIT-compiled code."""
    files = {module.id: (f"{symfs or ''}{module.path}", module.build_id) for module in modules}
    symbols = Symbols(
        lambda number: files.get(number, ("", "")), open_file=open_file, unnamed=unnamed
    )
    kinds = cache(lambda number: _node_kinds(*files.get(number, ("", "")), open_file))

    def name_of(module: int, offset: int) -> str:
        if files.get(module) == (f"{symfs or ''}{JIT_CODE}", ""):
            return compiled(module, offset)
        if not offset & NODE:
            return symbols.name(module, offset)
        kind, number = divmod(offset - NODE, 1 << NODE_KIND)
        return PlanNode(f"{kinds(module).get(kind, f'node {kind}')} #{number}")

    return name_of


def _compiled_names(code: pa.Table) -> Name:
    """Returns the names in the table `code`, which is not trusted."""
    columns = (code.column(name).to_pylist() for name in ("module", "offset", "name"))
    names = {(module, offset): name for module, offset, name in zip(*columns, strict=True)}
    return lambda module, offset: sanitise(names.get((module, offset), JIT_CODE))[:SHOWN_MAX]


def load_all() -> None:
    """Loads what naming would import later, before the process may open no more files."""
    supported()
    load_disassembler()
    cxx_demangler()
    own_vdso()


def _node_kinds(path: str, build_id: str, open_file: OpenFile) -> Mapping[int, str]:
    for server in supported():
        if server.node_kinds:
            with suppress(QjouleError):
                if kinds := server.node_kinds(open_file(Path(path), path), build_id):
                    return kinds
    return {}
