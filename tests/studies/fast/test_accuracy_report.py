# SPDX-License-Identifier: Apache-2.0
"""The tables of the accuracy bench, and the verdicts on targets."""

from __future__ import annotations

import json

import pytest
from bench.accuracy.outcomes import CaseResult, Outcome
from bench.accuracy.report import Summary, document, render, targets


def result(
    scenario: str, seed: int, qjoule: float, cycles: float | None, *, covered: int = 19
) -> CaseResult:
    own = Outcome(
        "qjoule",
        {"package": qjoule, "dram": 0.2, "queries": 0.3},
        {"package": 20, "dram": 20},
        {"package": covered, "dram": 20},
        {"package": [0.04] * 20, "dram": [0.1] * 20},
    )
    others = [
        Outcome("cpu_time", {"package": 0.2}),
        Outcome("cycles", {} if cycles is None else {"package": cycles}),
    ]
    return CaseResult(scenario, seed, 0.15, (own, *others), "ab" * 32, True if seed == 0 else None)


def summary(**changed: int) -> Summary:
    results = [result("busy", seed, 0.02 + 0.02 * seed, 0.12, **changed) for seed in (0, 1)]
    return Summary([*results, result("no_counters", 0, 0.15, None, **changed)])


def test_means_and_best_of_the_others() -> None:
    made = summary()
    errors = made.errors("qjoule", "busy")
    assert errors is not None and errors.mean == pytest.approx(0.03) and errors.cases == 2
    best = made.best(["cpu_time", "cycles"], "busy")
    assert best is not None and best[0] == "cycles"
    assert made.errors("cycles", "no_counters") is None
    assert made.counted() == ("busy",)


def test_targets_are_beside_the_figures() -> None:
    text = "\n".join(targets(summary()))
    assert "<= 5 %: 3.0 %" in text
    assert "worst scenario <= 11 %: 3.0 % (busy)" in text
    assert "15.0 % against 20.0 %" in text
    assert "3.0 %; each scenario's best of the others 12.0 %, 4.0 times" in text
    assert "in 2 of 2" in text and "not in" not in text


def test_too_narrow_intervals_are_named() -> None:
    text = "\n".join(targets(summary(covered=10)))
    assert "in 0 of 2" in text and "not in busy: 50.0 %" in text


@pytest.mark.parametrize("width", [40, 72, 80, 200])
def test_the_report_fits_its_width(width: int) -> None:
    lines = render(summary(), width)
    assert max(map(len, lines)) <= max(width, 72)
    assert any(line.startswith("cycles") and "n/a" in line for line in lines)
    assert "Run twice: 2 cases, 2 with the same bytes" in lines


def test_one_that_did_not_repeat_is_counted() -> None:
    bad = CaseResult("busy", 0, 0.0, (Outcome("qjoule", {"package": 0.1}),), "00", repeats=False)
    assert "Run twice: 1 cases, 0 with the same bytes" in render(Summary([bad]))


def test_the_document_is_json() -> None:
    made = json.loads(json.dumps(document(summary())))
    assert made["methods"]["qjoule"]["busy"]["coverage"]["share"] == 0.95
    assert made["methods"]["cycles"]["no_counters"]["error"] is None


def test_only_what_was_run_is_shown() -> None:
    assert render(Summary([])) == ["No case was run."]
    peers = CaseResult("busy", 0, 0.0, (Outcome("cycles", {"package": 0.1}),), "00")
    text = "\n".join(render(Summary([peers])))
    assert "10.0/10.0" in text and "intervals" not in text and "conserved" not in text
