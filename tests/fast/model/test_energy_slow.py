# SPDX-License-Identifier: Apache-2.0
"""Counters that change once a second have windows of their own, with faults of their own."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import model_cases
from qjoule.model.account import Account, AccountSettings
from qjoule.model.batches import cut, windows
from qjoule.model.coefficients import Coefficients
from qjoule.model.energy import Cause, Readings, Series, WindowEnergy
from qjoule.model.reading_windows import window_energy
from qjoule.model.slow import SlowCounterState, add_slow, coarse, first_parts
from qjoule.model.windows import SegmentWindows

MS, S = 1_000_000, 1_000_000_000
FAST, SLOW = Series(0, "package", 1e-6, 0, MS), Series(0, "psys", 1e-3, 0, S)
WATTS = 100
T_NS = np.arange(0, 10 * S + 1, 20 * MS)
FOR_LONG = (T_NS > 3 * S) & (T_NS < 8300 * MS)


def moving(t_ns: np.ndarray, phase_ns: int = 300 * MS) -> np.ndarray:
    """mJ of a counter that is updated each second, at 100 W."""
    return (t_ns - phase_ns) // S * WATTS * 1000 + 10**6


def readings(slow: np.ndarray, ok: np.ndarray | None = None) -> Readings:
    """Every 20 ms: the fast counter, at 50 W, and the slow one."""
    t_ns = np.arange(len(slow)) * 20 * MS
    raw = np.stack([t_ns * 50 // 1000, slow], axis=1)
    good = np.ones((len(t_ns), 2), bool)
    good[:, 1] = True if ok is None else ok
    return Readings(
        np.repeat(t_ns, 2),
        raw.ravel().astype(np.uint64),
        good.ravel(),
        np.zeros(2 * len(t_ns), np.int64),
        np.tile([0, 1], len(t_ns)),
    )


def energy_of(of: Readings, series: Series = SLOW) -> WindowEnergy:
    energy = window_energy(of, [FAST, series], 0, int(of.t_ns[-1]))
    add_slow(energy, of)
    return energy


def of_slow(energy: WindowEnergy) -> list[tuple[int, int, float]]:
    """(end in ms, cause, joules) of the slow counter's own windows."""
    own = energy.cause[1] != Cause.PART
    ends_ms = energy.boundaries_ns[1:][own] // MS
    columns = ends_ms, energy.cause[1][own], energy.energy_nj[1][own] / 1e9
    return list(zip(*(column.tolist() for column in columns), strict=True))


