# SPDX-License-Identifier: Apache-2.0
"""Each source file states its licence."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

TREE = Path(__file__).parents[3]
SUFFIXES = {".py", ".pyi", ".c", ".h", ".cpp", ".java", ".R", ".mk"}
ANY = "SPDX-License-Identifier: "
DUAL = "SPDX-License-Identifier: GPL-2.0 OR Apache-2.0"


def _sources() -> list[Path]:
    if not (TREE / ".git").exists():
        pytest.skip("not a checkout: what belongs to the tree is not known")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=TREE, capture_output=True, check=True)
    names = [name for name in listed.stdout.decode().split("\0") if name and "vendor/" not in name]
    return [TREE / name for name in names if Path(name).suffix in SUFFIXES]


def _head(path: Path) -> str:
    with path.open(encoding="utf-8") as file:
        return "".join(file.readline() for _ in range(3))


def test_every_source_has_a_licence() -> None:
    missing = [path for path in _sources() if ANY not in _head(path)]
    assert not [str(path.relative_to(TREE)) for path in missing]


def test_what_runs_in_the_kernel_is_gpl_too() -> None:
    """The kernel offers its BPF helpers only to programs under the GPL (LICENSE in maps.bpf.c)."""
    programs = [path for path in _sources() if path.is_relative_to(TREE / "bpf")]
    assert programs
    assert not [str(path.relative_to(TREE)) for path in programs if DUAL not in _head(path)]
