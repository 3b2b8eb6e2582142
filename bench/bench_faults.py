# SPDX-License-Identifier: Apache-2.0
"""How many planted faults the tests find: each fault of bench/faults is one changed line.

A fault is planted in a copy of the tree, and the tests that are named with it run until the first
one fails. They must pass without it. What tests compile themselves has the fault; programs of
build/ are those of the tree. A fault that no test finds is printed.

    python bench/bench_faults.py                # all
    python bench/bench_faults.py model tags     # of bench/faults/model.toml and tags.toml
    python bench/bench_faults.py --tests DIR    # with the tests of another checkout
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path

TREE = Path(__file__).resolve().parents[1]
FAULTS = TREE / "bench" / "faults"
#: A fault may make a program run for ever.
TIMEOUT_S = 300
PASSED = 0  #: pytest's exit code


@dataclass(frozen=True)
class Fault:
    """A line of `file` that becomes another one; `tests` are files or folders that find it."""

    file: str
    old: str
    new: str
    tests: tuple[str, ...]


def faults_of(area: Path) -> list[Fault]:
    """The faults of an area. Raises ValueError if a line is not in its file exactly once."""
    faults = []
    for entry in tomllib.loads(area.read_text("utf-8"))["fault"]:
        fault = Fault(entry["file"], entry["old"], entry["new"], tuple(entry["tests"]))
        if (count := (TREE / fault.file).read_text("utf-8").count(fault.old)) != 1:
            raise ValueError(f"{area.name}: {fault.file} has {count} times: {fault.old}")
        faults.append(fault)
    return faults


def copy_of(tree: Path, tests: Path, place: Path) -> Path:
    """A copy of the committed and changed files of a tree, with the tests of `tests`."""
    copy = place / "tree"
    leave_out = shutil.ignore_patterns(
        ".git", ".venv", "build", "tests", "__pycache__", "*.egg-info"
    )
    shutil.copytree(tree, copy, symlinks=True, ignore=leave_out)
    for name in ("tests", "studies/tests", "fleet/tests"):
        shutil.copytree(tests / name, copy / name, symlinks=True)
    for name in ("build", ".git"):
        (copy / name).symlink_to(tree / name)
    copy_environment((tree / ".venv").resolve(), copy)
    return copy


def copy_environment(of_tree: Path, copy: Path) -> None:
    """Makes a .venv whose commands run the copy's code.

    PYTHONPATH is not enough: what the root part starts ignores it (python -I).
    """
    venv = copy / ".venv"
    shutil.copytree(of_tree / "bin", venv / "bin", symlinks=True)
    shutil.copy(of_tree / "pyvenv.cfg", venv)
    packages = next(of_tree.glob("lib/python*/site-packages"))
    place = venv / packages.relative_to(of_tree)
    place.mkdir(parents=True)
    for package in packages.iterdir():
        if not package.name.startswith("__editable__"):
            (place / package.name).symlink_to(package)
    (place / "tree.pth").write_text("".join(f"{source}\n" for source in sources_of(copy)))
    (venv / "lib" / "qjoule").symlink_to(of_tree / "lib" / "qjoule")
    command = venv / "bin" / "qjoule"
    command.write_text(command.read_text("utf-8").replace(f"{of_tree}/", f"{venv}/"), "utf-8")


def sources_of(copy: Path) -> list[str]:
    return [str(copy / room / "src") for room in ("attribution", "drivers", "studies", "fleet")]


def tested(copy: Path, tests: tuple[str, ...]) -> int | None:
    """pytest's exit code, at the first failure; None: they never end."""
    python = str(copy / ".venv" / "bin" / "python")
    command = [python, "-B", "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    try:
        return subprocess.run(
            command,
            cwd=copy,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sources_of(copy))},
            capture_output=True,
            check=False,
            timeout=TIMEOUT_S,
        ).returncode
    except subprocess.TimeoutExpired:
        return None


def outcome(copy: Path, fault: Fault, without: dict[tuple[str, ...], int | None]) -> str:
    """What the tests say of one fault; `without`: what they said without any, by their names."""
    tests = tuple(name for name in fault.tests if (copy / name).exists())
    if tests not in without:
        without[tests] = tested(copy, tests) if tests else PASSED
    if not tests or without[tests] != PASSED:
        return "NO TESTS" if not tests else "FAILS WITHOUT THE FAULT"
    path = copy / fault.file
    text = path.read_text("utf-8")
    path.write_text(text.replace(fault.old, fault.new), "utf-8")
    try:
        return "NOT FOUND" if tested(copy, tests) == PASSED else "found"
    finally:
        path.write_text(text, "utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("areas", nargs="*", help="names of files in bench/faults (default: all)")
    parser.add_argument("--tests", type=Path, default=TREE, help="a checkout whose tests run")
    options = parser.parse_args()
    areas = [FAULTS / f"{name}.toml" for name in options.areas] or sorted(FAULTS.glob("*.toml"))
    found_faults = total = 0
    without: dict[tuple[str, ...], int | None] = {}
    with tempfile.TemporaryDirectory(prefix="qjoule-faults-") as place:
        Path(place).chmod(0o755)
        copy = copy_of(TREE, options.tests.resolve(), Path(place))
        for area in areas:
            for fault in faults_of(area):
                verdict = outcome(copy, fault, without)
                total, found_faults = total + 1, found_faults + (verdict == "found")
                print(
                    f"{verdict}: {fault.file}: {fault.old.strip()} -> {fault.new.strip()}",
                    flush=True,
                )
    print(f"{found_faults} of {total} planted faults found")


if __name__ == "__main__":
    main()
