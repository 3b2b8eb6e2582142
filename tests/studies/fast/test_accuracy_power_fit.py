# SPDX-License-Identifier: Apache-2.0
"""The power fit of a real server is robust, held out, and as accurate as claimed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from bench.accuracy.power_fit import (
    GRID,
    Node,
    PowerError,
    best,
    error,
    least_squares,
    load,
    of_columns,
    per_frequency,
    render,
    robust_fit,
    thirds,
    window_model,
)


def test_the_recording_is_whole() -> None:
    node = load()
    assert len(node) == 2202
    assert node.power_w["package"].mean() == pytest.approx(85.7, abs=0.1)
    assert 25 < node.cpus.max() < 32 and 50 < node.cycles.max() < 60


def test_a_missing_recording_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="nothing"):
        load(tmp_path / "nothing.csv")


def test_outliers_do_not_move_the_fit() -> None:
    x = np.column_stack([np.ones(200), np.linspace(0, 9, 200)])
    y = x @ [30.0, 5.0] + np.random.default_rng(0).normal(0, 0.1, 200)
    y[::15] += 80
    assert robust_fit(x, y) == pytest.approx([30, 5], rel=0.02)


def test_coefficients_are_never_negative() -> None:
    x = np.column_stack([np.ones(50), np.arange(50.0)])
    assert (robust_fit(x, 100 - x[:, 1]) >= 0).all()


def test_the_last_third_has_no_part_in_the_fit() -> None:
    """Different power in the last third changes the measured error, but not the model."""
    node = load()
    fit, test = thirds(len(node))
    assert not set(fit) & set(test) and len(fit) == 1468
    power = node.power_w["package"].copy()
    power[test] += 1000
    other = replace(node, power_w={"package": power})
    change = error(other, "package", fit, test, least_squares(of_columns("cycles")))
    assert change == pytest.approx(
        1 - (power[test] - 1000 + _miss(node, fit, test)).mean() / power[test].mean(), abs=1e-9
    )


def _miss(node: Node, fit: np.ndarray, test: np.ndarray) -> np.ndarray:
    x, power = of_columns("cycles")(node), node.power_w["package"]
    return np.asarray(x[test] @ robust_fit(x[fit], power[fit]) - power[test])


def test_the_physical_features_reach_the_target() -> None:
    """One member of the grid, without any choice: the bench chooses by cross-validation."""
    node = load()
    fit, test = thirds(len(node))
    for domain, others in (("package", 0.12), ("dram", 0.14)):
        best = error(node, domain, fit, test, least_squares(GRID[6]))
        plain = error(node, domain, fit, test, least_squares(of_columns("cycles")))
        assert best < 0.1 < others < plain


def test_the_window_model_follows_the_load() -> None:
    node = load()
    fit, test = thirds(len(node))
    for domain in ("package", "dram"):
        predicted = window_model(0.1)(node, domain, fit, test)
        assert np.corrcoef(predicted, node.power_w[domain][test])[0, 1] > 0.8


def test_choosing_sees_only_the_rows_to_fit() -> None:
    """With different power in the last third, the same model is chosen, with the same score."""
    node = load()
    fit, test = thirds(len(node))
    power = node.power_w["package"].copy()
    power[test] = power[test][::-1]
    other = replace(node, power_w={"package": power})
    some = [least_squares(of_columns("cpus")), least_squares(of_columns("cycles"))]
    chosen = [best(one, "package", fit, some) for one in (node, other)]
    assert chosen[0] is chosen[1] is some[1]


def test_a_model_per_frequency_tells_frequencies_apart() -> None:
    """At 3 GHz a cycle costs twice what it does at 2 GHz: one model for both cannot
    express that.
    """
    random = np.random.default_rng(3)
    cpus, ghz = random.uniform(1, 16, 600), np.repeat([2.05, 3.05], 300)
    power = 20 + cpus * ghz * np.where(ghz > 2.5, 4.0, 2.0)
    cycles = cpus * ghz
    order = random.permutation(600)
    instructions = cycles * random.uniform(0.5, 2, 600)
    cycles, instructions, cpus = cycles[order], instructions[order], cpus[order]
    node = Node(cycles, instructions, cycles, cpus, {"package": power[order]})
    fit, test = thirds(600)
    together = least_squares(of_columns("cycles", "instructions", "misses"))
    assert error(node, "package", fit, test, per_frequency) < 1e-3
    assert error(node, "package", fit, test, together) > 0.05


def test_the_window_model_finds_a_machine_of_its_own_kind() -> None:
    random = np.random.default_rng(2)
    cycles = np.repeat(random.uniform(0, 40, 60), 10)
    node = Node(cycles, cycles * random.uniform(0.5, 2), cycles * 0.1, cycles / 3, {})
    node.power_w["package"] = 30 + 10 * (1 - np.exp(-cycles / 3)) + 2.5 * cycles
    node.power_w["package"] += random.normal(0, 0.3, len(cycles))
    fit, test = thirds(len(cycles))
    assert error(node, "package", fit, test, window_model(0.1)) < 0.02


def test_missing_cpu_time_makes_no_frequency() -> None:
    node = Node(np.array([13.0]), *(np.array([1.0]),) * 2, np.array([0.0]), {})
    assert np.isfinite(GRID[0](node)).all()


def test_the_table_names_the_target() -> None:
    lines = render([PowerError("qjoule", "package", 0.087, 0.084), PowerError("x", "dram", 1, 1)])
    assert any("8.7" in line and "8.4" in line for line in lines)
    assert lines[-1] == "target of qjoule: 9 % or less in both"
