# SPDX-License-Identifier: Apache-2.0
"""The part of each row's energy that a package draws once, from the split to every reporter."""

from __future__ import annotations

import numpy as np
import pytest

import model_cases
from power_cases import SHARED_W, Known, calibrated, known
from qjoule.model.coefficients import IDLE_POLICIES, IdlePolicy
from qjoule.model.split import Split

FACTORS = (1.2, 0.9, 1.0)


@pytest.fixture(scope="module")
def case() -> Known:
    return known(3, FACTORS, windows=400)


@pytest.mark.parametrize("idle", IDLE_POLICIES)
def test_shared_energy_is_what_splits_call_shared_and_follows_time(
    case: Known, idle: IdlePolicy
) -> None:
    """Errors of readings leave a few windows with less energy than the package draws once."""
    splits: list[Split] = []
    account = model_cases.account(
        *(case.series, (0,), calibrated()),
        refit=False,
        idle=idle,
        closed=lambda _batch, _ledger, closed: splits.extend(closed),
    )
    account.add(case.batch)
    sums = account.finish().domains["package"]
    assert sums.shared_nj.sum() == sum(int(one.entry_shared_nj.sum()) for one in splits) > 0
    assert (sums.shared_nj <= sums.energy_nj).all()
    entries = case.batch.entries
    spent_ns = np.bincount(entries.group, entries.shared_ns, len(FACTORS))
    assert sums.shared_nj == pytest.approx(SHARED_W * spent_ns, rel=2e-3)
