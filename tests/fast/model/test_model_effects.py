# SPDX-License-Identifier: Apache-2.0
"""What owners cause besides running, and power that the model has no term for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from power_cases import WINDOW_NS, Known, calibrated, known, learned, with_energy
from qjoule.model.arrays import EFFECTS, F64, real_sums
from qjoule.model.coefficients import EFFECT_TERMS, THETA
from qjoule.model.ledger import Ledger

TERM_OF = dict(zip(EFFECTS, EFFECT_TERMS, strict=True))
FACTORS = (1.1, 0.92, 1.0, 1.1)


def with_effect(case: Known, names: tuple[str, ...], amount: F64, cost: float) -> Known:
    """The case in which each entry also causes `amount` (m,) of each effect, at `cost` nJ each for
    the last of them."""
    entries = case.batch.entries
    effects = entries.effects.copy()
    for name in names:
        effects[:, EFFECTS.index(name)] = amount
    each_nj = cost * amount
    energy = case.batch.energy
    more = np.rint(real_sums(entries.window, each_nj, energy.energy_nj.shape[1])).astype(np.int64)
    batch = replace(
        case.batch,
        entries=replace(entries, effects=effects),
        energy=replace(energy, energy_nj=energy.energy_nj + more),
    )
    truth = case.energy_nj + real_sums(entries.group, each_nj, len(case.energy_nj))
    return replace(case, batch=batch, energy_nj=truth)


def tails_ns(case: Known, seed: int) -> F64:
    """Idle time after each entry, mostly after those of group 0: it sleeps often."""
    entries = case.batch.entries
    often = np.where(entries.group == 0, 0.15, 0.01)
    drawn = np.random.default_rng(seed).uniform(0.5, 1.5, len(entries.window))
    return np.asarray(often * drawn * WINDOW_NS)


def error(ledger: Ledger, case: Known) -> F64:
    return np.abs(ledger.domains["package"].energy_nj / case.energy_nj - 1.0)


def covered(ledger: Ledger, case: Known) -> bool:
    low, high = ledger.ci95()
    return bool(((low <= case.energy_nj) & (case.energy_nj <= high)).all())


def test_the_owner_whose_sleep_began_a_tail_pays_for_it() -> None:
    plain = known(20, FACTORS, windows=3000)
    names = ("package_tail_800us", "package_tail_1600us")
    case = with_effect(plain, names, tails_ns(plain, 1), 12.0)
    ledger = learned(case, calibrated())
    assert error(ledger, case).max() < 0.08
    assert covered(ledger, case)
    without = replace(
        case.batch, entries=replace(case.batch.entries, effects=plain.batch.entries.effects)
    )
    blind = learned(replace(case, batch=without), calibrated())
    assert error(blind, case)[0] > 2 * error(ledger, case)[0]
    # A tail of the package is drawn once, whoever slept.
    shared = ledger.domains["package"].shared_nj - blind.domains["package"].shared_nj
    assert shared[0] > 5 * max(int(shared[1]), 1)


def test_power_that_no_term_explains_widens_every_interval_and_is_said() -> None:
    plain = known(24, (1.0, 1.0, 1.0, 1.0), windows=4000)
    entries, energy = plain.batch.entries, plain.batch.energy
    mine = entries.group == 0
    share = real_sums(entries.window[mine], entries.cpu_ns[mine], energy.energy_nj.shape[1])
    strange = np.rint(1.2e9 * (share / WINDOW_NS) ** 4).astype(np.int64)
    odd = replace(plain, batch=with_energy(plain, energy.energy_nj + strange))
    told, usual = learned(odd, calibrated()), learned(plain, calibrated())
    assert [note for note in told.notes if note.startswith("the model does not fit this machine")]
    assert not any("does not fit" in note for note in usual.notes)
    width = [np.subtract(*one.ci95()[::-1]).sum() for one in (told, usual)]
    assert width[0] > 1.2 * width[1]


@pytest.mark.parametrize(
    ("name", "amount", "cost"), [("core_tail_400us", 2e6, 4.0), ("core_wakes", 40.0, 60_000.0)]
)
def test_each_cost_is_learned_from_windows_in_which_it_varies(
    name: str, amount: float, cost: float
) -> None:
    plain = known(21, FACTORS, windows=3000)
    drawn = np.random.default_rng(2).uniform(0, amount, len(plain.batch.entries.window))
    case = with_effect(plain, (name,), drawn, cost)
    ledger = learned(case, calibrated())
    model = ledger.models["package"]
    at = THETA.index(TERM_OF[name])
    sigma = model.covariance[2 * model.zones + at, 2 * model.zones + at] ** 0.5
    assert abs(model.theta[at] - cost) < 4 * sigma
    assert covered(ledger, case)
    sums = ledger.domains["package"]
    total = int(sums.energy_nj.sum()) + sums.idle_nj + sums.residual_nj
    assert total == sums.measured_nj == int(case.batch.energy.energy_nj.sum())
