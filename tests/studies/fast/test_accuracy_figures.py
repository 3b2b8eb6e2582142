# SPDX-License-Identifier: Apache-2.0
"""Figures over many cases, their tables, the block of README, and results as files."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from bench.accuracy.figures import figures, wilson
from bench.accuracy.outcomes import CaseResult, Outcome
from bench.accuracy.stored import NotResults, load, save


def outcome(method: str, error: float, held: tuple[bool, ...] = ()) -> Outcome:
    shapes = len(held) or 2
    return Outcome(
        method,
        {"package": error},
        {"package": shapes} if held else {},
        {"package": sum(held)} if held else {},
        {"package": [0.04] * shapes} if held else {},
        shape_errors=[error, -2 * error] + [error] * (shapes - 2),
        held=list(held),
        parts={"model": [0.03] * shapes, "windows": [0.01] * shapes} if held else {},
    )


def result(
    scenario: str, seed: int, error: float, family: str = "friendly", **more: Any
) -> CaseResult:
    held = more.pop("held", (True, True, True, False))
    own = [outcome(m, error, held) for m in ("qjoule", "uncalibrated", "qjoule_time")]
    others = [outcome("cpu_time", 0.04), outcome("kepler", 0.2), outcome("cycles", 0.01)]
    return CaseResult(scenario, seed, 0.1, (*own, *others), "ab", None, family, **more)


def test_wilson_is_the_published_interval() -> None:
    assert wilson(95, 100) == pytest.approx((0.8882, 0.9785), abs=1e-4)
    assert wilson(20, 20)[1] == 1.0
    with pytest.raises(ValueError, match="no trials"):
        wilson(0, 0)


def test_figures_of_a_cell() -> None:
    results = [result("a", 0, 0.02), result("a", 1, 0.06, held=(True,) * 4), result("b", 0, 0.03)]
    found = figures(results, "qjoule")
    assert found is not None
    assert found.case_mean == pytest.approx(0.11 / 3) and found.case_worst == 0.06
    assert found.shapes == 12 and found.shape_worst == 0.12
    assert found.held == 10 and found.share == pytest.approx(10 / 12)
    assert found.machine_worst == 0.75 and found.machines_below == 2
    assert (found.worse, found.compared) == (1, 3)
    assert found.parts == {"model": 0.03, "windows": 0.01}
    assert found.dominant == {"model": 1.0, "windows": 0.0}
    assert figures(results, "memory") is None
    others = figures(results, "cycles")
    assert others is not None and others.share is None and others.width is None


def test_results_come_back_from_a_file(tmp_path: Path) -> None:
    results = [result("a", 0, 0.02), result("b", 3, 0.1, "unseen", counted=False, number=2)]
    path = tmp_path / "results.json"
    save(path, results, {"targets": ["x"]})
    assert load(path) == results
    save(tmp_path / "again.json", load(path), {"targets": ["x"]})
    assert (tmp_path / "again.json").read_bytes() == path.read_bytes()


def test_a_file_that_holds_no_results_is_refused(tmp_path: Path) -> None:
    case = asdict(result("a", 0, 0.02))
    cases: list[Any] = [
        {**case, "seed": "0"},
        {**case, "color": 1},
        {**case, "outcomes": [{**case["outcomes"][0], "errors": {"package": "small"}}]},
    ]
    documents: list[Any] = [{"schema": "qjoule.accuracy/1", "cases": [one]} for one in cases]
    documents += [{"schema": "qjoule.accuracy/2", "cases": []}, {"schema": "qjoule.accuracy/1"}]
    for text in (*map(json.dumps, documents), "{", "", "[" * 100_000):
        (tmp_path / "bad.json").write_text(text)
        with pytest.raises(NotResults, match=r"bad\.json"):
            load(tmp_path / "bad.json")
