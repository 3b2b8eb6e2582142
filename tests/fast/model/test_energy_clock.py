# SPDX-License-Identifier: Apache-2.0
"""Conversion from an external meter's clock to ours."""

from __future__ import annotations

import numpy as np
import pytest

from qjoule.model.clock import fit_clock, to_ours

MS = 1_000_000
S = 1000 * MS
EPOCH_NS = 1_700_000_000 * S


def came(
    seconds: int = 600, *, drift: float = 0.0, late_ms: float = 40, seed: int = 3
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(stamps, arrival times, true times by our clock): one a second, with exponential delays.

    The smallest delay is zero.
    """
    random = np.random.default_rng(seed)
    true = 1000 * S + np.arange(seconds) * S + random.integers(0, 50 * MS, seconds)
    stamp = EPOCH_NS + np.rint((true - true[0]) * (1 - drift)).astype(np.int64) + 123_456_789
    delay = random.exponential(late_ms * MS, seconds)
    delay[random.integers(0, seconds, 5)] += 3 * S
    return stamp, true + delay.astype(np.int64), true


@pytest.mark.parametrize("drift", [0.0, 50e-6, -200e-6])
def test_offset_and_drift_are_found_beneath_the_delays(drift: float) -> None:
    stamp, t_ns, true = came(drift=drift)
    fit = fit_clock(stamp, t_ns)
    assert fit.followed
    assert fit.drift == pytest.approx(drift, abs=10e-6)
    assert np.abs(to_ours(fit, stamp, t_ns) - true).max() < 8 * MS
    assert 60 * MS < fit.delay_ns < 300 * MS


def test_a_short_recording_has_no_drift() -> None:
    stamp, t_ns, true = came(30, drift=900e-6)
    fit = fit_clock(stamp, t_ns)
    assert fit.drift == 0
    assert np.abs(to_ours(fit, stamp, t_ns) - true).max() < 60 * MS


def test_one_stamp_is_of_when_it_came() -> None:
    fit = fit_clock(np.array([5 * S]), np.array([9 * S]))
    assert to_ours(fit, np.array([5 * S]), np.array([9 * S])).tolist() == [9 * S]


def test_stamps_ahead_of_the_others_do_not_move_the_line() -> None:
    stamp, t_ns, true = came()
    stamp[[50, 300]] += 20 * S  # two wrong ones
    fit = fit_clock(stamp, t_ns)
    fine = np.delete(np.arange(len(true)), [50, 300])
    assert np.abs(to_ours(fit, stamp, t_ns) - true)[fine].max() < 8 * MS


def test_no_stamp_is_later_than_it_came() -> None:
    stamp, t_ns, _ = came()
    stamp[100] += 30 * S
    assert (to_ours(fit_clock(stamp, t_ns), stamp, t_ns) <= t_ns).all()


@pytest.mark.parametrize("leap", [3600 * S, -3600 * S])
def test_a_clock_that_leaps_is_not_followed(leap: int) -> None:
    stamp, t_ns, _ = came()
    stamp[300:] += leap
    fit = fit_clock(stamp, t_ns)
    assert not fit.followed
    assert (to_ours(fit, stamp, t_ns) == t_ns).all()


@pytest.mark.parametrize(("unit", "half"), [(S, S // 2), (100 * MS, 50 * MS), (MS, MS // 2)])
def test_whole_stamps_are_as_uncertain_as_they_are_coarse(unit: int, half: int) -> None:
    stamp, t_ns, _ = came()
    assert fit_clock(stamp // unit * unit, t_ns).half_width_ns == half
