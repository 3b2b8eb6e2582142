# SPDX-License-Identifier: Apache-2.0
"""For arbitrary windows, what is learned from them keeps the laws of energy and of numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

import model_cases
from power_cases import known
from qjoule.model.batches import cut
from qjoule.model.coefficients import Coefficients, IdlePolicy, PowerInterval
from qjoule.model.energy import Cause

KEY = (0, "package")
POLICIES: tuple[IdlePolicy, ...] = ("separate", "even", "proportional")


@given(
    seed=st.integers(0, 2**32 - 1),
    count=st.sampled_from([30, 64, 130]),
    groups=st.integers(1, 5),
    counters=st.booleans(),
    odd=st.sampled_from([0.0, 0.1, 1.0]),
    gaps=st.sampled_from([0.0, 0.5, 0.98]),
    wild=st.sampled_from([0.0, 0.01, 0.3]),
    wild_by=st.sampled_from([1e4, 1e8, 1e15]),
    broken=st.sampled_from([0.0, 0.5]),
    idle_w=st.sampled_from([None, 0.0, 5.0, 1e6]),
    shared_w=st.sampled_from([0.0, 3.0, 1e6]),
    calibrated=st.booleans(),
    policy=st.sampled_from(POLICIES),
    cut_at=st.integers(0, 128),
)
# Counters a million times what a core can count: rounding made the normal equations indefinite.
@example(
    **{"seed": 3107, "count": 64, "groups": 2, "counters": True, "odd": 0.0, "gaps": 0.5},
    **{"wild": 0.3, "wild_by": 1e15, "broken": 0.0, "idle_w": None, "shared_w": 1e6},
    **{"calibrated": True, "policy": "separate", "cut_at": 0},
)
def test_what_is_learned_from_nonsense_adds_up_and_is_a_number(
    *,
    seed: int,
    count: int,
    groups: int,
    counters: bool,
    odd: float,
    gaps: float,
    wild: float,
    wild_by: float,
    broken: float,
    idle_w: float | None,
    shared_w: float,
    calibrated: bool,
    policy: IdlePolicy,
    cut_at: int,
) -> None:
    """Of windows, `odd` have impossible energies and `gaps` none; of counters, `wild` are off."""
    random = np.random.default_rng(seed)
    factors = tuple(random.uniform(0.0, 3.0, groups))
    case = known(int(random.integers(2**31)), factors, windows=count, counters=counters)
    energy, cause = case.batch.energy.energy_nj.copy(), case.batch.energy.cause.copy()
    impossible = random.random(count) < odd
    energy[0, impossible] = random.choice([0, 1, 10**6, 10**12, 2**53 + 1, 2**55], impossible.sum())
    cause[0, random.random(count) < gaps] = Cause.GAP
    entries = case.batch.entries
    off = (random.random(entries.counters.shape) < wild) * wild_by
    unread = random.random(len(entries.window)) < broken
    entries = replace(
        entries,
        counters=np.where(unread[:, None], 0.0, entries.counters + off),
        counted_ns=np.where(unread[:, None], 0.0, entries.counted_ns),
    )
    known_energy = replace(case.batch.energy, energy_nj=energy, cause=cause)
    batch = replace(case.batch, entries=entries, energy=known_energy)
    idle = {} if idle_w is None else {KEY: PowerInterval(idle_w, idle_w / 2, idle_w * 2)}
    coefficients = Coefficients(idle_w=idle, shared_w={KEY: shared_w}, calibrated=calibrated)
    account = model_cases.account(case.series, (0,), coefficients, policy)
    at = 1 + cut_at % (count - 1)
    account.add(cut(batch, 0, at))
    account.snapshot()
    account.add(cut(batch, at, count))
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
