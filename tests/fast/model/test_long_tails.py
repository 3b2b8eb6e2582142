# SPDX-License-Identifier: Apache-2.0
"""Packages that linger for milliseconds after a sleep, on machines that nobody has calibrated.

Windows without long sleeps cannot tell such tails from power at rest, so both are believed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from power_cases import FACTORS, IDLE_W, WINDOW_NS, Known, calibrated, known, with_energy
from qjoule.engine.explain import totals
from qjoule.model.account import Account, AccountSettings
from qjoule.model.arrays import EFFECTS, F64, LONG_TAILS_NS, real_sums
from qjoule.model.coefficients import Coefficients
from qjoule.model.energy import Cause
from qjoule.model.explain import RowWatch
from qjoule.model.findings import model_info
from qjoule.model.fit.averaged import Average, Prior, averaged
from qjoule.model.idle_table import IdleTable
from qjoule.model.interval import Z95
from qjoule.model.ledger import Ledger

PACKAGE, NOTE = "package", "never slept for long"
SHALLOW = IdleTable((2_000,), (2_000,))
DEEP = IdleTable((2_000, 600_000), (2_000, 133_000))
TAIL = EFFECTS.index(f"package_tail_{LONG_TAILS_NS[0] // 1000}us")
LONG = [EFFECTS.index(f"package_tail_{ns // 1000}us") for ns in LONG_TAILS_NS]
TAIL_W = 6.0


def lingering(seed: int, tail_w: float = TAIL_W) -> Known:
    """All sleeps are shorter than the shortest long tail; who ran first in a window pays for it.

    Of windows in which nothing ran, no energy is known.
    """
    case = known(seed, FACTORS)
    batch, entries = case.batch, case.batch.entries
    windows = len(batch.active_ns)
    idle_ns = (WINDOW_NS - batch.active_ns[:, 0]).astype(np.float64)
    first = np.flatnonzero(np.diff(entries.window, prepend=-1))
    effects = entries.effects.copy()
    for column in LONG:
        effects[first, column] = idle_ns[entries.window[first]]
    drawn = tail_w * effects[:, TAIL]
    energy = batch.energy.energy_nj + np.rint(real_sums(entries.window, drawn, windows))
    cause = np.where(batch.active_ns[:, 0] > 0, Cause.NONE, Cause.MISSING).astype(np.uint8)[None, :]
    batch = with_energy(case, energy.astype(np.int64))
    batch = replace(batch, energy=replace(batch.energy, cause=cause))
    truth = case.energy_nj + real_sums(entries.group, drawn, len(FACTORS))
    return Known(replace(batch, entries=replace(entries, effects=effects)), case.series, truth)


def learned(
    case: Known, table: IdleTable | None = None, coefficients: Coefficients | None = None
) -> Ledger:
    settings = AccountSettings(case.series, (0,), coefficients or Coefficients(), table=table)
    account = Account(settings)
    account.add(case.batch)
    return account.finish()


def notes(ledger: Ledger) -> str:
    return "\n".join(model_info(ledger, (), "measured", {}).notes)


def half_nj(ledger: Ledger) -> tuple[F64, F64]:
    """How far the rows' intervals reach down and up."""
    low, high = ledger.ci95(PACKAGE)
    energy = ledger.domains[PACKAGE].energy_nj
    return energy - low, high - energy


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("table", [None, DEEP])
def test_intervals_contain_tails_that_windows_cannot_tell(
    seed: int, table: IdleTable | None
) -> None:
    case = lingering(seed)
    ledger = learned(case, table)
    low, high = ledger.ci95(PACKAGE)
    assert (low <= case.energy_nj).all()
    assert (case.energy_nj <= high).all()
    assert NOTE in notes(ledger)


@pytest.mark.parametrize("seed", range(4))
def test_where_nothing_lingers_they_contain_that_too(seed: int) -> None:
    case = lingering(seed, tail_w=0.0)
    low, high = learned(case, DEEP).ci95(PACKAGE)
    assert (low <= case.energy_nj).all()
    assert (case.energy_nj <= high).all()


def test_what_is_not_told_reaches_up_and_power_at_rest_down() -> None:
    case = lingering(1)
    down, up = half_nj(learned(case, DEEP))
    _, plain_up = half_nj(learned(case, SHALLOW))
    assert (up > 1.2 * plain_up).all()
    assert (up > down).all()
    (note,) = [
        line for line in notes(learned(case, DEEP)).split("\n") if "at rest, learned" in line
    ]
    low, high = map(float, note.partition("[")[2].partition("]")[0].split(","))
    assert low <= IDLE_W <= high


