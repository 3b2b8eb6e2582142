# SPDX-License-Identifier: Apache-2.0
"""Counters that change once a second have windows of their own, with faults of their own."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import model_cases
from qjoule.model.account import Account
from qjoule.model.batches import cut, windows
from qjoule.model.coarse import coarse, ends, first_parts
from qjoule.model.coefficients import IDLE_POLICIES, Coefficients
from qjoule.model.energy import Cause, Readings, Series, WindowEnergy, window_energy
from qjoule.model.slow import Standing, add_slow
from qjoule.model.windows import SegmentWindows

MS = 1_000_000
S = 1000 * MS
FAST = Series(0, "package", 1e-6, 0, MS)
SLOW = Series(0, "psys", 1e-3, 0, S)
WATTS = 100


def moving(t_ns: np.ndarray, phase_ns: int = 300 * MS) -> np.ndarray:
    """mJ of a counter that is updated each second, at 100 W."""
    return (t_ns - phase_ns) // S * WATTS * 1000 + 10**6


def readings(slow: np.ndarray, seconds: float = 10, ok: np.ndarray | None = None) -> Readings:
    """Every 20 ms: the fast counter, at 50 W, and the slow one."""
    t_ns = np.arange(0, int(seconds * S) + 1, 20 * MS)
    raw = np.stack([t_ns * 50 // 1000, slow], axis=1)
    good = np.ones((len(t_ns), 2), bool)
    if ok is not None:
        good[:, 1] = ok
    return Readings(
        np.repeat(t_ns, 2),
        raw.ravel().astype(np.uint64),
        good.ravel(),
        np.zeros(2 * len(t_ns), np.int64),
        np.tile([0, 1], len(t_ns)),
    )


def energy_of(found: Readings, series: Series = SLOW) -> WindowEnergy:
    energy = window_energy(found, [FAST, series], 0, int(found.t_ns[-1]))
    add_slow(energy, found)
    return energy


def of_slow(energy: WindowEnergy) -> list[tuple[int, int, float]]:
    """(end in ms, cause, joules) of the slow counter's own windows."""
    at = np.flatnonzero(energy.cause[1] != Cause.PART)
    return [
        (
            int(energy.boundaries_ns[k + 1]) // MS,
            int(energy.cause[1, k]),
            energy.energy_nj[1, k] / 1e9,
        )
        for k in at.tolist()
    ]


