# SPDX-License-Identifier: Apache-2.0
"""Names of the frames of sampled stacks: functions, and nodes of plans."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

from qjoule.contract import NODE, NODE_KIND
from qjoule.engine.stacks import Name, PlanNode
from qjoule.servers.registered import supported
from qjoule.servers.symbols import Symbols
from qjoule.trace.meta import Module


def frame_names(modules: Iterable[Module], symfs: Path | None = None) -> Name:
    """Names a frame by its module and its offset there. It opens the modules' files as they are
    asked for, below `symfs` if that is given.
    """
    files = {one.id: (f"{symfs or ''}{one.path}", one.build_id) for one in modules}
    symbols = Symbols(lambda number: files.get(number, ("", "")))
    kinds = cache(lambda number: _node_kinds(*files.get(number, ("", ""))))

    def named(module: int, offset: int) -> str:
        if not offset & NODE:
            return symbols.name(module, offset)
        kind, number = divmod(offset - NODE, 1 << NODE_KIND)
        return PlanNode(f"{kinds(module).get(kind, f'node {kind}')} #{number}")

    return named


def _node_kinds(path: str, build_id: str) -> Mapping[int, str]:
    found = (one.node_kinds(path, build_id) for one in supported() if one.node_kinds)
    return next(filter(None, found), {})
