# SPDX-License-Identifier: Apache-2.0
"""When the machine counts as idle, and how many runs an interval needs."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest

from qjoule.studies.control import hash_once, settle
from qjoule.studies.plan import Control
from qjoule.studies.schedule import relative_half_width


def times(*values: float) -> Iterator[float]:
    return iter(values)


def test_it_settles_when_the_last_times_agree() -> None:
    given = times(2.0, 1.5, 1.2, 1.1, 1.0, 1.0, 1.0, 1.0, 1.0)
    pauses: list[float] = []
    found = settle(Control(tries=9, pause_s=3.0), lambda: next(given), pauses.append)
    assert found.settled
    assert (found.times, found.deviation) == (9, 0.0)
    assert pauses == [3.0] * 8


def test_it_does_not_settle_while_they_differ() -> None:
    given = times(*[1.0, 1.03] * 5)
    found = settle(Control(tries=10, pause_s=0), lambda: next(given))
    assert not found.settled
    # For 1.03, 1, 1.03, 1, 1.03, with n - 1 in the denominator.
    assert found.deviation == pytest.approx(0.016432 / 1.018, rel=1e-3)
    assert "1.6%" in found.words


def test_how_near_they_must_be_is_the_plans() -> None:
    given = times(*[1.0, 1.03] * 5)
    assert settle(Control(within=0.02, pause_s=0), lambda: next(given)).times == 5


def test_a_clock_that_stands_still_is_no_rest() -> None:
    found = settle(Control(tries=5, pause_s=0), lambda: 0.0)
    assert not found.settled
    assert found.deviation == math.inf


def test_the_control_work_takes_time() -> None:
    assert hash_once() > 0


def test_half_width_is_that_of_students_t() -> None:
    """For 4.9, 5.1, 5.0: mean 5, s = 0.1, t(0.975, 2) = 4.302653."""
    assert relative_half_width([4.9, 5.1, 5.0]) == pytest.approx(4.302653 * 0.1 / 3**0.5 / 5)


@pytest.mark.parametrize(
    ("values", "width"),
    [([], math.inf), ([3.0], math.inf), ([2.0, 2.0], 0.0), ([0.0, 0.0], 0.0), ([-1, 1], math.inf)],
)
def test_half_width_of_little(values: list[float], width: float) -> None:
    assert relative_half_width(values) == width
