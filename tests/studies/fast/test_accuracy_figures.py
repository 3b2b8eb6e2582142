# SPDX-License-Identifier: Apache-2.0
"""Figures over many cases, their tables, the block of README, and results as files."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from bench.accuracy import family_report, goals
from bench.accuracy.figures import figures, share_by_machine, wilson
from bench.accuracy.outcomes import HISTORY, CaseResult, Outcome
from bench.accuracy.report import Summary, render, targets
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


def test_an_interval_by_machine_is_wider_where_shapes_fail_together() -> None:
    together = share_by_machine([10, 10, 10, 0], [10] * 4)
    apart = share_by_machine([8, 7, 8, 7], [10] * 4)
    assert together[0] == pytest.approx(wilson(3, 4)[0]) and together[1] == wilson(3, 4)[1]
    assert apart == pytest.approx(wilson(30, 40))
    assert share_by_machine([5], [5]) == wilson(5, 5)
    with pytest.raises(ValueError, match="no trials"):
        share_by_machine([], [])


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


def test_tables_name_every_family_and_keep_histories_apart() -> None:
    results = [
        result("a", 0, 0.02),
        result("a", 0, 0.2, "wake_tails"),
        result("b", 0, 0.9, counted=False),
        result(HISTORY, 0, 0.5, number=1),
    ]
    lines = family_report.render(results)
    assert max(map(len, lines)) <= 105
    text = "\n".join(lines)
    assert "wake_tails" in text and "one machine on several days, not calibrated, each" in text
    with_counters = lines[lines.index("calibrated, with counters (qjoule)") + 2]
    assert with_counters.split()[:2] == ["friendly", "2.0/2.0"]
    by_time = lines[lines.index("calibrated, by time (qjoule_time)") + 2]
    assert by_time.split()[1] == "46.0/90.0"


def test_the_readme_block_has_its_markers_and_no_date() -> None:
    block = goals.readme_block([result("a", seed, 0.02) for seed in (0, 1)])
    assert block.startswith(goals.BEGIN) and block.endswith(goals.END)
    assert "| friendly | 2 | **2.0 %** (≤ 1.2) | 2.0 % (≤ 5.0) |" in block
    assert "Seeds 0 to 1 of 1 scenarios, 2 cases" in block
    assert "cpu_time" in block
    assert goals.readme_block([result("a", seed, 0.02) for seed in (0, 1)]) == block


def test_results_come_back_from_a_file(tmp_path: Path) -> None:
    results = [result("a", 0, 0.02), result("b", 3, 0.1, "unseen", counted=False, number=2)]
    path = tmp_path / "results.json"
    save(path, results, {"targets": ["x"]})
    assert load(path) == results
    save(tmp_path / "again.json", load(path), {"targets": ["x"]})
    assert (tmp_path / "again.json").read_bytes() == path.read_bytes()


def bad_cases() -> list[tuple[str, str]]:
    case = asdict(result("a", 0, 0.02))
    first = case["outcomes"][0]
    changed: list[dict[str, Any]] = [
        {**case, "seed": "0"},
        {**case, "color": 1},
        {key: value for key, value in case.items() if key != "scenario"},
        {**case, "outcomes": [{**first, "errors": {"package": "small"}}]},
    ]
    documents: list[Any] = [{"schema": "qjoule.accuracy/1", "cases": [one]} for one in changed]
    documents += [{"schema": "qjoule.accuracy/2", "cases": []}, {"schema": "qjoule.accuracy/1"}]
    texts = [json.dumps(document) for document in documents] + ["{", "", "[" * 100_000]
    return [(str(number), text) for number, text in enumerate(texts)]


@pytest.mark.parametrize(("number", "text"), bad_cases())
def test_a_file_that_holds_no_results_is_refused(tmp_path: Path, number: str, text: str) -> None:
    path = tmp_path / f"{number}.json"
    path.write_text(text)
    with pytest.raises(NotResults, match=path.name):
        load(path)


def scored(scenario: str, seed: int, qjoule: float, cycles: float | None) -> CaseResult:
    own = Outcome(
        "qjoule",
        {"package": qjoule, "dram": 0.2, "queries": 0.3},
        {"package": 20, "dram": 20},
        {"package": 19, "dram": 20},
        {"package": [0.04] * 20, "dram": [0.1] * 20},
    )
    others = [
        Outcome("cpu_time", {"package": 0.2}),
        Outcome("cycles", {} if cycles is None else {"package": cycles}),
    ]
    return CaseResult(scenario, seed, 0.15, (own, *others), "ab" * 32, True if seed == 0 else None)


def summary() -> Summary:
    results = [scored("busy", seed, 0.02 + 0.02 * seed, 0.12) for seed in (0, 1)]
    return Summary([*results, scored("no_counters", 0, 0.15, None)])


def test_targets_are_beside_the_figures_of_a_report_that_fits() -> None:
    text = "\n".join(targets(summary()))
    assert "<= 5 %: 3.0 %" in text
    assert "worst scenario <= 11 %: 3.0 % (busy)" in text
    assert "15.0 % against 20.0 %" in text
    assert "3.0 %; each scenario's best of the others 12.0 %, 4.0 times" in text
    assert "in 2 of 2" in text and "not in" not in text

    for width in (40, 80):
        lines = render(summary(), width)
        assert max(map(len, lines)) <= max(width, 72)
        assert any(line.startswith("cycles") and "n/a" in line for line in lines)
        assert "Run twice: 2 cases, 2 with the same bytes" in lines
