"""Whatever the windows hold, what is learned from them keeps the laws of energy and of numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from power_cases import known, with_energy
from qjoule.model.account import Account, cut, windows
from qjoule.model.coefficients import Coefficients, IdlePolicy, PowerInterval
from qjoule.model.counters import Cause

POLICIES: tuple[IdlePolicy, ...] = ("separate", "even", "proportional")


@st.composite
def hostile(draw: st.DrawFn) -> Account:
    """An account of a machine whose readings, counters and calibration may all be nonsense."""
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    count = draw(st.sampled_from([30, 64, 130]))
    factors = tuple(random.uniform(0.0, 3.0, draw(st.integers(1, 5))))
    case = known(int(random.integers(2**31)), factors, windows=count, counters=draw(st.booleans()))
    energy = case.batch.energy.energy_nj.copy()
    odd = random.random(count) < draw(st.sampled_from([0.0, 0.1, 1.0]))
    energy[0, odd] = random.choice([0, 1, 10**6, 10**12, 2**53 + 1, 2**55], odd.sum())
    cause = case.batch.energy.cause.copy()
    cause[0, random.random(count) < draw(st.sampled_from([0.0, 0.5, 0.98]))] = Cause.GAP
    batch = with_energy(case, energy)
    entries = batch.entries
    wild = (random.random(entries.counters.shape) < draw(st.sampled_from([0.0, 0.3]))) * 1e15
    broken = random.random(len(entries.window)) < draw(st.sampled_from([0.0, 0.5]))
    entries = replace(
        entries,
        counters=np.where(broken[:, None], 0.0, entries.counters + wild),
        counted_ns=np.where(broken[:, None], 0.0, entries.counted_ns),
        shared_ns=entries.shared_ns * draw(st.sampled_from([1.0, 0.0])),
    )
    batch = replace(batch, entries=entries, energy=replace(batch.energy, cause=cause))
    watts = draw(st.sampled_from([0.0, 5.0, 1e6]))
    idle = {(0, "package"): PowerInterval(watts, watts / 2, watts * 2)}
    some = Coefficients(
        idle_w=idle if draw(st.booleans()) else {},
        shared_w={(0, "package"): draw(st.sampled_from([0.0, 3.0, 1e6]))},
        calibrated=draw(st.booleans()),
    )
    account = Account(case.series, (0,), some, draw(st.sampled_from(POLICIES)))
    at = draw(st.integers(1, windows(batch) - 1))
    account.add(cut(batch, 0, at))
    account.look()
    account.add(cut(batch, at, windows(batch)))
    return account


@given(hostile())
@settings(deadline=None, max_examples=120)
def test_what_is_learned_from_nonsense_adds_up_and_is_a_number(account: Account) -> None:
    ledger = account.finish()
    sums = ledger.domains["package"]
    assert int(sums.energy_nj.sum()) + sums.idle_nj + sums.residual_nj == sums.measured_nj
    low, high = ledger.ci95()
    assert (low >= 0).all()
    assert (low <= sums.energy_nj).all()
    assert (sums.energy_nj <= high).all()
    assert np.isfinite(high).all()
    assert sums.idle_nj >= 0
    assert sums.residual_nj >= 0
    assert np.isfinite(sums.idle_slack_nj).all()
    for model in ledger.models.values():
        for values in (model.theta, model.factor, model.shared_w, model.covariance):
            assert np.isfinite(values).all()
        assert (model.theta >= 0).all()
        assert (model.factor >= 0).all()
