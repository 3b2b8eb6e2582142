# SPDX-License-Identifier: Apache-2.0
"""The physical test's arithmetic, on a small machine with known truth.

Intervals: which parts shrink with more windows, and the error of an estimated total.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

import attribute_trace as hand
from qjoule.engine.accounts import total_errors
from qjoule.engine.attribute import attribute
from qjoule.model.combine_results import combine_results
from qjoule.model.group_errors import GroupErrors
from qjoule.model.interval import edge_sigma_nj
from qjoule.model.result import Attribution, TracePart
from qjoule.model.same_total import with_total_error, without_total_error
from qjoule.reporters.json_report import forms
from qjoule.trace.meta import DomainInfo, EnergyInfo, Meta
from qjoule.trace.reader import Trace
from qjoule_studies.physical.judgement import LEAST_ROUNDS, Round, Verdict, judge, share_above_rest


@dataclass(frozen=True)
class Machine:
    """Power at rest, power drawn once as soon as anything runs, and each load's on top of
    it; in W.
    """

    rest_w: float
    once_w: float
    a_w: float
    b_w: float
    noise: float = 0.002  #: relative error of a reading, one sigma

    @property
    def share_a(self) -> float:
        return self.a_w / (self.a_w + self.b_w)

    def rounds(self, split_a: float, n: int = 5, seed: int = 1) -> list[Round]:
        """Readings of n rounds; the attribution under test gives A this share of the dynamic
        energy.
        """
        random = np.random.default_rng(seed)
        awake_w = self.rest_w + self.once_w
        rounds = []
        for _ in range(n):
            jitter = 1 + self.noise * random.standard_normal(3)
            rounds.append(
                Round(
                    alone_a_w=(awake_w + self.a_w) * jitter[0],
                    alone_b_w=(awake_w + self.b_w) * jitter[1],
                    together_w=(awake_w + self.a_w + self.b_w) * jitter[2],
                    split_a=split_a * 80.0,
                    split_b=(1 - split_a) * 80.0,
                    alone_a_calls_per_s=20.0,
                    alone_b_calls_per_s=15.0,
                    together_a_calls_per_s=19.8,
                    together_b_calls_per_s=14.7,
                )
            )
        return rounds


def machine(residual: float, share_a: float, **more: float) -> Machine:
    """150 W together, of which `residual` is drawn once; two fifths of that at rest."""
    once = 150.0 * residual
    loads = 150.0 - once
    return Machine(0.4 * once, 0.6 * once, share_a * loads, (1 - share_a) * loads, **more)


def test_intervals_hold_the_truth_about_as_often_as_they_say() -> None:
    truth = machine(0.4, 0.6, noise=0.004)
    held = sum(
        side.low <= truth.share_a <= side.high
        for seed in range(400)
        for side in [judge(truth.rounds(0.6, n=4, seed=seed)).a.physical_share]
    )
    assert 0.91 <= held / 400 <= 0.985


@pytest.mark.parametrize(
    ("rounds", "why"),
    [
        (machine(0.6, 0.5, noise=0.03).rounds(0.5), ""),
        (Machine(30, 20, 40, 0.0).rounds(1.0), "B adds"),
        ([replace(r, together_b_calls_per_s=12.0) for r in machine(0.3, 0.5).rounds(0.5)], "-20%"),
        ([replace(r, alone_a_calls_per_s=0.0) for r in machine(0.3, 0.5).rounds(0.5)], ""),
    ],
    ids=["noise", "adds nothing", "slow each other down", "never ran"],
)
def test_rounds_that_cannot_tell_give_no_verdict(rounds: list[Round], why: str) -> None:
    test = judge(rounds)
    assert test.verdict is Verdict.CANNOT_TELL
    assert why in test.why
    sides = [figure for side in (test.a, test.b) for figure in (side.physical_share, side.error)]
    assert not any(
        map(math.isnan, (x for figure in sides for x in (figure.value, figure.low, figure.high)))
    )


def test_too_few_rounds_and_no_numbers_are_refused() -> None:
    rounds = machine(0.3, 0.5).rounds(0.5, n=LEAST_ROUNDS)
    with pytest.raises(ValueError, match="at least"):
        judge(rounds[1:])
    with pytest.raises(ValueError, match="no number"):
        judge([*rounds, replace(rounds[0], alone_a_w=math.nan)])


@pytest.mark.parametrize("residual", [0.15, 0.6])
def test_the_true_split_agrees_and_one_by_time_differs(residual: float) -> None:
    """The true split is 70:30, by time 50:50. Subtracting rest leans towards that."""
    truth = machine(residual, 0.7)
    test = judge(truth.rounds(split_a=0.7))
    assert test.verdict is Verdict.AGREES, test.why
    assert test.residual_w.low < truth.rest_w + truth.once_w < test.residual_w.high
    assert test.a.adds_w.value == pytest.approx(truth.a_w, rel=0.02)
    assert test.a.physical_share.low < 0.7 < test.a.physical_share.high
    assert share_above_rest(test, truth.rest_w) < 0.7 - 0.02
    assert judge(truth.rounds(split_a=0.5)).verdict is Verdict.DIFFERS


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
    results = (small, with_total_error(small), with_total_error(unknown))
    widths = [float(np.ptp(result.rows[0].energy_nj_ci95)) for result in results]
    assert widths == sorted(set(widths))
    # An estimate shows nothing of the kind of work, also of who ran alone.
    assert widths[0] >= 2 * 0.299 * small.rows[0].energy_nj
    for form, row, wide in zip(forms(small), small.rows, results[1].rows, strict=True):
        assert form.j_per_call_ci95 == wide.j_per_call_ci95
        assert without_total_error(form).j_per_call_ci95 == row.j_per_call_ci95
    sure, unsure = (TracePart(str(id(result)), result) for result in (small, unknown))
    assert not combine_results([sure, sure]).energy_source.error_in_rows
    assert combine_results([sure, unsure]).energy_source.error_in_rows, (
        "their errors are not the same"
    )
