# SPDX-License-Identifier: Apache-2.0
"""The page of `qjoule flame`: the report's icicle over stacks, in one HTML file."""

from __future__ import annotations

from typing import Any

from qjoule.engine.flame import Flame
from qjoule.model.result import PARTS
from qjoule.report import page
from qjoule.report.page_data import about, clean
from qjoule.reporters.flame_text import first_frames, table

_VENDORED, _LICENCES = ("d3-hierarchy-3.1.2.min.js",), ("d3-hierarchy-LICENSE.txt",)
_OWN = ("base.js", "icicle.js")
#: Functions in the list below the figure.
_TOP = 100
#: Frames of a stack that are shown: JSON cannot nest as deep as a recursion.
_DEEPEST = 200
_DEEPER = "[deeper]"
Node = dict[str, Any]


def flame_page(flame: Flame, title: str) -> str:
    return page.rendered(
        *("flame.html", _VENDORED, _LICENCES, _OWN),
        style=page.read("static/page.css"),
        last="qj.showIcicle(qj.current());",
        title=clean(title),
        data={"parts": PARTS, "traces": [{"tree": tree(flame), "power": None}]},
        about=about(title, flame.result),
        samples=f"{flame.samples:,}",
        whole=f"{flame.whole / flame.samples:.1%}",
        functions=table(flame, _TOP),
    )


def tree(flame: Flame) -> Node:
    """The icicle's tree of frames: name, kind, nanojoules, children. Negative energies (a residual)
    are left out."""
    root: Node = {"name": "all", "kind": "machine", "nj": 0, "children": {}}
    for row_stacks in flame.rows:
        for stack, energy_nj in row_stacks.energies_nj():
            if energy_nj > 0:
                frames = stack if len(stack) <= _DEEPEST else (*stack[:_DEEPEST], _DEEPER)
                _add(root, (*first_frames(row_stacks.row), *frames), row_stacks.row.kind, energy_nj)
    return _with_child_lists(root)


def _add(root: Node, names: tuple[str, ...], kind: str, energy_nj: int) -> None:
    node = root
    node["nj"] += energy_nj
    for name in names:
        children = node["children"]
        node = children.setdefault(name, {"name": name, "kind": kind, "nj": 0, "children": {}})
        node["nj"] += energy_nj


def _with_child_lists(root: Node) -> Node:
    """Turns children into lists, the largest first. A frame's own energy becomes a child
    `(itself)`, because the icicle adds up the leaves."""
    order = [root]
    for node in order:
        children = sorted(node["children"].values(), key=lambda child: -child["nj"])
        order += children
        self_nj = node["nj"] - sum(child["nj"] for child in children)
        if children and self_nj:
            children.append({"name": "(itself)", "kind": node["kind"], "nj": self_nj})
        node["children"] = children
    for node in order:
        if not node["children"]:
            del node["children"]
    return root
