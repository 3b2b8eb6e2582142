# SPDX-License-Identifier: Apache-2.0
"""Intervals: which parts shrink with more windows and which do not."""

from __future__ import annotations

import math

import numpy as np
import pytest

from qjoule.model.interval import GroupErrors, edge_sigma_nj


def errors(windows: list[int], x: float = 1.0) -> GroupErrors:
    found = GroupErrors()
    found.grow(1)
    for window in windows:
        found.add_random(0, np.array([window]), np.array([0]), np.array([x]))
    return found


def test_one_window_has_the_phase_error_of_the_update_period() -> None:
    sigma = edge_sigma_nj(
        np.array([1e9]),
        np.array([1.0]),
        np.array([20e6]),
        period_ns=1e6,
        half_width_ns=np.zeros(1),
        unit_nj=0.0,
    )
    found = errors([0], float(sigma[0]))
    relative = math.sqrt(found.random_nj2[0]) / 1e9
    assert relative == pytest.approx(1 / 20 * math.sqrt(1 / 6))


def test_errors_of_adjacent_windows_cancel() -> None:
    assert errors([5, 6, 7, 8]).random_nj2[0] == pytest.approx(2.0)
    assert errors([5, 7, 9, 11]).random_nj2[0] == pytest.approx(8.0)
    batch = GroupErrors()
    batch.grow(2)
    batch.add_random(0, np.array([0, 1, 1, 2]), np.array([0, 0, 1, 0]), np.ones(4))
    assert batch.random_nj2.tolist() == [2.0, 2.0]


def test_the_models_error_does_not_shrink_with_the_number_of_calls() -> None:
    widths = []
    for calls in (1, 100):
        found = GroupErrors()
        found.grow(1)
        for _ in range(calls):
            found.add("model_nj", np.array([0]), np.array([100.0]))
        energy = np.array([2000 * calls])
        low, high = found.ci95(energy)
        widths.append((high[0] - low[0]) / energy[0])
    assert widths[0] == pytest.approx(widths[1], rel=0.01)
    assert widths[0] == pytest.approx(2 * 1.96 * 0.05, rel=0.01)


def test_what_was_lost_is_on_top_of_what_was_seen() -> None:
    found = GroupErrors()
    found.grow(3)
    found.add("loss_nj", np.array([0, 1]), np.array([300.0, 300.0]))
    found.add("model_nj", np.array([1, 2]), np.array([200.0, 200.0]))
    low, high = found.ci95(np.full(3, 10_000))
    assert (low[0], high[0]) == (10_000, 10_600)
    assert low[2] < low[1] < 10_000
    assert high[1] > max(high[0], high[2])
