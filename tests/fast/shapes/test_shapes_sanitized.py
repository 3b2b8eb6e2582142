# SPDX-License-Identifier: Apache-2.0
"""The C of shapes under the address and undefined behaviour sanitizers, on mutated statements."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).parents[3]
SOURCES = sorted((ROOT / "attribution" / "shapes").glob("*.c"))
RUNS, SEED = 3_000, 3
#: What is allocated once, by the module and each lexer, stays until the process ends.
METHODS = re.compile(r"\b(?:reduce|shape|tokens|quoted)_method\b")
#: Takes the place of the module that is installed.
PROGRAM = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("qjoule.shapes._shapes", sys.argv.pop(1))
module = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = module
spec.loader.exec_module(module)
import qjoule.shapes.lexers
assert qjoule.shapes.lexers.Lexer is module.Lexer
from fuzz.shape_mutations import main
main()
"""


def _flags(*more: str) -> list[str]:
    include = sysconfig.get_path("include")
    flags = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-DPy_LIMITED_API=0x030B0000"]
    return [*flags, f"-I{include}", *more]


def test_mutated_statements_show_no_fault(tmp_path: Path) -> None:
    module = tmp_path / "_shapes.abi3.so"
    sanitizers = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    flags = _flags("-g", "-O1", "-fPIC", "-shared", *sanitizers)
    subprocess.run(["gcc", *flags, *map(str, SOURCES), "-o", str(module)], check=True)
    libraries = [
        subprocess.run(
            ["gcc", f"-print-file-name={name}.so"], check=True, capture_output=True, text=True
        ).stdout.strip()
        for name in ("libasan", "libubsan")
    ]
    environment = os.environ | {
        "LD_PRELOAD": " ".join(libraries),
        "ASAN_OPTIONS": "detect_leaks=1",
        "LSAN_OPTIONS": "exitcode=0",  # Python itself leaves memory at its end
        "PYTHONMALLOC": "malloc",
        "PYTHONPATH": str(ROOT / "tests" / "support"),
    }
    command = [sys.executable, "-c", PROGRAM, str(module), str(RUNS), str(SEED)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout == f"{RUNS} statements, no difference\n"
    leaks = [one for one in done.stderr.split("\n\n") if METHODS.search(one)]
    assert not leaks, leaks[0]


def test_it_builds_without_a_warning(tmp_path: Path) -> None:
    for source in SOURCES:
        object_file = str(tmp_path / "o")
        subprocess.run(["gcc", *_flags("-O2"), "-c", str(source), "-o", object_file], check=True)
