# SPDX-License-Identifier: Apache-2.0
"""Where the joules went, as a tree: machine, server, database, statement; and the rest.

Every node is the sum of its children, in whole nanojoules.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from qjoule.model.result import Row
from qjoule.reporters.labels import FIXED_NAMES, query_label
from qjoule.shapes.safe_text import sanitise, shorten

CHILDREN_MAX = 40  #: of a node; the others are one
_TEXT = 120

Node = dict[str, Any]  #: name, kind, nj, and children or the number of a row


def tree(rows: Sequence[Row], machine: str, *, known: bool) -> Node | None:
    """The tree of a table's rows, numbered in their order; None without energy."""
    if not known:
        return None
    root: Node = {"name": machine, "kind": "machine", "children": []}
    for number, row in enumerate(rows):
        if not row.energy_nj:
            continue
        node = root
        for name, kind in _path(row):
            node = _child(node, name, kind)
        node["children"].append(
            {"name": _leaf(row), "kind": row.kind, "nj": row.energy_nj, "row": number}
        )
    _sum(root)
    return root


def _path(row: Row) -> list[tuple[str, str]]:
    """The nodes above a row."""
    if row.kind == "queries" or (row.kind == "background" and row.server):
        path = [(row.server or "(unknown server)", "server")]
        if row.kind == "background":
            return [*path, ("background", "background")]
        database = row.keys.get("database")
        return [*path, (database, "database")] if database else path
    if row.kind == "other_processes":
        return [(FIXED_NAMES[row.kind], row.kind)]
    return []


def _leaf(row: Row) -> str:
    if row.kind == "queries":
        return shorten(sanitise(row.shape[: 2 * _TEXT] or query_label(row)), _TEXT)
    name = row.shape or row.keys.get("role") or row.keys.get("process") or ""
    return shorten(sanitise(name[: 2 * _TEXT]), _TEXT) or FIXED_NAMES[row.kind]


def _child(node: Node, name: str, kind: str) -> Node:
    name = shorten(sanitise(name[: 2 * _TEXT]), _TEXT)
    for one in reversed(node["children"]):
        if one["name"] == name and one["kind"] == kind:
            found: Node = one
            return found
    made: Node = {"name": name, "kind": kind, "children": []}
    node["children"].append(made)
    return made


def _sum(node: Node) -> int:
    """Adds up from the leaves, sorts the largest first, and merges nodes beyond the limit."""
    if "children" not in node:
        return int(node["nj"])
    node["nj"] = sum(_sum(child) for child in node["children"])
    children = sorted(node["children"], key=lambda child: -child["nj"])
    rest = children[CHILDREN_MAX:]
    if len(rest) > 1:
        others = {"name": f"({len(rest)} others)", "kind": rest[0]["kind"]}
        children = [*children[:CHILDREN_MAX], others | {"nj": sum(one["nj"] for one in rest)}]
    node["children"] = children
    return int(node["nj"])
