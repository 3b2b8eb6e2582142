# SPDX-License-Identifier: Apache-2.0
"""The first code that runs as root: what it imports, and what it passes to the root part."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import qjoule.cli
from qjoule import installed, start


class GivenAway(Exception):
    """Raised instead of replacing the process with another program."""


@pytest.fixture
def given_to(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Command lines with which the root part was called; this process appears to be root's."""
    found: list[list[str]] = []

    def execv(_path: str, words: list[str]) -> None:
        found.append(words)
        raise GivenAway

    monkeypatch.setattr(os, "execv", execv)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os.path, "exists", lambda _path: True)
    monkeypatch.setattr(qjoule.cli, "main", lambda: None)
    return found


@pytest.mark.parametrize(
    "words",
    [
        ["record", "-o", "x"],
        ["top"],
        ["doctor", "--json"],
        ["calibrate", "--short"],
        ["record", "--", "top", "--replay", "x"],
        ["import", "perf", "--print-commands"],
    ],
)
def test_what_needs_root_runs_without_it(
    words: list[str], given_to: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["qjoule", *words])
    with pytest.raises(GivenAway):
        start.main()
    ((program, python, isolated, file, *rest),) = given_to
    assert Path(program) == Path(qjoule.__file__).parent / "programs" / "qjoule-root"
    assert (python, isolated, rest) == (sys.executable, "-I", words)
    assert Path(file) == Path(qjoule.__file__).with_name("__main__.py")


@pytest.mark.parametrize(
    "words",
    [
        *([], ["--help"], ["attribute", "x"], ["top", "--replay=x"], ["run", "--", "record"]),
        ["import", "perf", "perf.data"],
    ],
)
def test_what_needs_no_root_runs_as_it_is(
    words: list[str], given_to: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["qjoule", *words])
    start.main()
    assert not given_to


def test_another_user_runs_everything_as_it_is(
    given_to: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(sys, "argv", ["qjoule", "record"])
    start.main()
    assert not given_to


def test_without_the_root_part_it_says_what_to_do(
    given_to: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os.path, "exists", lambda _path: False)
    monkeypatch.setattr(sys, "argv", ["qjoule", "record"])
    with pytest.raises(SystemExit, match="qjoule-root is not installed"):
        start.main()
    assert not given_to


def test_it_imports_nothing_but_os_and_sys() -> None:
    package = Path(qjoule.__file__).parent
    for name in ("start.py", "__init__.py"):
        body = ast.parse((package / name).read_text()).body
        imported = [node for node in body if isinstance(node, ast.Import | ast.ImportFrom)]
        for node in imported:
            assert isinstance(node, ast.Import)
            assert {alias.name for alias in node.names} <= {"os", "sys"}
    code = "import sys; before = set(sys.modules); import qjoule.start; " + (
        "print(*sorted(set(sys.modules) - before))"
    )
    shown = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True
    )
    assert set(shown.stdout.split()) == {"qjoule", "qjoule.start"}


def test_the_root_part_is_where_all_programs_are(
    given_to: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the package, or beside Python: the places of `qjoule.installed`, in its order."""
    package, beside = Path(qjoule.__file__).parent / "programs", Path(sys.executable).parent
    assert installed.PLACES[:2] == (package, beside)
    assert tuple(map(Path, start._PLACES[:2])) == (package, beside)
    assert Path("/usr/lib/qjoule") in installed.PLACES
    assert "/usr/lib/qjoule" in start._PLACES
    monkeypatch.setattr(os.path, "exists", lambda path: Path(path).parent == beside)
    monkeypatch.setattr(sys, "argv", ["qjoule", "top"])
    with pytest.raises(GivenAway):
        start.main()
    assert Path(given_to[0][0]) == beside / "qjoule-root"
