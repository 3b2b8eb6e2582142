# SPDX-License-Identifier: Apache-2.0
"""Which room of `qjoule` may import which; no modules import each other in a cycle.

The graph is read from the sources, so imports inside functions and for type checkers count too.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from collections.abc import Set as AbstractSet
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import qjoule

ROOT = Path(qjoule.__file__).parent

#: What each room must not import: the layers above it, and what it does not need to know.
FORBIDDEN = {
    "model": (
        "trace stream engine tags servers root_part session live metrics agent reporters commands"
    ),
    "trace": "engine session live metrics agent reporters commands",
    "stream": "engine model session live metrics agent reporters commands",
    "tags": "trace stream engine model session live metrics agent reporters commands",
    "engine": "session live metrics agent reporters commands",
    "session": "engine live metrics agent reporters commands",
    "live": "session metrics agent reporters commands",
    "metrics": "trace stream engine tags servers session live agent reporters commands",
    "push": "trace stream engine tags session live agent reporters commands",
    "remote": "trace stream engine tags servers session live agent reporters commands",
    "agent": "engine tags servers root_part session live reporters commands",
    "reporters": "session live metrics agent commands",
}
Graph = Mapping[str, Collection[str]]
_IMPORT = re.compile(r"^ *(?:from (\S+) import (\([^)]*\)|[^\n#]*)|import ([^\n#]*))", re.MULTILINE)


def imported(text: str, known: AbstractSet[str]) -> Iterator[str]:
    """Modules among `known` that a module imports, with the packages that hold them."""
    for package, names, modules in _IMPORT.findall(text):
        assert not package.startswith("."), "imports are absolute"
        for name in re.findall(r"[\w.]+", names or modules):
            parts = f"{package}.{name}".strip(".").split(".")
            yield from known & {".".join(parts[:end]) for end in range(2, len(parts) + 1)}


@cache
def graph() -> Graph:
    """Each module's imports, except for its own packages, which are already being imported."""
    texts = {}
    for path in ROOT.rglob("*.py"):
        parts = ("qjoule", *path.relative_to(ROOT).with_suffix("").parts)
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        texts[name] = path.read_text(encoding="utf-8")
    return {
        name: {
            other
            for other in imported(text, texts.keys())
            if other != name and not name.startswith(f"{other}.")
        }
        for name, text in texts.items()
    }


def room(module: str) -> str:
    return module.split(".")[1] if "." in module else module


def rooms() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for name, others in graph().items():
        found.setdefault(room(name), set()).update(map(room, others))
    return {name: others - {name} for name, others in found.items()}


def test_no_modules_import_each_other_in_a_circle() -> None:
    TopologicalSorter(graph()).prepare()  # or it raises CycleError
    TopologicalSorter(rooms()).prepare()


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
    named = {*FORBIDDEN, *" ".join(FORBIDDEN.values()).split()}
    assert named <= rooms().keys()
