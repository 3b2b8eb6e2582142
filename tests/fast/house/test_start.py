# SPDX-License-Identifier: Apache-2.0
"""The first code that runs as root, and where programs of this installation are found."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import qjoule
import qjoule.cli
from qjoule import installed, start
from qjoule.contract import CONTRACT_VERSION

PACKAGE = Path(qjoule.__file__).parent


class GivenAway(Exception):
    """Raised instead of replacing the process with another program."""


@pytest.fixture
def given_to(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Command lines with which the root part was called; this process appears to be root's."""
    calls: list[list[str]] = []

    def execv(_path: str, arguments: list[str]) -> None:
        calls.append(arguments)
        raise GivenAway

    monkeypatch.setattr(os, "execv", execv)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os.path, "exists", lambda _path: True)
    monkeypatch.setattr(qjoule.cli, "main", lambda: None)
    return calls


def start_main(monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    monkeypatch.setattr(sys, "argv", ["qjoule", *line.split()])
    start.main()


@pytest.mark.parametrize(
    "line",
    [
        *("record -o x", "top", "doctor --json", "calibrate --short"),
        *("record -- top --replay x", "import perf --print-commands"),
    ],
)
def test_what_needs_root_runs_without_it(
    line: str, given_to: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(GivenAway):
        start_main(monkeypatch, line)
    ((program, python, isolated, file, *arguments),) = given_to
    assert Path(program) == PACKAGE / "programs" / "qjoule-root"
    assert (python, isolated, arguments) == (sys.executable, "-I", line.split())
    assert Path(file) == PACKAGE / "__main__.py"


@pytest.mark.parametrize(
    ("line", "user"),
    [
        *(("", 0), ("--help", 0), ("attribute x", 0), ("top --replay=x", 0), ("run -- record", 0)),
        *(("import perf perf.data", 0), ("bench x", 0), ("record", 1000)),
    ],
)
def test_what_needs_no_root_or_has_none_runs_as_it_is(
    line: str, user: int, given_to: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root's without the caller's PYTHONPATH, but for workloads, which are found by it."""
    monkeypatch.setattr(os, "geteuid", lambda: user)
    if user == 0 and not line.startswith("bench"):
        with pytest.raises(GivenAway):
            start_main(monkeypatch, line)
        again = [sys.executable, "-I", str(PACKAGE / "__main__.py"), *line.split()]
        assert given_to == [again]
        return
    start_main(monkeypatch, line)
    assert not given_to


def test_without_the_root_part_it_says_what_to_do(
    given_to: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os.path, "exists", lambda _path: False)
    with pytest.raises(SystemExit, match="qjoule-root is not installed"):
        start_main(monkeypatch, "record")
    assert not given_to


def test_it_imports_nothing_that_python_has_not() -> None:
    for name in ("start.py", "__init__.py"):
        body = ast.parse((PACKAGE / name).read_text()).body
        imported = [node for node in body if isinstance(node, ast.Import | ast.ImportFrom)]
        for node in imported:
            assert isinstance(node, ast.Import)
            assert {alias.name for alias in node.names} <= {"_signal", "os", "sys"}
    code = (
        "import sys; before = {*sys.modules}; import qjoule.start; print(*{*sys.modules} - before)"
    )
    command = [sys.executable, "-I", "-c", code]
    shown = subprocess.run(command, capture_output=True, text=True, check=True)
    assert set(shown.stdout.split()) == {"qjoule", "qjoule.start"}


def test_the_root_part_is_where_all_programs_are(
    given_to: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the package, or beside Python: the places of `qjoule.installed`, in its order."""
    package, beside = PACKAGE / "programs", Path(sys.executable).parent
    assert installed.PLACES[:2] == (package, beside)
    assert tuple(map(Path, start._PLACES[:2])) == (package, beside)
    assert Path("/usr/lib/qjoule") in installed.PLACES
    assert "/usr/lib/qjoule" in start._PLACES
    monkeypatch.setattr(os.path, "exists", lambda path: Path(path).parent == beside)
    with pytest.raises(GivenAway):
        start_main(monkeypatch, "top")
    assert Path(given_to[0][0]) == beside / "qjoule-root"


TRACER = "qjoule-tracer"


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Two places, the first one preferred; nothing is in them or on PATH."""
    directories = tmp_path / "programs", tmp_path / "bin"
    for place in directories:
        place.mkdir()
    monkeypatch.setattr(installed, "PLACES", directories)
    monkeypatch.setenv("PATH", str(tmp_path))
    return directories


def _tracer(directory: Path, script: str) -> Path:
    program = directory / TRACER
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return program


@pytest.mark.parametrize(
    ("script", "tracer", "contract"),
    [
        (f"echo qjoule-tracer 9.1; echo contract {CONTRACT_VERSION}", "9.1 (", ""),
        ("echo qjoule-tracer 9.1; echo contract 7", "9.1 (", "but the tracer speaks 7"),
        ("exit 2", "unknown: ", ""),
        (None, "not installed", ""),
    ],
)
def test_versions_of_all_parts(
    places: tuple[Path, Path], script: str | None, tracer: str, contract: str
) -> None:
    if script is not None:
        _tracer(places[0], script)
    of_qjoule, of_tracer, of_contract = installed.versions().splitlines()
    assert of_qjoule == f"qjoule {qjoule.__version__}"
    assert of_tracer.startswith(f"tracer {tracer}")
    assert of_contract.startswith(f"event contract {CONTRACT_VERSION}")
    assert contract in of_contract
    assert ("but" in of_contract) == bool(contract)
