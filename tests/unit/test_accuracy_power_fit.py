"""Power of a real server: the fit is robust, held out, and as good as is claimed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from bench.accuracy.power_fit import (
    GRID,
    Node,
    PowerError,
    error,
    load,
    of_columns,
    render,
    robust_fit,
    thirds,
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
    """Other power in the last third changes what is measured of it, but not the model."""
    node = load()
    fit, test = thirds(len(node))
    assert not set(fit) & set(test) and len(fit) == 1468
    power = node.power_w["package"].copy()
    power[test] += 1000
    other = replace(node, power_w={"package": power})
    change = error(other, "package", fit, test, of_columns("cycles"))
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
        best = error(node, domain, fit, test, GRID[6])
        assert best < 0.1 < others < error(node, domain, fit, test, of_columns("cycles"))


def test_missing_cpu_time_makes_no_frequency() -> None:
    node = Node(np.array([13.0]), *(np.array([1.0]),) * 2, np.array([0.0]), {})
    assert np.isfinite(GRID[0](node)).all()


def test_the_table_names_the_target() -> None:
    lines = render([PowerError("qjoule", "package", 0.087, 0.084), PowerError("x", "dram", 1, 1)])
    assert any("8.7" in line and "8.4" in line for line in lines)
    assert lines[-1] == "target of qjoule: 9 % or less in both"
