# SPDX-License-Identifier: Apache-2.0
"""How many planted faults the tests find: each fault of bench/faults is one changed line.

A fault is planted in a copy of the tree, and the tests that are named with it run until the first
one fails. A fault that no test finds is printed. The copy is compiled by what the tests compile
themselves; programs of build/ are those of the tree.

    python bench/bench_faults.py                # all
    python bench/bench_faults.py model tags     # of bench/faults/model.toml and tags.toml
    python bench/bench_faults.py --tests DIR    # with the tests of another checkout
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path

TREE = Path(__file__).resolve().parents[1]
FAULTS = TREE / "bench" / "faults"
#: A fault may make a program run for ever.
TIMEOUT_S = 300
FOUND = {1: "found", 2: "found (not importable)"}  #: by pytest's exit codes


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
    shutil.copytree(tests / "tests", copy / "tests", symlinks=True)
    for name in (".venv", "build", ".git"):
        (copy / name).symlink_to(tree / name)
    return copy


def outcome(copy: Path, fault: Fault) -> str:
    """What the tests say of one fault."""
    path = copy / fault.file
    text = path.read_text("utf-8")
    path.write_text(text.replace(fault.old, fault.new), "utf-8")
    sources = os.pathsep.join(str(copy / room / "src") for room in ("attribution", "drivers"))
    tests = [name for name in fault.tests if (copy / name).exists()]
    command = [sys.executable, "-B", "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    try:
        done = subprocess.run(
            command,
            cwd=copy,
            env={**os.environ, "PYTHONPATH": sources},
            capture_output=True,
            check=False,
            timeout=TIMEOUT_S,
        )
        return FOUND.get(done.returncode, "NOT FOUND") if tests else "NO TESTS"
    except subprocess.TimeoutExpired:
        return "found (never ends)"
    finally:
        path.write_text(text, "utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("areas", nargs="*", help="names of files in bench/faults (default: all)")
    parser.add_argument("--tests", type=Path, default=TREE, help="a checkout whose tests run")
    options = parser.parse_args()
    areas = [FAULTS / f"{name}.toml" for name in options.areas] or sorted(FAULTS.glob("*.toml"))
    found = total = 0
    with tempfile.TemporaryDirectory(prefix="qjoule-faults-") as place:
        Path(place).chmod(0o755)
        copy = copy_of(TREE, options.tests.resolve(), Path(place))
        for area in areas:
            for fault in faults_of(area):
                said = outcome(copy, fault)
                total, found = total + 1, found + said.startswith("found")
                print(
                    f"{said}: {fault.file}: {fault.old.strip()} -> {fault.new.strip()}", flush=True
                )
    print(f"{found} of {total} planted faults found")


if __name__ == "__main__":
    main()
