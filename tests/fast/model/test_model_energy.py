# SPDX-License-Identifier: Apache-2.0
"""Raw counters to nanojoules: wraps, resets, gaps, failed reads, false values."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qjoule.model.energy import Cause, Readings, Series, WindowEnergy, window_energy

MS = 1_000_000
PACKAGE = Series(0, "package", 2.0**-14, 2**32)


def read(
    raws: list[int | None],
    series: Series = PACKAGE,
    step_ns: int = 20 * MS,
    t_ns: list[int] | None = None,
) -> WindowEnergy:
    n = len(raws)
    return window_energy(
        Readings(
            np.array(t_ns or [step_ns * k for k in range(n)], np.int64),
            np.array([raw or 0 for raw in raws], np.uint64),
            np.array([raw is not None for raw in raws]),
            np.full(n, 500, np.int64),
            np.zeros(n, np.int64),
        ),
        [series],
    )


def causes(found: WindowEnergy) -> list[Cause]:
    return [Cause(int(cause)) for cause in found.cause[0]]


def test_energy_is_the_difference_in_nanojoules() -> None:
    found = read([0, 16384, 3 * 16384])
    assert found.energy_nj.tolist() == [[10**9, 2 * 10**9]]
    assert causes(found) == [Cause.NONE] * 2
    assert found.boundaries_ns.tolist() == [0, 20 * MS, 40 * MS]


def test_a_wrap_is_no_reset() -> None:
    found = read([2**32 - 100, 16284])
    assert found.energy_nj.tolist() == [[10**9]]


def test_powercap_wraps_one_unit_after_its_largest_value() -> None:
    powercap = Series(0, "package", 1e-6, 262143328850 + 1)
    found = read([262143328850, 999_999], powercap)
    assert found.energy_nj.tolist() == [[10**9]]


def test_a_reset_is_flagged_and_its_energy_unknown() -> None:
    found = read([10**9, 10**9 + 1000, 50, 1050])
    assert causes(found) == [Cause.NONE, Cause.RESET, Cause.NONE]
    assert not found.known[0, 1]


def test_a_counter_that_does_not_wrap_and_goes_back_was_reset() -> None:
    found = read([10, 5, 8], Series(0, "package", 1e-9))
    assert causes(found)[0] == Cause.RESET


def test_a_failed_read_spreads_the_known_sum_over_time() -> None:
    found = read([0, None, 3 * 16384], t_ns=[0, 10 * MS, 30 * MS])
    assert causes(found) == [Cause.INTERPOLATED] * 2
    assert found.energy_nj.tolist() == [[10**9, 2 * 10**9]]


def test_more_than_two_kilowatts_is_a_lie() -> None:
    found = read([0, 16384 * 50, 16384 * 51])
    assert causes(found) == [Cause.IMPLAUSIBLE, Cause.NONE]


def test_a_value_beyond_the_range_is_as_good_as_a_failed_read() -> None:
    found = read([0, 2**40, 2 * 16384])
    assert causes(found) == [Cause.INTERPOLATED] * 2
    assert found.energy_nj.sum() == 2 * 10**9


def test_two_wraps_cannot_be_seen_so_a_long_gap_has_no_energy() -> None:
    found = read([0, 16384, 32768], t_ns=[0, 100 * 10**9, 100 * 10**9 + 20 * MS])
    assert causes(found) == [Cause.GAP, Cause.NONE]


def test_a_stopped_counter_is_no_zero() -> None:
    found = read([0, 1000, *[2000] * 8, 3000])
    assert causes(found) == [Cause.NONE, Cause.NONE, *[Cause.STOPPED] * 7, Cause.NONE]


def test_a_short_stand_or_a_gated_core_is_a_zero() -> None:
    assert causes(read([5, 5, 1000])) == [Cause.NONE] * 2
    assert causes(read([5] * 20, Series(0, "core", 2.0**-14, 2**32))) == [Cause.NONE] * 19


def test_a_coarse_unit_may_stand_longer() -> None:
    psys = Series(0, "psys", 1.0, 2**32)
    assert causes(read([7] * 20, psys)) == [Cause.NONE] * 19


def test_time_that_goes_back_bounds_no_window() -> None:
    found = read([0, 16384, 20000, 32768], t_ns=[0, 20 * MS, 10 * MS, 40 * MS])
    assert found.boundaries_ns.tolist() == [0, 20 * MS, 40 * MS]
    assert found.energy_nj.tolist() == [[10**9, 10**9]]


@pytest.mark.parametrize("unit_j", [0.0, -1.0, float("nan"), float("inf")])
def test_a_unit_that_is_no_unit_makes_the_domain_unknown(unit_j: float) -> None:
    found = read([0, 1, 2], Series(0, "package", unit_j, 2**32))
    assert causes(found) == [Cause.IMPLAUSIBLE] * 2


def test_domains_of_one_round_share_a_window_and_a_missing_one_is_missing() -> None:
    series = [PACKAGE, Series(0, "dram", 2.0**-16, 2**32)]
    found = window_energy(
        Readings(
            np.array([0, 3000, 20 * MS, 20 * MS + 3000, 40 * MS, 60 * MS], np.int64),
            np.array([0, 0, 16384, 32768, 32768, 49152], np.uint64),
            np.ones(6, bool),
            np.zeros(6, np.int64),
            np.array([0, 1, 0, 1, 0, 0]),
        ),
        series,
        begin_ns=-5,
        end_ns=70 * MS,
    )
    assert found.boundaries_ns.tolist() == [-5, 0, 20 * MS, 40 * MS, 60 * MS, 70 * MS]
    assert found.energy_nj[0].tolist() == [0, 10**9, 10**9, 10**9, 0]
    assert [Cause(int(c)).name for c in found.cause[1]] == [
        *("EDGE", "NONE", "MISSING", "MISSING", "EDGE")
    ]
    assert found.energy_nj[1, 1] == 500_000_000


def test_without_readings_the_trace_is_one_edge() -> None:
    nothing = np.zeros(0, np.int64)
    empty = Readings(nothing, nothing.astype(np.uint64), nothing.astype(bool), nothing, nothing)
    assert window_energy(empty, [PACKAGE]).energy_nj.shape == (1, 0)
    found = window_energy(empty, [PACKAGE], 0, 100)
    assert found.boundaries_ns.tolist() == [0, 100]
    assert causes(found) == [Cause.EDGE]


@given(
    st.sampled_from([2.0**-14, 2.0**-16, 1e-6, 1e-9, 1e-6 / 3, 0.0001234567]),
    st.lists(st.integers(0, 10_000), min_size=1, max_size=30),
    st.integers(0, 2**32 - 1),
    st.integers(1, 29),
)
def test_windows_sum_to_the_total_wherever_they_are_cut(
    unit_j: float, steps: list[int], start: int, cut: int
) -> None:
    series = Series(0, "core", unit_j, 0)
    raws: list[int | None] = np.cumsum([start, *steps]).tolist()
    whole = read(raws, series)
    if not whole.known.all():
        return
    cut = min(cut, len(steps) - 1)
    first, rest = read(raws[: cut + 1], series), read(raws[cut:], series)
    parts = [*first.energy_nj[0].tolist(), *rest.energy_nj[0].tolist()]
    assert parts == whole.energy_nj[0].tolist()
    exact = sum(steps) * unit_j * 1e9
    assert abs(sum(parts) - exact) <= 1 + 1e-12 * exact
    ends = read([raws[0], raws[-1]], series, step_ns=20 * MS * len(steps))
    assert ends.energy_nj.sum() == sum(parts)


@given(st.lists(st.integers(0, 2**64 - 1), min_size=2, max_size=20), st.integers(0, 2**64 - 1))
def test_any_raw_values_give_flags_and_no_negative_energy(raws: list[int], size: int) -> None:
    found = read(list(raws), Series(0, "package", 2.0**-14, size))
    assert (found.energy_nj >= 0).all()
    assert (found.energy_nj[found.known] <= 2000 * 25 * MS * len(raws)).all()
