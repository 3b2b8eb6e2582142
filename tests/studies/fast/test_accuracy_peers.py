# SPDX-License-Identifier: Apache-2.0
"""The other methods, on cases small enough to check with pencil and paper."""

from __future__ import annotations

import numpy as np
import pytest
from bench.accuracy.peers import cycles, energat, time_share
from bench.accuracy.peers.observed import Observed
from bench.accuracy.recording import F64

MS = 1e6


def seen(
    cpu_ns: list[list[float]],
    energy_nj: list[float],
    *,
    cycles_of: list[list[float]] | None = None,
    overlap_ns: list[list[float]] | None = None,
    overlap_cycles: list[list[float]] | None = None,
    idle_w: float = 0.0,
) -> Observed:
    """Windows of 20 ms of one package of two CPUs; rows are windows, columns groups."""
    time = np.array(cpu_ns, np.float64)[:, None, :]

    def counts(of: list[list[float]] | None) -> F64 | None:
        if cycles_of is None:
            return None
        plain = np.zeros((*time.shape, 3))
        if of is not None:
            plain[..., 0] = np.array(of)[:, None, :]
        return plain

    return Observed(
        dt_ns=np.full(len(cpu_ns), 20 * MS),
        energy_nj=np.array([energy_nj], np.float64),
        known=np.ones((1, len(cpu_ns)), bool),
        cpus=np.array([2.0]),
        idle_w=np.array([idle_w]),
        cpu_ns=time,
        overlap_ns=np.zeros(time.shape) if overlap_ns is None else np.array(overlap_ns)[:, None, :],
        counts=counts(cycles_of),
        overlap_counts=counts(overlap_cycles),
    )


TWO_WINDOWS = seen([[5 * MS, 15 * MS], [10 * MS, 0]], [1000.0, 400.0])


def test_scaphandre_charges_all_energy_and_kepler_the_used_part_of_the_machine() -> None:
    assert time_share.scaphandre(TWO_WINDOWS).tolist() == [250 + 400, 750]
    # Of 40 ms of CPU time, 20 are used in the first window and 10 in the second.
    assert time_share.kepler(TWO_WINDOWS).tolist() == [125 + 100, 375]


def test_energat_takes_shares_to_the_power_of_gamma() -> None:
    credit = np.array([0.25**0.3, 0.75**0.3])
    one = seen([[5 * MS, 15 * MS]], [1000.0])
    assert energat.as_published(one).tolist() == pytest.approx(1000 * credit)
    assert energat.normalised(one).tolist() == pytest.approx(1000 * credit / credit.sum())


def test_cycles_and_their_weight_beside_a_sibling() -> None:
    made = seen([[1, 1]], [2000.0], cycles_of=[[300, 100]], overlap_cycles=[[200, 0]], idle_w=2e-5)
    assert cycles.all_energy(made).tolist() == [1500, 500]  # type: ignore[union-attr]
    assert cycles.above_idle(made).tolist() == pytest.approx([1200, 400])  # type: ignore[union-attr]
    weights = np.array([300 - 0.45 * 200, 100])
    shares = weights / weights.sum()
    assert cycles.deep_mon(made).tolist() == pytest.approx(2000 * shares)  # type: ignore[union-attr]
    assert cycles.happy(made).tolist() == pytest.approx(1600 * shares)  # type: ignore[union-attr]
