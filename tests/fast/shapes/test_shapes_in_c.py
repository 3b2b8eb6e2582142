# SPDX-License-Identifier: Apache-2.0
"""The C that makes shapes: by hostile texts, with wrong tables, and under sanitizers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from fuzz.shape_mutations import Case, cases, corpus, digest
from host_library import ROOT
from qjoule.servers import registry
from qjoule.servers.decoding import fingerprint
from qjoule.shapes._shapes import Lexer
from qjoule.shapes.rules import COUNTS, Lexis
from qjoule.shapes.sql import lexer

MUTATIONS, SEED = 3_000, 7
#: Of all that is made of mutated statements. Whoever changes what a shape is writes the new one.
DIGEST, GOLDEN_DIGEST = "f84d5e2982cbd0f6", "1e8202cc7183b8c4"


def test_mutations_are_made_into_what_they_were() -> None:
    """More of them: tests/support/fuzz/shape_mutations.py."""
    assert digest(cases(MUTATIONS, SEED)) == DIGEST


def test_golden_statements_by_all_rules_are_made_into_what_they_were() -> None:
    every = (
        Case(text, lexis, rules, False)
        for lexis in Lexis
        for rules in range(COUNTS[lexis].rules)
        for text in corpus()
    )
    assert digest(every) == GOLDEN_DIGEST


def test_the_seed_of_hashes_shows_in_no_shape() -> None:
    """Texts are numbered by hash tables, whose order must not matter."""
    text = b"select " + b", ".join(b"c%d" % (i % 700) for i in range(2_000)) + b" from tmp_1, tmp_2"
    shape = fingerprint(text, registry.dialect("mysql"))
    assert shape.text.startswith("select c0, c1, ")


_SIZES = {"moves": 16384, "columns": 256, "finals": 128, "modes": 128, "resumed": 5}


def _tables(**changed: object) -> dict[str, object]:
    others = {"emissions": ("",), "safe_text": str, "reserved": "", "seed": 1}
    return {"backtick": True} | {name: bytes(n) for name, n in _SIZES.items()} | others | changed


@pytest.mark.parametrize(
    "wrong",
    [
        {"moves": bytes(16383)},
        {"columns": b"\x40" * 256},
        {"finals": b"\x80" * 128},
        {"modes": b"\x05" * 128},
        {"resumed": b"\x80" * 5},
        {"emissions": ()},
        {"emissions": ("",) * 129},
        {"emissions": ("too long a text",)},
        {"emissions": ("\U0001f600",)},
        {"emissions": (1,)},
    ],
)
def test_wrong_tables_are_refused(wrong: dict[str, object]) -> None:
    Lexer(**_tables())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="automaton"):
        Lexer(**_tables(**wrong))  # type: ignore[arg-type]


def test_a_lexer_that_was_not_made_is_refused() -> None:
    with pytest.raises(RuntimeError, match="never made"):
        Lexer.__new__(Lexer).shape("select", False)
    with pytest.raises(TypeError, match="hints"):
        Lexer(**_tables(hints="none"))  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="already made"):
        lexer(Lexis.BACKTICK).__init__(**_tables())  # type: ignore[arg-type]


def test_an_error_of_the_function_for_safe_text_is_passed_on() -> None:
    def fails(_text: str) -> str:
        raise LookupError("no such text")

    with pytest.raises(LookupError, match="no such text"):
        Lexer(**_tables(safe_text=fails)).tokens("\xe9")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        Lexer(**_tables(safe_text=len)).tokens("\xe9")  # type: ignore[arg-type]


# ---- under the address and undefined behaviour sanitizers --------------------------------------

SOURCES = sorted((ROOT / "attribution" / "shapes").glob("*.c"))
#: What is allocated once, by the module and each lexer, stays until the process ends.
METHODS = re.compile(r"\b(?:reduce|shape|tokens|quoted)_method\b")
#: Takes the place of the module that is installed.
PROGRAM = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("qjoule.shapes._shapes", sys.argv.pop(1))
module = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = module
spec.loader.exec_module(module)
import qjoule.shapes.sql
assert qjoule.shapes.sql.Lexer is module.Lexer
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
    command = [sys.executable, "-c", PROGRAM, str(module), str(MUTATIONS), str(SEED)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout == f"{DIGEST}\n"
    leaks = [report for report in done.stderr.split("\n\n") if METHODS.search(report)]
    assert not leaks, leaks[0]


def test_it_builds_without_a_warning(tmp_path: Path) -> None:
    for source in SOURCES:
        object_file = str(tmp_path / "o")
        subprocess.run(["gcc", *_flags("-O2"), "-c", str(source), "-o", object_file], check=True)
