# SPDX-License-Identifier: Apache-2.0
"""Includes in bpf/: there are no cycles, and the core knows servers only through the registry."""

from __future__ import annotations

import re
from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from qjoule.servers.registry import load, servers
from qjoule.servers.registry_header import headers

BPF = Path(__file__).parents[3] / "bpf"
CORE = "core"
#: A server without a protocol belongs to the core.
NAMES = sorted({*servers(), "mariadb", "mongo", "cql", "volt"} - {"generic"})
_INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)


def sources(bpf: Path) -> dict[str, str]:
    """All files by their path below bpf/, and the headers generated from the registry."""
    files = {str(path.relative_to(bpf)): path.read_text() for path in bpf.rglob("*.[ch]")}
    return {**files, **headers(load())}


def module(path: str) -> str:
    """A header and the file that defines its declarations are one module: core/query.bpf.h
    and .c.
    """
    return str(Path(path).with_name(Path(path).name.split(".")[0]))


def includes(files: Mapping[str, str]) -> dict[str, set[str]]:
    """For each file, the files it includes, without vmlinux.h and the kernel's."""
    found: dict[str, set[str]] = {path: set() for path in files}
    for path, text in files.items():
        for name in _INCLUDE.findall(text):
            beside = str(Path(path).parent / name)
            target = beside if beside in files else name
            if target in files:
                found[path].add(target)
    return found


def circle(files: Mapping[str, str]) -> list[str]:
    """Modules that include each other in a cycle; empty if there are none."""
    graph: dict[str, set[str]] = {}
    for path, targets in includes(files).items():
        own = module(path)
        graph.setdefault(own, set()).update(set(map(module, targets)) - {own})
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_nothing_includes_itself() -> None:
    assert circle(sources(BPF)) == []


def test_core_includes_no_server() -> None:
    found = includes(sources(BPF))
    theirs = {
        f"{path}: {target}"
        for path, targets in found.items()
        for target in targets
        if path.startswith(f"{CORE}/") and target.split("/")[0] in servers()
    }
    assert theirs == set()


def test_a_server_includes_no_other() -> None:
    found = includes(sources(BPF))
    theirs = {
        f"{path}: {target}"
        for path, targets in found.items()
        for target in targets
        if path.split("/")[0] in servers()
        and target.split("/")[0] in servers()
        and path.split("/")[0] != target.split("/")[0]
    }
    assert theirs == set()


def test_core_names_no_server() -> None:
    words = re.compile("|".join([*NAMES, r"\bpg_"]), re.IGNORECASE)
    shared = {path: text for path, text in sources(BPF).items() if path.startswith(f"{CORE}/")}
    shared["shared.h"] = (BPF / "shared.h").read_text()
    named = [
        f"{path}:{number}: {line.strip()}"
        for path, text in shared.items()
        for number, line in enumerate(text.splitlines(), 1)
        if words.search(line)
    ]
    assert len(shared) > 20
    assert named == []


@pytest.mark.parametrize(
    ("files", "has_circle"),
    [
        ({"a/x.h": '#include "y.h"\n', "a/y.h": '#include "a/x.h"\n'}, True),
        (
            {"a/x.bpf.h": '#include "y.h"\n', "a/y.h": "", "a/x.bpf.c": '#include "x.bpf.h"\n'},
            False,
        ),
        ({"a/x.bpf.c": '#include "y.h"\n', "a/y.h": '#include "x.bpf.h"\n', "a/x.bpf.h": ""}, True),
        ({"a/x.h": '#include "b/x.h"\n', "b/x.h": ""}, False),
    ],
)
def test_what_is_a_circle(files: dict[str, str], has_circle: bool) -> None:
    assert bool(circle(files)) == has_circle
