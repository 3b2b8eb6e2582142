# SPDX-License-Identifier: Apache-2.0
"""Windows with false data: counters stop, energies jump, packages vanish, clocks are wrong."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from model_cases import accounts
from power_cases import FACTORS, SHARED_W, Known, calibrated, known, learned, with_energy
from qjoule.model import features
from qjoule.model.batches import windows
from qjoule.model.coefficients import Coefficients, PowerInterval
from qjoule.model.energy import Cause, Series
from qjoule.model.fit.learner import Learner
from qjoule.model.ledger import Ledger


def check(ledger: Ledger, measured: int) -> None:
    """Checks that every figure is a number, none is negative, and all of them add up."""
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


def test_windows_with_more_counts_than_a_core_can_make_are_not_learned_from() -> None:
    case = known(12, FACTORS)
    entries = case.batch.entries
    wild = entries.window % 5 == 0
    for wrong in (1e12, 1e15, 1e18):
        counters = entries.counters + wrong * wild[:, None]
        batch = replace(case.batch, entries=replace(entries, counters=counters))
        ledger = learned(replace(case, batch=batch))
        check(ledger, total(case))
        energies = case.batch.energy
        without = energies.cause.copy()
        without[0, entries.window[wild]] = Cause.GAP
        gap = replace(case.batch, energy=replace(energies, cause=without))
        of_gaps = learned(replace(case, batch=gap)).models["package"]
        assert (ledger.models["package"].theta == of_gaps.theta).all()


def test_a_block_whose_numbers_cannot_be_solved_teaches_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(features, "MAX_PER_NS", np.full(3, np.inf))
    case = known(12, FACTORS, windows=64)
    entries = replace(case.batch.entries, counters=case.batch.entries.counters + 1e200)
    batch = replace(case.batch, entries=entries)
    learner, fresh = (Learner(case.series, (0,), calibrated(), 1_000_000) for _ in range(2))
    with np.errstate(all="ignore"):
        assert learner.learn([batch], keep=True) == {}
        assert learner.notes == {"package power makes no sense: nothing learned": 1}
        model = learner.learn([case.batch], keep=True)["package"]
        assert learner.learn([batch], keep=True) == {"package": model}
    assert (model.theta == fresh.learn([case.batch], keep=True)["package"].theta).all()


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


def both_packages(one: Known, other: Known) -> Known:
    """Two packages side by side; groups of the second are numbered after those of the first."""
    a, b = one.batch, other.batch
    count, groups = len(a.idle_ns), len(one.energy_nj)
    moved = replace(b.entries, package=b.entries.package + 1, group=b.entries.group + groups)
    columns = {
        f.name: np.concatenate([getattr(a.entries, f.name), getattr(moved, f.name)])
        for f in fields(a.entries)
    }
    order = np.lexsort((columns["group"], columns["package"], columns["window"]))
    series = (*one.series, Series(1, "package", 2.0**-14, 2**32))
    energy = replace(
        a.energy,
        series=series,
        energy_nj=np.concatenate([a.energy.energy_nj, b.energy.energy_nj]),
        cause=np.concatenate([a.energy.cause, b.energy.cause]),
        half_width_ns=np.zeros((2, count), np.int64),
    )
    times: dict[str, Any] = {
        name: np.hstack([getattr(a, name), getattr(b, name)])
        for name in ("idle_ns", "lost_ns", "active_ns", "core_ns")
    }
    entries = replace(a.entries, **{name: values[order] for name, values in columns.items()})
    batch = replace(a, energy=energy, packages=(0, 1), entries=entries, **times)
    return Known(batch, series, np.concatenate([one.energy_nj, other.energy_nj]))


def test_a_package_that_goes_offline_leaves_the_other_alone() -> None:
    case = both_packages(known(20, FACTORS), known(21, (1.0, 1.0)))
    batch, off = case.batch, 600
    cause = batch.energy.cause.copy()
    cause[1, off:] = Cause.MISSING
    gone_ns = [values.copy() for values in (batch.idle_ns, batch.active_ns, batch.core_ns)]
    for values in gone_ns:
        values[off:, 1] = 0
    idle_ns, active_ns, core_ns = gone_ns
    stays = (batch.entries.package == 0) | (batch.entries.window < off)
    energy_nj = np.where(cause == Cause.MISSING, 0, batch.energy.energy_nj)
    gone = replace(
        batch,
        energy=replace(batch.energy, cause=cause, energy_nj=energy_nj),
        entries=batch.entries.take(stays),
        idle_ns=idle_ns,
        active_ns=active_ns,
        core_ns=core_ns,
    )
    both = {(package, "package"): SHARED_W for package in (0, 1)}
    errors = dict.fromkeys(both, 0.5)
    account = accounts(case.series, (0, 1), calibrated(shared_w=both, shared_error_w=errors)).new()
    account.add(gone)
    ledger = account.finish()
    check(ledger, int(energy_nj.sum()))
    assert ledger.causes["missing"] == windows(batch) - off
    assert ledger.domains["package"].energy_nj[:4] == pytest.approx(case.energy_nj[:4], rel=0.05)
    # The second package's groups drew power while it was there, and nothing after.
    share = off / windows(batch)
    assert ledger.domains["package"].energy_nj[4:] == pytest.approx(
        share * case.energy_nj[4:], rel=0.1
    )


def test_energy_whose_clock_is_a_window_off_still_adds_up() -> None:
    case = known(22, FACTORS)
    late = np.roll(case.batch.energy.energy_nj, 1, axis=1)
    for coefficients in (calibrated(), Coefficients()):
        check(learned(replace(case, batch=with_energy(case, late)), coefficients), total(case))
