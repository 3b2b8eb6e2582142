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


def causes(windows: WindowEnergy) -> list[Cause]:
    return [Cause(int(cause)) for cause in windows.cause[0]]


NONE, E, GAP = Cause.NONE, Cause.INTERPOLATED, Cause.GAP


def test_domains_of_one_round_share_a_window_and_a_missing_one_is_missing() -> None:
    series = [PACKAGE, Series(0, "dram", 2.0**-16, 2**32)]
    windows = window_energy(
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
    assert windows.boundaries_ns.tolist() == [-5, 0, 20 * MS, 40 * MS, 60 * MS, 70 * MS]
    assert windows.energy_nj[0].tolist() == [0, 10**9, 10**9, 10**9, 0]
    assert [Cause(int(c)).name for c in windows.cause[1]] == [
        *("EDGE", "NONE", "MISSING", "MISSING", "EDGE")
    ]
    assert windows.energy_nj[1, 1] == 500_000_000


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
    windows = read(list(raws), Series(0, "package", 2.0**-14, size))
    assert (windows.energy_nj >= 0).all()
    assert (windows.energy_nj[windows.known] <= 2000 * 25 * MS * len(raws)).all()


POWERCAP = Series(0, "package", 1e-6, 262143328850 + 1)
ENDLESS = Series(0, "package", 1e-9)
CORE = Series(0, "core", 2.0**-14, 2**32)
COARSE = Series(0, "psys", 1.0, 2**32)
J = 16384  #: counts of PACKAGE
RESET, STOPPED = Cause.RESET, Cause.STOPPED


@pytest.mark.parametrize(
    ("raws", "series", "ends_ms", "expected", "joules"),
    [
        ([0, J, 3 * J], PACKAGE, (0, 20, 40), [NONE] * 2, [1, 2]),
        ([2**32 - 100, J - 100], PACKAGE, (0, 20), [NONE], [1]),  # wraps
        ([262143328850, 999_999], POWERCAP, (0, 20), [NONE], [1]),  # wraps after its maximum
        ([10**9, 10**9 + J, 50], PACKAGE, (0, 20, 40), [NONE, RESET], [1, None]),
        ([10, 5], ENDLESS, (0, 20), [RESET], [None]),
        ([0, None, 3 * J], PACKAGE, (0, 10, 30), [E, E], [1, 2]),  # a reading failed
        ([0, 2**40, 2 * J], PACKAGE, (0, 20, 40), [E, E], [1, 1]),  # beyond the range
        ([0, 50 * J, 51 * J], PACKAGE, (0, 20, 40), [Cause.IMPLAUSIBLE, NONE], [None, 1]),
        ([0, J, 2 * J], PACKAGE, (0, 10**5, 10**5 + 20), [GAP, NONE], [None, 1]),
        ([0, J, J, J, 2 * J], PACKAGE, (0, 20, 80, 140, 160),
         [NONE, STOPPED, STOPPED, NONE], [1, None, None, 1]),
        ([J, J, 2 * J], PACKAGE, (0, 20, 40), [NONE] * 2, [0, 1]),  # stood for 20 ms only
        ([J] * 3, CORE, (0, 200, 400), [NONE] * 2, [0, 0]),  # may be gated
        ([7] * 3, COARSE, (0, 200, 400), [NONE] * 2, [0, 0]),  # its unit is 1 J
        ([0, J, 20000, 2 * J], PACKAGE, (0, 20, 10, 40), [NONE] * 2, [1, 1]),  # time goes back
    ],
)  # fmt: skip
def test_readings_give_the_joules_of_each_window_or_the_cause_why_not(
    raws: list[int | None],
    series: Series,
    ends_ms: tuple[int, ...],
    expected: list[Cause],
    joules: list[int | None],
) -> None:
    windows = read(raws, series, t_ns=[MS * ms for ms in ends_ms])
    assert causes(windows) == expected
    known = zip(windows.energy_nj[0].tolist(), windows.known[0].tolist(), strict=True)
    assert [nj / 1e9 if ok else None for nj, ok in known] == joules
