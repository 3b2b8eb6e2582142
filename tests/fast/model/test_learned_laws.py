# SPDX-License-Identifier: Apache-2.0
"""For arbitrary windows, what is learned from them keeps the laws of energy and of numbers."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from model_cases import accounts
from power_cases import known, with_energy
from qjoule.model.account import Account
from qjoule.model.batches import cut, windows
from qjoule.model.coefficients import Coefficients, IdlePolicy, PowerInterval
from qjoule.model.energy import Cause

POLICIES: tuple[IdlePolicy, ...] = ("separate", "even", "proportional")


@dataclass(frozen=True)
class Nonsense:
    """What is wrong with a machine's readings, counters and calibration."""

    seed: int
    count: int  #: windows
    groups: int
    counters: bool
    odd: float  #: share of windows with impossible energies
    gaps: float  #: share of windows without energy
    wild: float  #: share of the counters that are off by `wild_by`
    wild_by: float
    broken: float  #: share of entries whose counters were not read
    shared: float  #: share of entries whose time with any CPU busy is known
    idle_w: float | None
    shared_w: float
    calibrated: bool
    policy: IdlePolicy
    cut_at: int  #: window after whose end the rest is added later

    def account(self) -> Account:
        """An account that was given all windows, and was evaluated once in between."""
        random = np.random.default_rng(self.seed)
        factors = tuple(random.uniform(0.0, 3.0, self.groups))
        seed = int(random.integers(2**31))
        case = known(seed, factors, windows=self.count, counters=self.counters)
        energy = case.batch.energy.energy_nj.copy()
        odd = random.random(self.count) < self.odd
        energy[0, odd] = random.choice([0, 1, 10**6, 10**12, 2**53 + 1, 2**55], odd.sum())
        cause = case.batch.energy.cause.copy()
        cause[0, random.random(self.count) < self.gaps] = Cause.GAP
        batch = with_energy(case, energy)
        entries = batch.entries
        wild = (random.random(entries.counters.shape) < self.wild) * self.wild_by
        broken = random.random(len(entries.window)) < self.broken
        entries = replace(
            entries,
            counters=np.where(broken[:, None], 0.0, entries.counters + wild),
            counted_ns=np.where(broken[:, None], 0.0, entries.counted_ns),
            shared_ns=entries.shared_ns * self.shared,
        )
        batch = replace(batch, entries=entries, energy=replace(batch.energy, cause=cause))
        account = accounts(case.series, (0,), self._coefficients(), self.policy).new()
        at = 1 + self.cut_at % (windows(batch) - 1)
        account.add(cut(batch, 0, at))
        account.look()
        account.add(cut(batch, at, windows(batch)))
        return account

    def _coefficients(self) -> Coefficients:
        idle = {}
        if self.idle_w is not None:
            idle[0, "package"] = PowerInterval(self.idle_w, self.idle_w / 2, self.idle_w * 2)
        shared = {(0, "package"): self.shared_w}
        return Coefficients(idle_w=idle, shared_w=shared, calibrated=self.calibrated)


NONSENSE = st.builds(
    Nonsense,
    seed=st.integers(0, 2**32 - 1),
    count=st.sampled_from([30, 64, 130]),
    groups=st.integers(1, 5),
    counters=st.booleans(),
    odd=st.sampled_from([0.0, 0.1, 1.0]),
    gaps=st.sampled_from([0.0, 0.5, 0.98]),
    wild=st.sampled_from([0.0, 0.01, 0.3]),
    wild_by=st.sampled_from([1e4, 1e8, 1e15]),
    broken=st.sampled_from([0.0, 0.5]),
    shared=st.sampled_from([1.0, 0.0]),
    idle_w=st.sampled_from([None, 0.0, 5.0, 1e6]),
    shared_w=st.sampled_from([0.0, 3.0, 1e6]),
    calibrated=st.booleans(),
    policy=st.sampled_from(POLICIES),
    cut_at=st.integers(0, 128),
)


@given(NONSENSE)
# Counters a million times what a core can count: rounding made the normal equations indefinite.
@example(
    Nonsense(*(3107, 64, 2, True, 0.0, 0.5, 0.3, 1e15, 0.0, 1.0), *(None, 1e6, True, "separate", 0))
)
def test_what_is_learned_from_nonsense_adds_up_and_is_a_number(nonsense: Nonsense) -> None:
    ledger = nonsense.account().finish()
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