def test_a_window_is_from_one_move_to_the_next() -> None:
    energy = energy_of(readings(moving(T_NS)))
    first, *inner, last = of_slow(energy)
    assert (first, last) == ((300, Cause.EDGE, 0), (10_000, Cause.EDGE, 0))
    assert inner == [(300 + 1000 * k, Cause.NONE, WATTS) for k in range(1, 10)]
    # A move lies between two readings.
    assert set(energy.half_width_ns[1][energy.cause[1] == Cause.NONE].tolist()) == {10 * MS}
    power = Series(0, "psys", 1e-3, 0, S, is_power=True)  # of half a period before
    energy = energy_of(readings(T_NS // S * WATTS * 1000), power)
    complete = [row for row in of_slow(energy) if row[1] == Cause.NONE]
    assert complete == [(500 + 1000 * k, Cause.NONE, WATTS) for k in range(10)]


@pytest.mark.parametrize(
    ("slow", "cause", "joules"),
    [
        (moving(np.minimum(T_NS, 3 * S)), Cause.STOPPED, 2 * WATTS),
        (moving(np.where(FOR_LONG, 3 * S, T_NS)), Cause.STOPPED, 3 * WATTS),
        (np.where(T_NS < 5 * S, moving(T_NS), moving(T_NS) - 900_000), Cause.RESET, 8 * WATTS),
        (np.where(T_NS < 5 * S, moving(T_NS), moving(T_NS) + 10**9), Cause.IMPLAUSIBLE, 8 * WATTS),
        (moving(T_NS[:46]), Cause.EDGE, 0),  # shorter than a period
    ],
)
def test_a_counter_that_stops_goes_back_or_leaps_loses_only_that_energy(
    slow: np.ndarray, cause: Cause, joules: float
) -> None:
    own = of_slow(energy_of(readings(slow)))
    assert cause in [row[1] for row in own]
    assert sum(row[2] for row in own) == joules


@given(
    st.integers(0, 999),
    st.lists(st.integers(1, 499), max_size=6),
    st.lists(st.integers(1, 500), max_size=5),
)
def test_live_windows_are_a_recordings(phase_ms: int, failed: list[int], chunks: list[int]) -> None:
    ok = np.ones(len(T_NS), bool)
    ok[failed] = False
    every = readings(moving(T_NS, phase_ms * MS), ok)
    recorded_energy = energy_of(every)
    standings: dict[int, SlowCounterState] = {}
    rows = []
    for begin, end in pairwise(sorted({0, *chunks, len(T_NS) - 1})):
        mine = slice(2 * begin, 2 * end + 2)
        part = Readings(*(getattr(every, name)[mine] for name in every.__dataclass_fields__))
        energy = window_energy(part, [FAST, SLOW], 0 if not begin else None)
        add_slow(energy, part, standings)
        rows.append((energy.energy_nj, energy.cause, energy.half_width_ns))
    names = ("energy_nj", "cause", "half_width_ns")
    for name, values in zip(names, zip(*rows, strict=True), strict=True):
        live, recorded = np.concatenate(values, axis=1)[1], getattr(recorded_energy, name)[1]
        # Only a recording knows where it ends; one without a past has nothing before it.
        assert (live[:-1] == recorded[:-1]).all(), name


@pytest.mark.parametrize("refit", [True, False])
def test_every_joule_has_one_owner(refit: bool) -> None:
    """Two CPUs run at random for a minute and a half; batches end within periods."""
    random = np.random.default_rng(1)
    energy = energy_of(readings(moving(np.arange(0, 90 * S + 1, 20 * MS), 473 * MS)))
    rows = []
    for cpu in (0, 1):
        edges = np.sort(random.integers(0, 90 * S, 4000)).reshape(-1, 2).tolist()
        rows += [(a, b, cpu, int(random.integers(0, 4))) for a, b in edges]
    stream = SegmentWindows(model_cases.machine(0, 0), energy, ())
    account = Account(AccountSettings(energy.series, (0,), Coefficients(), refit=refit))
    batches = [stream.add(part) for part in model_cases.chunks(model_cases.segments(rows), [900])]
    for batch in (*batches, stream.finish()):
        half = windows(batch) // 2 + 7
        for piece in (cut(batch, 0, half), cut(batch, half, windows(batch))):
            if windows(piece):
                account.add(piece)
    ledger = account.finish()
    for s, series in enumerate(energy.series):
        sums = ledger.domains[series.domain]
        measured = int(energy.energy_nj[s][energy.known[s]].sum())
        assert sums.measured_nj == measured > 0
        assert int(sums.energy_nj.sum()) + sums.idle_nj + sums.residual_nj == measured
    assert not [name for name in ledger.causes if "part" in name or "stopped" in name]
    assert ledger.unattributed == 0


def test_joining_windows_keeps_all_times_and_the_widest_uncertainty() -> None:
    energy = energy_of(readings(moving(T_NS), ~((T_NS > 5200 * MS) & (T_NS < 5600 * MS))))
    rows = [(k * 7 * MS, k * 7 * MS + 5 * MS, k % 2, k % 5) for k in range(1400)]
    batch = SegmentWindows(model_cases.machine(0, 1), energy, ()).add(model_cases.segments(rows))
    joined, starts = coarse(batch, (1,)), first_parts(batch, (1,))
    assert windows(joined) == len(starts) < windows(batch)
    assert (joined.idle_ns.sum(axis=0) == batch.idle_ns.sum(axis=0)).all()
    widest = np.maximum.reduceat(batch.energy.half_width_ns, starts, axis=1)
    assert (joined.energy.half_width_ns == widest).all()
    for name in ("cpu_ns", "overlap_ns", "shared_ns"):
        before, after = (
            np.bincount(each_batch.entries.group, getattr(each_batch.entries, name))
            for each_batch in (batch, joined)
        )
        assert after == pytest.approx(before)
    assert coarse(batch, (0,)) is batch
