# SPDX-License-Identifier: Apache-2.0
"""Which room of `qjoule` may import which; no modules import each other in a cycle.

The graph is read from the sources, so imports inside functions and for type checkers count too.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from functools import cache
from pathlib import Path

import pytest

import qjoule

ROOT = Path(qjoule.__file__).parent

#: What each room must not import: the layers above it, and what it does not need to know.
FORBIDDEN = {
    "model": (
        "trace stream engine tags servers root_part session live metrics agent fleet reporters "
        "commands"
    ),
    "trace": "engine session live metrics agent fleet reporters commands",
    "stream": "engine model session live metrics agent fleet reporters commands",
    "tags": "trace stream engine model session live metrics agent fleet reporters commands",
    "engine": "session live metrics agent fleet reporters commands",
    "session": "engine live metrics agent fleet reporters commands",
    "live": "session metrics agent fleet reporters commands",
    "metrics": "trace stream engine tags servers session live agent fleet reporters commands",
    "push": "trace stream engine tags session live agent fleet reporters commands",
    "remote": "trace stream engine tags servers session live agent fleet reporters commands",
    "agent": "engine tags servers root_part session live reporters commands",
    "fleet": "session live metrics agent push remote reporters commands",
    "reporters": "session live metrics agent commands",
}
#: Rooms that import each other in more than one way; this list should shrink.
ROOM_CIRCLES = ({"reporters", "studies"},)

Graph = Mapping[str, Collection[str]]


@cache
def modules() -> Mapping[str, ast.Module]:
    """All modules of the package by their dotted names."""
    found = {}
    for path in ROOT.rglob("*.py"):
        parts = ("qjoule", *path.relative_to(ROOT).with_suffix("").parts)
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = ast.parse(path.read_text(encoding="utf-8"))
    return found


def imported(tree: ast.Module, known: AbstractSet[str]) -> Iterator[str]:
    """Modules among `known` that a module imports, with the packages that hold them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            parts = name.split(".")
            yield from known & {".".join(parts[:end]) for end in range(2, len(parts) + 1)}


@cache
def graph() -> Graph:
    """Each module's imports, except for its own packages, which are already being imported."""
    known = frozenset(modules())
    return {
        name: {
            other
            for other in imported(tree, known)
            if other != name and not name.startswith(f"{other}.")
        }
        for name, tree in modules().items()
    }


def room(module: str) -> str:
    """A server folder's module for perf's records belongs to the room that imports them."""
    parts = module.split(".")
    if parts[1:2] == ["servers"] and parts[3:] == ["perf"]:
        return "imports"
    return parts[1] if len(parts) > 1 else module


def rooms() -> Graph:
    found: dict[str, set[str]] = {}
    for name, others in graph().items():
        found.setdefault(room(name), set()).update(map(room, others))
    return {name: others - {name} for name, others in found.items()}


def circles(edges: Graph) -> list[set[str]]:
    """Sets of nodes that reach each other (Tarjan 1972)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in edges.get(node, ()):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            circle = set(stack[stack.index(node) :])
            del stack[stack.index(node) :]
            if len(circle) > 1:
                found.append(circle)

    for node in edges:
        if node not in index:
            visit(node)
    return found


def ordered(sets: Iterable[Collection[str]]) -> list[list[str]]:
    return sorted(sorted(one) for one in sets)


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert ordered(circles(graph())) == []


def test_rooms_are_in_layers() -> None:
    assert ordered(circles(rooms())) == ordered(ROOM_CIRCLES)


@pytest.mark.parametrize("lower", FORBIDDEN)
def test_a_room_imports_nothing_above_it(lower: str) -> None:
    forbidden = FORBIDDEN[lower].split()
    wrong = {
        f"{name} imports {other}"
        for name, others in graph().items()
        for other in others
        if room(name) == lower and room(other) in forbidden
    }
    assert not wrong


def test_every_room_that_is_named_is_there() -> None:
    named = {*FORBIDDEN, *" ".join(FORBIDDEN.values()).split(), *set().union(*ROOM_CIRCLES)}
    assert named <= rooms().keys()


def test_a_circle_would_be_found() -> None:
    edges = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set[str]()}
    assert ordered(circles(edges)) == [["b", "c"]]
    tree = ast.parse("def late():\n    from qjoule.trace.reader import Trace\n")
    known = {"qjoule.trace", "qjoule.trace.reader"}
    assert set(imported(tree, known)) == known
