# SPDX-License-Identifier: Apache-2.0
"""Seams between distributions: studies and fleet import of qjoule only its API, and it neither."""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
from collections.abc import Iterator
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

TREE = Path(__file__).parents[3]
OTHERS = ("qjoule_studies", "qjoule_fleet")
API = {
    f"qjoule.api.{path.stem}".removesuffix(".__init__")
    for path in Path(api.__file__).parent.glob("*.py")
}


def imported(source: Path) -> Iterator[tuple[Path, str, str]]:
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
        found
        for source in sources
        for found in imported(source)
        if found[1].split(".")[0] == "qjoule"
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
    found = list(imported(TREE / "attribution/src"))
    assert len(found) > 1000
    assert [name for name in found if name[1].split(".")[0] in OTHERS] == []


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