def test_a_shallow_machine_and_a_calibrated_one_have_one_belief() -> None:
    case = lingering(2)
    for ledger in (learned(case, SHALLOW), learned(case, DEEP, calibrated())):
        assert ledger.models[PACKAGE].one_sided is None
        assert NOTE not in notes(ledger)


def test_shares_contain_the_truth_too() -> None:
    case = lingering(3)
    ledger = learned(case, DEEP)
    energy = ledger.domains[PACKAGE].energy_nj
    errors = ledger.share_errors(record_loss=0.0, estimated=False)
    low, high = (end / energy.sum() for end in errors.ends(energy.astype(np.float64)))
    truth = case.energy_nj / case.energy_nj.sum()
    assert (low <= truth).all()
    assert (truth <= high).all()


def test_the_explanation_names_them_and_an_idle_minute_would_settle_them() -> None:
    case, watch = lingering(1), RowWatch(np.array([2]))
    account = Account(AccountSettings(case.series, (0,), Coefficients(), table=DEEP), watch=watch)
    account.add(case.batch)
    ledger = account.finish()
    explanation = watch.explained(totals(ledger, watch.groups, 0.0, estimated=False))
    (low,), (high,) = (end[[2]] for end in ledger.ci95(PACKAGE))
    assert explanation.half_nj == pytest.approx(float(high - low) / 2)
    assert 0 < explanation.alone_nj["tails or power at rest"] < explanation.half_nj
    assert explanation.remedies["a minute in which the machine idles"] < 0.8 * explanation.half_nj


def test_no_nanojoule_is_lost_between_two_beliefs() -> None:
    case = lingering(4)
    sums, energy = learned(case, DEEP).domains[PACKAGE], case.batch.energy
    parts = int(sums.energy_nj.sum()) + sums.idle_nj + sums.residual_nj
    assert parts == sums.measured_nj == int(energy.energy_nj[energy.known].sum())


SIZE = 4
ENTRY = st.floats(-1.0, 1.0)
DATA = st.lists(st.lists(ENTRY, min_size=SIZE, max_size=SIZE), min_size=1, max_size=6)


def prior(wider: float | None) -> Prior:
    """A prior of three parameters and one factor; the last of the three may be wider."""
    precision = np.diag([1.0, 4.0, 1e4])
    if wider is None:
        return Prior(np.array([1.0, 1.0, 0.0]), precision, 0.15)
    other = np.diag([1.0, 4.0, wider**-2.0])
    return Prior(np.array([1.0, 1.0, 0.0]), precision, 0.15, other, (2,))


def solved(rows: list[list[float]], target: float, belief: Prior, weight: float = 10.0) -> Average:
    x = np.array(rows)
    return averaged(weight * x.T @ x, weight * x.T @ np.full(len(x), target), belief)


@given(DATA, st.floats(0.0, 3.0))
def test_an_average_lies_between_what_each_belief_gives(
    rows: list[list[float]], target: float
) -> None:
    both, narrow = prior(1.0), prior(None)
    wide = replace(narrow, precision=cast(F64, both.wider))
    average, of_narrow, of_wide = (solved(rows, target, belief) for belief in (both, narrow, wide))
    low, high = (
        np.minimum(of_narrow.value, of_wide.value),
        np.maximum(of_narrow.value, of_wide.value),
    )
    assert (average.value >= low - 1e-9).all()
    assert (average.value <= high + 1e-9).all()
    assert (average.value >= 0).all()
    assert np.linalg.eigvalsh(average.covariance).min() > -1e-9
    # It never says less than the belief without the parameter, nor more than both allow.
    sigma = np.sqrt(np.diag(average.covariance))
    reach = np.hypot(Z95 * sigma, np.abs(average.one_sided))
    assert (
        reach >= Z95 * np.minimum(*(np.diag(a.covariance) for a in (of_narrow, of_wide))) ** 0.5
    ).all()


def test_nothing_is_untold_where_windows_tell() -> None:
    rows = np.eye(SIZE).tolist()
    for size in (0.0, 5.0):
        x = np.array(rows)
        average = averaged(1e6 * x, 1e6 * np.array([1.0, 1.0, size, 1.0]), prior(1.0))
        assert average.value[2] == pytest.approx(size, abs=0.05)
        assert np.hypot(*(average.one_sided[2], average.covariance[2, 2] ** 0.5)) < 0.05


def test_without_a_second_belief_nothing_is_untold() -> None:
    solution = solved([[1.0, 0.5, 0.2, 1.0]], 2.0, prior(None))
    assert not solution.one_sided.any()