def test_power_is_of_half_a_period_before() -> None:
    power = Series(0, "psys", 1e-3, 0, S, is_power=True)
    energy = energy_of(readings(T_NS // S * WATTS * 1000), power)
    whole = [row for row in of_slow(energy) if row[1] == Cause.NONE]
    assert whole == [(500 + 1000 * k, Cause.NONE, WATTS) for k in range(10)]


def test_a_period_beyond_reason_is_bounded() -> None:
    assert Series(0, "psys", 1.0, 0, 2**62).period_ns == 60 * S
    assert not Series(0, "psys", 1.0, 0, -5).is_slow


@given(
    st.integers(0, 999),
    st.lists(st.integers(1, 499), max_size=6),
    st.lists(st.integers(1, 500), max_size=5),
)
def test_live_windows_are_a_recordings(phase_ms: int, failed: list[int], chunks: list[int]) -> None:
    ok = np.ones(len(T_NS), bool)
    ok[failed] = False
    found = readings(moving(T_NS, phase_ms * MS), ok=ok)
    whole = energy_of(found)
    standings: dict[int, Standing] = {}
    edges = sorted({0, *chunks, len(T_NS) - 1})
    rows = []
    for begin, end in pairwise(edges):
        mine = slice(2 * begin, 2 * end + 2)
        part = Readings(*(getattr(found, name)[mine] for name in found.__dataclass_fields__))
        energy = window_energy(part, [FAST, SLOW], 0 if not begin else None)
        add_slow(energy, part, standings)
        rows.append((energy.energy_nj, energy.cause, energy.half_width_ns))
    for name, values in zip(
        ("energy_nj", "cause", "half_width_ns"), zip(*rows, strict=True), strict=True
    ):
        live, recorded = np.concatenate(values, axis=1)[1], getattr(whole, name)[1]
        # Only a recording knows where it ends; one without a past has nothing before it.
        assert (live[:-1] == recorded[:-1]).all(), name


@pytest.mark.parametrize("idle", IDLE_POLICIES)
def test_who_ran_amid_a_period_has_its_share_of_all_of_it(idle: str) -> None:
    """Group 0 runs for 100 ms of each second, group 1 for 300 ms: shares of one and three
    quarters.
    """
    energy = energy_of(readings(moving(T_NS, 0)))
    rows = [(k * S + 410 * MS, k * S + 510 * MS, 0, 0) for k in range(10)]
    rows += [(k * S + 600 * MS, k * S + 900 * MS, 0, 1) for k in range(10)]
    stream = SegmentWindows(model_cases.machine(0), energy, ())
    batches = [stream.add(model_cases.segments(rows)), stream.finish()]
    account = Account(energy.series, (0,), Coefficients(), idle, refit=False)  # type: ignore[arg-type]
    for batch in batches:
        account.add(batch)
    found = account.finish().domains["psys"].energy_nj
    assert found[1] == pytest.approx(3 * found[0], rel=1e-6)
    assert found[0] > 0


T_NS = np.arange(0, 10 * S + 1, 20 * MS)


def test_a_window_is_from_one_move_to_the_next() -> None:
    energy = energy_of(readings(moving(T_NS)))
    first, *whole, last = of_slow(energy)
    assert first == (300, Cause.EDGE, 0)
    assert whole == [(300 + 1000 * k, Cause.NONE, WATTS) for k in range(1, 10)]
    assert last == (10_000, Cause.EDGE, 0)
    # A move lies between two readings.
    assert set(energy.half_width_ns[1][energy.cause[1] == Cause.NONE].tolist()) == {10 * MS}
    alone = window_energy(readings(moving(T_NS)), [FAST, SLOW], 0, 10 * S)
    assert (alone.energy_nj[0] == energy.energy_nj[0]).all(), "a fast counter keeps its windows"


@pytest.mark.parametrize(
    ("slow", "cause", "joules"),
    [
        (moving(np.minimum(T_NS, 3 * S)), Cause.STOPPED, 2 * WATTS),
        (moving(np.where((T_NS > 3 * S) & (T_NS < 8300 * MS), 3 * S, T_NS)), Cause.STOPPED, 300),
        (np.where(T_NS < 5 * S, moving(T_NS), moving(T_NS) - 900_000), Cause.RESET, 8 * WATTS),
        (np.where(T_NS < 5 * S, moving(T_NS), moving(T_NS) + 10**9), Cause.IMPLAUSIBLE, 8 * WATTS),
    ],
)
def test_a_counter_that_stops_goes_back_or_leaps_loses_only_that_energy(
    slow: np.ndarray, cause: Cause, joules: float
) -> None:
    windows = of_slow(energy_of(readings(slow)))
    assert cause in [row[1] for row in windows]
    assert sum(row[2] for row in windows) == joules


@pytest.mark.parametrize(
    ("failed_ms", "joules", "half_width_ms"),
    [((4400, 5200), 9 * WATTS, 10), ((5200, 5600), 9 * WATTS, 200), ((-1, 10_001), 0, None)],
)
def test_failed_readings_within_a_period_lose_nothing_and_over_a_move_widen_it(
    failed_ms: tuple[int, int], joules: float, half_width_ms: int | None
) -> None:
    ok = ~((failed_ms[0] * MS < T_NS) & (failed_ms[1] * MS > T_NS))
    energy = energy_of(readings(moving(T_NS), ok=ok))
    assert sum(row[2] for row in of_slow(energy)) == joules
    widths = energy.half_width_ns[1][energy.cause[1] == Cause.NONE]
    assert half_width_ms is None or widths.max() == half_width_ms * MS
    assert ok.any() or of_slow(energy) == [(10_000, Cause.MISSING, 0)]


def test_a_recording_shorter_than_a_period_knows_nothing() -> None:
    windows = of_slow(energy_of(readings(moving(T_NS[:46]), 0.9)))
    assert {row[1:] for row in windows} == {(Cause.EDGE, 0)}


@pytest.mark.parametrize("refit", [True, False])
def test_every_joule_has_one_owner(refit: bool) -> None:
    """Two CPUs run at random for a minute and a half; batches end within periods."""
    random = np.random.default_rng(1)
    t_ns = np.arange(0, 90 * S + 1, 20 * MS)
    energy = energy_of(readings(moving(t_ns, int(random.integers(0, S))), 90))
    rows = []
    for cpu in (0, 1):
        edges = np.sort(random.integers(0, 90 * S, 4000)).reshape(-1, 2).tolist()
        rows += [(a, b, cpu, int(random.integers(0, 4))) for a, b in edges]
    stream = SegmentWindows(model_cases.machine(0, 0), energy, ())
    account = Account(energy.series, (0,), Coefficients(), refit=refit)
    batches = [stream.add(part) for part in model_cases.chunks(model_cases.segments(rows), [900])]
    for batch in (*batches, stream.finish()):
        half = windows(batch) // 2 + 7
        for piece in (cut(batch, 0, half), cut(batch, half, windows(batch))):
            if windows(piece):
                account.add(piece)
    ledger = account.finish()
    for s, one in enumerate(energy.series):
        sums = ledger.domains[one.domain]
        measured = int(energy.energy_nj[s][energy.known[s]].sum())
        assert sums.measured_nj == measured > 0
        assert int(sums.energy_nj.sum()) + sums.idle_nj + sums.residual_nj == measured
    assert not [name for name in ledger.causes if "part" in name or "stopped" in name]
    assert ledger.unattributed == 0


def test_joining_windows_keeps_all_times_and_the_widest_uncertainty() -> None:
    energy = energy_of(readings(moving(T_NS), ok=~((T_NS > 5200 * MS) & (T_NS < 5600 * MS))))
    rows = [(k * 7 * MS, k * 7 * MS + 5 * MS, k % 2, k % 5) for k in range(1400)]
    stream = SegmentWindows(model_cases.machine(0, 1), energy, ())
    batch = stream.add(model_cases.segments(rows))
    whole = coarse(batch, (1,))
    assert windows(whole) < windows(batch)
    assert len(first_parts(batch, (1,))) == windows(whole)
    assert (whole.idle_ns.sum(axis=0) == batch.idle_ns.sum(axis=0)).all()
    assert whole.energy.half_width_ns.max() == batch.energy.half_width_ns.max()
    starts = first_parts(batch, (1,))
    widest = np.maximum.reduceat(batch.energy.half_width_ns, starts, axis=1)
    assert (whole.energy.half_width_ns == widest).all()
    for name in ("cpu_ns", "overlap_ns", "shared_ns"):
        before, after = (
            np.bincount(one.entries.group, getattr(one.entries, name)) for one in (batch, whole)
        )
        assert after == pytest.approx(before)
    assert coarse(batch, (0,)) is batch
    assert ends(batch.energy, (0,)).all()
