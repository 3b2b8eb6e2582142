# SPDX-License-Identifier: Apache-2.0
"""The page of `qjoule flame`: the report's icicle over stacks, in one HTML file as `page`."""

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
#: Frames of a stack that the figure shows: JSON cannot be as deep as a recursion.
_DEEPEST = 200
_DEEPER = "[deeper]"
Node = dict[str, Any]


def flame_page(found: Flame, title: str) -> str:
    """The whole file."""
    return page.rendered(
        *("flame.html", _VENDORED, _LICENCES, _OWN),
        style=page.read("static/page.css"),
        last="qj.showIcicle(qj.current());",
        title=clean(title),
        data={"parts": PARTS, "traces": [{"tree": tree(found), "power": None}]},
        about=about(title, found.result),
        samples=f"{found.samples:,}",
        whole=f"{found.whole / found.samples:.1%}",
        functions=table(found, _TOP),
    )


def tree(found: Flame) -> Node:
    """Frames as the icicle takes them: name, kind, nanojoules, children. What is below 0 (a
    residual) takes no room.
    """
    root: Node = {"name": "all", "kind": "machine", "nj": 0, "children": {}}
    for one in found.rows:
        for stack, energy_nj in one.energies_nj():
            if energy_nj > 0:
                shown = stack if len(stack) <= _DEEPEST else (*stack[:_DEEPEST], _DEEPER)
                _add(root, (*first_frames(one.row), *shown), one.row.kind, energy_nj)
    return _listed(root)


def _add(root: Node, names: tuple[str, ...], kind: str, energy_nj: int) -> None:
    node = root
    node["nj"] += energy_nj
    for name in names:
        children = node["children"]
        node = children.setdefault(name, {"name": name, "kind": kind, "nj": 0, "children": {}})
        node["nj"] += energy_nj


def _listed(root: Node) -> Node:
    """With lists of children, the largest first. What a frame took itself is a part of its own,
    since the icicle adds up the outermost ones.
    """
    order = [root]
    for node in order:
        children = sorted(node["children"].values(), key=lambda one: -one["nj"])
        order += children
        own = node["nj"] - sum(one["nj"] for one in children)
        if children and own:
            children.append({"name": "(itself)", "kind": node["kind"], "nj": own})
        node["children"] = children
    for node in order:
        if not node["children"]:
            del node["children"]
    return root
