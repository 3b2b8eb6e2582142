# SPDX-License-Identifier: Apache-2.0
"""The list of energy sources is the tracer's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from click import BadParameter, Command, Context

from qjoule.commands.options import known_source
from qjoule.machine import sources

CONTEXT = Context(Command("record"))


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    sources.tracer_sources.cache_clear()
    yield
    sources.tracer_sources.cache_clear()


def tracer_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, does: str) -> None:
    program = tmp_path / "qjoule tracer"
    program.write_text(f"#!/bin/sh\n{does}\n")
    program.chmod(0o755)
    monkeypatch.setattr(sources, "installed_program", lambda _name: program)


def test_what_the_tracer_lists_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = r"printf 'sun\tmeasured\tauto\tsun[:ROOT]\nmoon\tsimulated\tnamed\tmoon:FILE\n'"
    tracer_that(tmp_path, monkeypatch, line)
    assert sources.tracer_sources() == (
        sources.Source("sun", "measured", True, "sun[:ROOT]"),
        sources.Source("moon", "simulated", False, "moon:FILE"),
    )
    for source in ("auto", "sun", "moon:x", None):
        assert known_source(CONTEXT, None, source) == source  # type: ignore[arg-type]
    with pytest.raises(BadParameter, match="'stars' is none of auto, sun, moon"):
        known_source(CONTEXT, None, "stars")  # type: ignore[arg-type]


def test_without_a_tracer_that_answers_any_will_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracer_that(tmp_path, monkeypatch, "exit 3")
    assert sources.tracer_sources() == ()
    assert known_source(CONTEXT, None, "stars") == "stars"  # type: ignore[arg-type]
