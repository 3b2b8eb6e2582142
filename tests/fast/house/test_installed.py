# SPDX-License-Identifier: Apache-2.0
"""Where programs of this installation are found, and what `--version` says of them."""

from __future__ import annotations

from pathlib import Path

import pytest

import qjoule
import qjoule_drivers
from qjoule import installed, versions
from qjoule.contract import CONTRACT_VERSION
from qjoule.errors import QjouleError

TRACER = "qjoule-tracer"


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Two places, the first one preferred; nothing is in them or on PATH."""
    first, second = tmp_path / "programs", tmp_path / "bin"
    first.mkdir()
    second.mkdir()
    monkeypatch.setattr(installed, "PLACES", (first, second))
    monkeypatch.setenv("PATH", str(tmp_path))
    return first, second


def _tracer(directory: Path, said: str) -> Path:
    program = directory / TRACER
    program.write_text(f"#!/bin/sh\n{said}\n")
    program.chmod(0o755)
    return program


def test_the_package_comes_before_what_is_beside_python(places: tuple[Path, Path]) -> None:
    second = _tracer(places[1], ":")
    assert installed.installed_program(TRACER) == second
    first = _tracer(places[0], ":")
    assert installed.installed_program(TRACER) == first


def test_files_that_belong_together_are_of_one_place(places: tuple[Path, Path]) -> None:
    (places[0] / "a").touch()
    (places[1] / "a").touch()
    assert installed.installed_files("a", "b") is None
    (places[1] / "b").touch()
    assert installed.installed_files("a", "b") == (places[1] / "a", places[1] / "b")


def test_what_is_nowhere_is_an_error_that_says_what_to_do(places: tuple[Path, Path]) -> None:
    assert not list(places[0].iterdir())
    with pytest.raises(QjouleError, match="qjoule-tracer is not installed beside"):
        installed.installed_program(TRACER)


@pytest.mark.parametrize(
    ("said", "tracer", "contract"),
    [
        (f"echo qjoule-tracer 9.1; echo contract {CONTRACT_VERSION}", "9.1 (", ""),
        ("echo qjoule-tracer 9.1; echo contract 7", "9.1 (", "but the tracer speaks 7"),
        ("exit 2", "unknown: ", ""),
        ("echo hello", "unknown: ", ""),
        (None, "not installed", ""),
    ],
)
def test_versions_of_all_parts(
    places: tuple[Path, Path], said: str | None, tracer: str, contract: str
) -> None:
    if said is not None:
        _tracer(places[0], said)
    of_qjoule, of_tracer, of_contract = versions.versions().splitlines()
    assert of_qjoule == f"qjoule {qjoule.__version__}"
    assert of_tracer.startswith(f"tracer {tracer}")
    assert of_contract.startswith(f"event contract {CONTRACT_VERSION}")
    assert contract in of_contract
    assert ("but" in of_contract) == bool(contract)


def test_both_distributions_have_one_version() -> None:
    assert qjoule.__version__ == qjoule_drivers.__version__
