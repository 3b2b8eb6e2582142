# SPDX-License-Identifier: Apache-2.0
"""Which room of `qjoule` may import which; no modules import each other in a cycle. Also: what
the distributions may import of each other.

The graph is read from the sources, so imports inside functions and for type checkers count too.
"""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import re
from collections.abc import Collection, Iterator, Mapping
from collections.abc import Set as AbstractSet
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from click.testing import CliRunner

import qjoule
import qjoule_drivers
import qjoule_fleet
import qjoule_studies
from qjoule import api
from qjoule.cli import COMMANDS, FLEET, STUDIES, cli
from qjoule.errors import UsageError

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


def imported(text: str, modules_of_ours: AbstractSet[str]) -> Iterator[str]:
    """Modules among `modules_of_ours` that a module imports, with the packages that hold them."""
    for package, names, modules in _IMPORT.findall(text):
        assert not package.startswith("."), "imports are absolute"
        for name in re.findall(r"[\w.]+", names or modules):
            parts = f"{package}.{name}".strip(".").split(".")
            yield from modules_of_ours & {".".join(parts[:end]) for end in range(2, len(parts) + 1)}


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
    imports: dict[str, set[str]] = {}
    for name, others in graph().items():
        imports.setdefault(room(name), set()).update(map(room, others))
    return {name: others - {name} for name, others in imports.items()}


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


# --------------------------------------------------------------------------------------------------
#
# Seams between distributions: studies and fleet import of qjoule only its API, and it neither.

TREE = Path(__file__).parents[3]
OTHERS = ("qjoule_studies", "qjoule_fleet")
API = {
    f"qjoule.api.{path.stem}".removesuffix(".__init__")
    for path in Path(api.__file__).parent.glob("*.py")
}


def names_imported(source: Path) -> Iterator[tuple[Path, str, str]]:
    """(file, module, name) of what the files import, wherever in them."""
    for path in sorted(source.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom):
                assert node.level == 0, path
                yield from ((path, str(node.module), alias.name) for alias in node.names)
            elif isinstance(node, ast.Import):
                yield from ((path, alias.name, "") for alias in node.names)


def of_qjoule() -> list[tuple[Path, str, str]]:
    sources = (TREE / "studies/src", TREE / "fleet/src")
    return [
        import_
        for source in sources
        for import_ in names_imported(source)
        if import_[1].split(".")[0] == "qjoule"
    ]


def test_studies_and_fleet_import_only_the_api() -> None:
    public = {(name, each) for name in API for each in importlib.import_module(name).__all__}
    private = {
        (str(path.relative_to(TREE)), *name)
        for path, *name in of_qjoule()
        if tuple(name) not in public
    }
    assert private == set()
    assert public - {(module, name) for _, module, name in of_qjoule()} == set(), (
        "no longer used: leave it out of the API"
    )


def test_qjoule_imports_neither() -> None:
    imports = list(names_imported(TREE / "attribution/src"))
    assert len(imports) > 1000
    assert [name for name in imports if name[1].split(".")[0] in OTHERS] == []


def test_all_have_one_version() -> None:
    parts = (qjoule_drivers, qjoule_fleet, qjoule_studies)
    assert {part.__version__ for part in parts} == {qjoule.__version__}


@pytest.mark.parametrize(("command", "of"), [("bench", STUDIES), ("fleet", FLEET)])
def test_a_command_of_a_distribution_that_is_missing_says_what_to_install(
    command: str, of: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", missing)
    assert COMMANDS[command][0] == of
    assert f"  {command} " in CliRunner().invoke(cli, ["--help"]).output
    with pytest.raises(UsageError, match=f"'{command}' is a command of {of}: pip install {of}"):
        CliRunner().invoke(cli, [command, "--help"], catch_exceptions=False)
