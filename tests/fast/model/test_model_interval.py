# SPDX-License-Identifier: Apache-2.0
"""Intervals: which parts shrink with more windows, and the error of an estimated total."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

import attribute_trace as hand
from qjoule.engine.accounts import total_errors
from qjoule.engine.attribute import attribute
from qjoule.model.combine_results import combine_results
from qjoule.model.interval import GroupErrors, edge_sigma_nj
from qjoule.model.result import Attribution, TracePart
from qjoule.model.same_total import with_total_error, without_total_error
from qjoule.reporters.json_report import forms
from qjoule.trace.meta import DomainInfo, EnergyInfo, Meta
from qjoule.trace.reader import Trace


def errors(windows: list[int], x: float = 1.0) -> GroupErrors:
    sums = GroupErrors()
    sums.grow(1)
    for window in windows:
        sums.add_random(0, np.array([window]), np.array([0]), np.array([x]))
    return sums


def test_one_window_has_the_phase_error_of_the_update_period() -> None:
    sigma = edge_sigma_nj(
        np.array([1e9]),
        np.array([1.0]),
        np.array([20e6]),
        period_ns=1e6,
        half_width_ns=np.zeros(1),
        unit_nj=0.0,
    )
    sums = errors([0], float(sigma[0]))
    relative = math.sqrt(sums.random_nj2[0]) / 1e9
    assert relative == pytest.approx(1 / 20 * math.sqrt(1 / 6))


def test_errors_of_adjacent_windows_cancel() -> None:
    assert errors([5, 6, 7, 8]).random_nj2[0] == pytest.approx(2.0)
    assert errors([5, 7, 9, 11]).random_nj2[0] == pytest.approx(8.0)


def test_the_models_error_does_not_shrink_with_the_number_of_calls() -> None:
    widths = []
    for calls in (1, 100):
        sums = GroupErrors()
        sums.grow(1)
        for _ in range(calls):
            sums.add("model_nj", np.array([0]), np.array([100.0]))
        energy = np.array([2000 * calls])
        low, high = sums.ci95(energy)
        widths.append((high[0] - low[0]) / energy[0])
    assert widths[0] == pytest.approx(widths[1], rel=0.01)
    assert widths[0] == pytest.approx(2 * 1.96 * 0.05, rel=0.01)


ESTIMATED = EnergyInfo("estimated", "estimated", "a power curve")


def estimated(folder: Path, error: float | None) -> Attribution:
    meta = {
        "energy": ESTIMATED,
        "domains": (DomainInfo(0, "package", 1e-9, idle_w=25.0, error=error),),
    }
    return attribute(Trace(hand.write(folder, meta=meta)))


def test_a_hostile_error_is_no_statement() -> None:
    for error in (-0.1, 0.0, math.nan, math.inf, 1e9):
        meta = Meta(energy=ESTIMATED, domains=(DomainInfo(0, "package", 1e-9, error=error),))
        assert total_errors(meta) == {}
    two = tuple(DomainInfo(n, "package", 1e-9, error=e) for n, e in ((0, 0.3), (1, 0.4)))
    assert total_errors(Meta(energy=ESTIMATED, domains=two)) == {"package": 0.4}
    counted = Meta(energy=EnergyInfo("powercap", "measured"), domains=two)
    assert total_errors(counted) == {}


def test_the_error_of_the_total_is_noted_and_in_rows_only_if_asked_for(tmp_path: Path) -> None:
    small, unknown = estimated(tmp_path / "a", 0.2), estimated(tmp_path / "b", None)
    assert (small.energy_source.total_error, unknown.energy_source.total_error) == (0.2, 0.5)
    assert "the estimated total is taken to be within ±20%" in small.model.notes
    assert small.main.parts_nj["idle"] == 2 * 500_000_000
    assert (small.rows, small.fixed) == (unknown.rows, unknown.fixed)
    made = (small, with_total_error(small), with_total_error(unknown))
    widths = [float(np.ptp(one.rows[0].energy_nj_ci95)) for one in made]
    assert widths == sorted(set(widths))
    # An estimate shows nothing of the kind of work, also of who ran alone.
    assert widths[0] >= 2 * 0.299 * small.rows[0].energy_nj
    for form, row, wide in zip(forms(small), small.rows, made[1].rows, strict=True):
        assert form.j_per_call_ci95 == wide.j_per_call_ci95
        assert without_total_error(form).j_per_call_ci95 == row.j_per_call_ci95
    sure, unsure = (TracePart(str(id(one)), one) for one in (small, unknown))
    assert not combine_results([sure, sure]).energy_source.error_in_rows
    assert combine_results([sure, unsure]).energy_source.error_in_rows, (
        "their errors are not the same"
    )
