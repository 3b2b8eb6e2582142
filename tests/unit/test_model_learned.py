"""What is learned from windows: power at rest, who draws more than its weight, and how surely."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from power_cases import IDLE_W, SHARED_W, Known, known, with_energy
from qjoule.model.account import Account, cut, windows
from qjoule.model.coefficients import Coefficients, PowerInterval, Weights
from qjoule.model.counters import Cause, Series
from qjoule.model.findings import Findings
from qjoule.model.labels import GroupLabel
from qjoule.model.ledger import Ledger

FACTORS = (1.25, 0.8, 1.0, 1.1)
LABELS = [GroupLabel("queries", (("fingerprint", f"f{g}"),), f"f{g}") for g in range(4)]


def learned(case: Known, coefficients: Coefficients | None = None, *, refit: bool = True) -> Ledger:
    account = Account(case.series, (0,), coefficients or Coefficients(), refit=refit)
    account.add(case.batch)
    return account.finish()


def calibrated(**changed: object) -> Coefficients:
    """What a calibration would know of the machine of `power_cases`."""
    plain: dict[str, object] = {"a": 1.5, "b": 0.4, "c": 30.0, "calibrated": True}
    covariance = np.diag([0.05, 0.02, 2.0, 0.01, 0.01, 0.05, 0.01]) ** 2
    plain["covariance"] = tuple(tuple(map(float, row)) for row in covariance)
    plain["idle_w"] = {(0, "package"): PowerInterval(IDLE_W, IDLE_W - 0.4, IDLE_W + 0.4)}
    plain["shared_w"] = {(0, "package"): SHARED_W}
    plain["shared_error_w"] = {(0, "package"): 0.5}
    return Coefficients(**{**plain, **changed})  # type: ignore[arg-type]


@pytest.mark.parametrize("counters", [True, False])
def test_energy_of_statements_that_draw_more_than_they_weigh(counters: bool) -> None:
    case = known(1, FACTORS, counters=counters)
    found = learned(case).domains["package"].energy_nj
    assert found == pytest.approx(case.energy_nj, rel=0.03)
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
    # Within what weights are believed to be good for: no more can be asked of what is not told.
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
    # What the two drew together is known far better than what each of them did.
    both = int(ledger.domains["package"].energy_nj[:2].sum())
    assert both == pytest.approx(case.energy_nj[:2].sum(), rel=0.03)


def test_where_there_is_nothing_to_learn_the_weights_stay() -> None:
    case = known(6, FACTORS, windows=10)
    one, other = learned(case), learned(case, refit=False)
    assert one.domains["package"].energy_nj.tolist() == other.domains["package"].energy_nj.tolist()


def test_an_account_may_be_fed_in_any_pieces() -> None:
    case = known(7, FACTORS, windows=1700)
    whole = learned(case)
    account = Account(case.series, (0,), Coefficients())
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
    watched = Account(case.series, (0,), Coefficients())
    for at in range(0, 1700, 425):
        watched.add(cut(case.batch, at, at + 425))
        looked = watched.look()
    ended = watched.finish().domains["package"]
    assert looked.domains["package"].energy_nj.tolist() == ended.energy_nj.tolist()
    assert ended.energy_nj.tolist() == learned(case).domains["package"].energy_nj.tolist()


def test_what_moved_keeps_its_energy() -> None:
    case = known(9, FACTORS, windows=1700)
    account = Account(case.series, (0,), Coefficients())
    account.add(cut(case.batch, 0, 1600))
    before = account.look().domains["package"].energy_nj
    account.move(1, 0)
    after = account.look().domains["package"].energy_nj
    assert after[1] == 0
    # They are one class from then on, so what is learned of the others moves a little.
    assert int(after.sum()) == pytest.approx(int(before.sum()), rel=1e-3)


def test_a_machine_that_changed_is_learned_anew_and_said_to_have() -> None:
    before, after = known(10, FACTORS, windows=3000), known(11, (0.8, 1.4, 1.0, 0.7), windows=1500)
    account = Account(before.series, (0,), calibrated())
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


# ---- bad inputs -------------------------------------------------------------------------------


def check(ledger: Ledger, measured: int) -> None:
    """Every figure is a number, none is negative, and all of them add up."""
    sums = ledger.domains["package"]
    low, high = ledger.ci95()
    assert np.isfinite(low).all()
    assert np.isfinite(high).all()
    assert (low >= 0).all()
    assert (low <= sums.energy_nj).all()
    assert (sums.energy_nj <= high).all()
    assert int(sums.energy_nj.sum()) + sums.idle_nj + sums.residual_nj == measured


def total(case: Known) -> int:
    return int(case.batch.energy.energy_nj.sum())


def test_counters_that_stop_or_are_missing_on_some_cpus() -> None:
    case = known(12, FACTORS)
    entries = case.batch.entries
    for broken in (entries.window > 700, entries.group == 2, entries.window % 3 == 0):
        counted = np.where(broken[:, None], 0.0, entries.counted_ns)
        counters = np.where(broken[:, None], 0.0, entries.counters)
        batch = replace(case.batch, entries=replace(entries, counters=counters, counted_ns=counted))
        ledger = learned(replace(case, batch=batch))
        check(ledger, total(case))
        assert ledger.domains["package"].energy_nj == pytest.approx(case.energy_nj, rel=0.25)


def test_idle_power_above_what_was_measured() -> None:
    case = known(13, FACTORS)
    much = {(0, "package"): PowerInterval(500.0, 499.0, 501.0)}
    for refit in (True, False):
        check(learned(case, calibrated(idle_w=much), refit=refit), total(case))


def test_windows_with_energy_and_without_any_event() -> None:
    case = known(14, FACTORS)
    entries = replace(case.batch.entries, counters=np.zeros_like(case.batch.entries.counters))
    check(learned(replace(case, batch=replace(case.batch, entries=entries))), total(case))


def test_nobody_ever_runs_and_one_alone_always_runs() -> None:
    case = known(15, FACTORS)
    nobody = replace(case.batch, entries=case.batch.entries.take(slice(0, 0)))
    check(learned(replace(case, batch=nobody)), total(case))
    alone = known(16, (1.3,))
    ledger = learned(alone, calibrated())
    check(ledger, total(alone))
    assert ledger.domains["package"].energy_nj == pytest.approx(alone.energy_nj, rel=0.03)


def test_energies_that_jump_and_a_package_that_goes_away() -> None:
    case = known(17, FACTORS)
    energy = case.batch.energy.energy_nj.copy()
    energy[0, ::97] *= 40
    energy[0, 5::97] = 0
    ledger = learned(replace(case, batch=with_energy(case, energy)), calibrated())
    check(ledger, int(energy.sum()))
    cause = case.batch.energy.cause.copy()
    cause[0, 600:] = Cause.MISSING
    gone = replace(case.batch, energy=replace(case.batch.energy, cause=cause))
    ledger = learned(replace(case, batch=gone), calibrated())
    check(ledger, int(case.batch.energy.energy_nj[0, :600].sum()))
    assert ledger.causes["missing"] == 900


def test_dram_of_thirty_times_its_power_is_not_believed() -> None:
    case = known(18, FACTORS)
    series = (*case.series, Series(0, "dram", 2.0**-14, 2**32))
    package = case.batch.energy.energy_nj[0]

    def both(dram: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> Ledger:
        energy = replace(
            case.batch.energy,
            series=series,
            energy_nj=np.stack([package, dram]),
            cause=np.repeat(case.batch.energy.cause, 2, axis=0),
            half_width_ns=np.repeat(case.batch.energy.half_width_ns, 2, axis=0),
        )
        batch = replace(case.batch, energy=energy)
        return learned(Known(batch, series, case.energy_nj))

    sane, wrong = both(package // 5), both(package // 5 * 30)
    assert sane.models["dram"].learned
    assert not sane.notes
    assert not wrong.models["dram"].learned
    assert "dram implausible against package" in wrong.notes
    plain = sane.domains["package"].energy_nj.tolist()
    assert wrong.domains["package"].energy_nj.tolist() == plain


def test_multiplexed_counters_widen_the_interval() -> None:
    case = known(19, FACTORS)
    entries = case.batch.entries
    half = replace(entries, scaled_ns=(entries.cpu_ns * 0.5).astype(np.float64))
    plain = learned(case, calibrated())
    ledger = learned(replace(case, batch=replace(case.batch, entries=half)), calibrated())
    assert (np.subtract(*ledger.ci95()[::-1]) > np.subtract(*plain.ci95()[::-1])).all()


def test_weights_of_another_domain_are_its_own() -> None:
    known_of = Coefficients(others={"dram": Weights(0.0, 0.0, 2.0, t=0.5)})
    assert known_of.of("dram").c == 2.0
    assert known_of.of("core").a == 1.0
    assert known_of.of("core", counters=False).t == 1.0
