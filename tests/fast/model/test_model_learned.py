# SPDX-License-Identifier: Apache-2.0
"""The regression over windows: power at rest, groups that draw more than their weight,
confidence.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from model_cases import accounts
from power_cases import FACTORS, IDLE_W, calibrated, known, learned
from qjoule.model.batches import cut, windows
from qjoule.model.coefficients import Coefficients, Weights
from qjoule.model.findings import Findings
from qjoule.model.labels import GroupLabel

LABELS = [GroupLabel("queries", (("fingerprint", f"f{g}"),), f"f{g}") for g in range(4)]


@pytest.mark.parametrize("counters", [True, False])
def test_energy_of_statements_that_draw_more_than_they_weigh(counters: bool) -> None:
    case = known(1, FACTORS, counters=counters)
    found = learned(case).domains["package"].energy_nj
    assert found == pytest.approx(case.energy_nj, rel=0.05)
    by_weight = learned(case, refit=False).domains["package"].energy_nj
    error, before = (np.abs(e - case.energy_nj).sum() for e in (found, by_weight))
    assert error < before / 3


def test_power_at_rest_is_learned_without_a_calibration() -> None:
    model = learned(known(2, FACTORS)).models["package"]
    sigma = float(model.covariance[0, 0]) ** 0.5
    assert abs(model.idle_w[0] - IDLE_W) < 3 * sigma
    assert sigma < 0.1 * IDLE_W


def test_intervals_hold_the_truth_about_as_often_as_they_say() -> None:
    inside = []
    for seed in range(20):
        case = known(100 + seed, FACTORS, windows=400)
        low, high = learned(case, calibrated()).ci95()
        inside += ((low <= case.energy_nj) & (case.energy_nj <= high)).tolist()
    assert np.mean(inside) > 0.88


def test_a_learned_factor_narrows_the_interval() -> None:
    case = known(3, FACTORS)
    widths = [
        np.subtract(*learned(case, calibrated(), refit=r).ci95()[::-1]) for r in (True, False)
    ]
    assert (widths[0] < 0.6 * widths[1]).all()


def test_factors_say_who_draws_more_and_the_rest_is_one() -> None:
    case = known(4, FACTORS)
    ledger = learned(case, calibrated())
    findings = Findings.of(ledger)
    for group, factor in enumerate(FACTORS):
        value, low, high = findings.power_factor(group) or (0.0, 0.0, 0.0)
        assert low <= value <= high
        assert value == pytest.approx(factor, abs=0.12)
    assert findings.notes(LABELS) == []


def test_statements_that_always_run_together_are_named_and_not_invented() -> None:
    # Within the assumed error of weights: the windows carry no information on more.
    case = known(5, (1.1, 0.92, 1.0, 1.1), together=True)
    ledger = learned(case, calibrated())
    findings = Findings.of(ledger)
    assert findings.flags(0) == findings.flags(1) == ("not_separable",)
    assert findings.flags(2) == ()
    assert findings.power_factor(0) is None
    assert findings.notes(LABELS) == [
        "f0 and f1 always ran together: their power cannot be told apart"
    ]
    low, high = ledger.ci95()
    assert ((low <= case.energy_nj) & (case.energy_nj <= high)).all()
    # The sum of what the two drew is known far better than each of them.
    both = int(ledger.domains["package"].energy_nj[:2].sum())
    assert both == pytest.approx(case.energy_nj[:2].sum(), rel=0.03)


def test_where_there_is_nothing_to_learn_the_weights_stay() -> None:
    case = known(6, FACTORS, windows=10)
    one, other = learned(case), learned(case, refit=False)
    assert one.domains["package"].energy_nj.tolist() == other.domains["package"].energy_nj.tolist()


def test_an_account_may_be_fed_in_any_pieces() -> None:
    case = known(7, FACTORS, windows=1700)
    whole = learned(case)
    account = accounts(case.series, (0,), Coefficients()).new()
    at = 0
    for size in (1, 3, 500, 900, 296):
        account.add(cut(case.batch, at, at + size))
        at += size
    assert at == windows(case.batch)
    pieces = account.finish()
    for name, sums in whole.domains.items():
        assert pieces.domains[name].energy_nj.tolist() == sums.energy_nj.tolist()
    assert [a.tolist() for a in pieces.ci95()] == [a.tolist() for a in whole.ci95()]


def test_looking_changes_nothing_and_the_last_look_is_the_end() -> None:
    case = known(8, FACTORS, windows=1700)
    watched = accounts(case.series, (0,), Coefficients()).new()
    for at in range(0, 1700, 425):
        watched.add(cut(case.batch, at, at + 425))
        looked = watched.look()
    ended = watched.finish().domains["package"]
    assert looked.domains["package"].energy_nj.tolist() == ended.energy_nj.tolist()
    assert ended.energy_nj.tolist() == learned(case).domains["package"].energy_nj.tolist()


def test_what_moved_keeps_its_energy() -> None:
    case = known(9, FACTORS, windows=1700)
    account = accounts(case.series, (0,), Coefficients()).new()
    account.add(cut(case.batch, 0, 1600))
    before = account.look().domains["package"].energy_nj
    account.move(1, 0)
    after = account.look().domains["package"].energy_nj
    assert after[1] == 0
    # From then on they are one class, so what is learned of the others changes a little.
    assert int(after.sum()) == pytest.approx(int(before.sum()), rel=1e-3)


def test_a_machine_that_changed_is_learned_anew_and_said_to_have() -> None:
    before, after = known(10, FACTORS, windows=3000), known(11, (0.8, 1.4, 1.0, 0.7), windows=1500)
    account = accounts(before.series, (0,), calibrated()).new()
    account.add(before.batch)
    energy = replace(
        after.batch.energy,
        boundaries_ns=after.batch.energy.boundaries_ns + before.batch.energy.boundaries_ns[-1],
    )
    account.add(replace(after.batch, first=3000, energy=energy))
    ledger = account.finish()
    assert any("package power" in note for note in ledger.notes)
    total = before.energy_nj + after.energy_nj
    assert ledger.domains["package"].energy_nj == pytest.approx(total, rel=0.04)


def test_weights_of_another_domain_are_its_own() -> None:
    known_of = Coefficients(others={"dram": Weights(a=0.0, c=2.0, t=0.5)})
    assert known_of.of("dram").c == 2.0
    assert known_of.of("core").a == 1.0
    assert known_of.of("core", counters=False).t == 1.0
