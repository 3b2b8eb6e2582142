# SPDX-License-Identifier: Apache-2.0
"""Counters that change once a second: they have their own windows and possible faults."""

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
from qjoule.model.ledger import Ledger
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


T_NS = np.arange(0, 10 * S + 1, 20 * MS)


def test_a_window_is_from_one_move_to_the_next() -> None:
    energy = energy_of(readings(moving(T_NS)))
    first, *whole, last = of_slow(energy)
    assert first == (300, Cause.EDGE, 0)
    assert whole == [(300 + 1000 * k, Cause.NONE, WATTS) for k in range(1, 10)]
    assert last == (10_000, Cause.EDGE, 0)
    # A move lies between two readings.
    assert set(energy.half_width_ns[1][energy.cause[1] == Cause.NONE].tolist()) == {10 * MS}
    assert set(energy.cause[0].tolist()) == {Cause.NONE}


def test_a_fast_counter_keeps_its_windows() -> None:
    alone = window_energy(readings(moving(T_NS)), [FAST, SLOW], 0, 10 * S)
    beside = energy_of(readings(moving(T_NS)))
    assert (alone.energy_nj[0] == beside.energy_nj[0]).all()
    assert (np.diff(beside.boundaries_ns) == 20 * MS).all()


def test_one_that_stops_is_told_and_its_windows_end() -> None:
    slow = moving(np.minimum(T_NS, 3 * S))
    found = of_slow(energy_of(readings(slow)))
    assert [row for row in found if row[1] == Cause.NONE][-1] == (2300, Cause.NONE, WATTS)
    assert [row[0] for row in found if row[1] == Cause.STOPPED] == [6300, 10_000]


def test_one_that_goes_on_after_a_stop_counts_from_there() -> None:
    stood = np.where((T_NS > 3 * S) & (T_NS < 8300 * MS), 3 * S, T_NS)
    found = of_slow(energy_of(readings(moving(stood))))
    assert (8300, Cause.STOPPED, 0) in found
    assert found[-2] == (9300, Cause.NONE, WATTS)


def test_one_that_goes_back_is_a_reset() -> None:
    slow = np.where(T_NS < 5 * S, moving(T_NS), moving(T_NS) - 900_000)
    causes = [row[1] for row in of_slow(energy_of(readings(slow)))]
    assert causes.count(Cause.RESET) == 1
    assert causes.count(Cause.NONE) == 8


def test_one_that_leaps_is_implausible() -> None:
    slow = np.where(T_NS < 5 * S, moving(T_NS), moving(T_NS) + 10**9)
    found = of_slow(energy_of(readings(slow)))
    assert [row[1] for row in found].count(Cause.IMPLAUSIBLE) == 1
    assert sum(row[2] for row in found) == 8 * WATTS


def test_failed_readings_amid_a_period_lose_nothing() -> None:
    ok = ~((T_NS > 4400 * MS) & (T_NS < 5200 * MS))
    found = of_slow(energy_of(readings(moving(T_NS), ok=ok)))
    assert [row[1] for row in found].count(Cause.NONE) == 9


def test_failed_readings_over_a_move_widen_it() -> None:
    ok = ~((T_NS > 5200 * MS) & (T_NS < 5600 * MS))
    energy = energy_of(readings(moving(T_NS), ok=ok))
    ending = np.flatnonzero(energy.cause[1] == Cause.NONE)
    assert sum(energy.energy_nj[1]) == 9 * WATTS * 10**9
    assert energy.half_width_ns[1][ending].max() == 200 * MS


@pytest.mark.parametrize("seconds", [0.2, 0.9])
def test_a_recording_shorter_than_a_period_knows_nothing(seconds: float) -> None:
    t_ns = np.arange(0, int(seconds * S) + 1, 20 * MS)
    found = of_slow(energy_of(readings(moving(t_ns, 300 * MS), seconds)))
    assert {row[1] for row in found} == {Cause.EDGE}
    assert {row[2] for row in found} == {0}


def test_readings_that_all_fail_are_missing() -> None:
    energy = energy_of(readings(moving(T_NS), ok=np.zeros(len(T_NS), bool)))
    assert of_slow(energy) == [(10_000, Cause.MISSING, 0)]


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


def accounts(seed: int, *, refit: bool) -> tuple[Account, Ledger, WindowEnergy]:
    """A machine with two CPUs that run at random for a minute and a half."""
    random = np.random.default_rng(seed)
    t_ns = np.arange(0, 90 * S + 1, 20 * MS)
    found = readings(moving(t_ns, int(random.integers(0, S))), 90)
    energy = energy_of(found)
    rows = []
    for cpu in (0, 1):
        edges = np.sort(random.integers(0, 90 * S, 4000))
        rows += [
            (int(a), int(b), cpu, int(random.integers(0, 4))) for a, b in np.reshape(edges, (-1, 2))
        ]
    stream = SegmentWindows(model_cases.machine(0, 0), energy, ())
    account = Account(energy.series, (0,), Coefficients(), refit=refit)
    batches = [stream.add(part) for part in model_cases.chunks(model_cases.segments(rows), [900])]
    for batch in (*batches, stream.finish()):
        half = windows(batch) // 2 + 7
        for piece in (cut(batch, 0, half), cut(batch, half, windows(batch))):
            if windows(piece):
                account.add(piece)
    return account, account.finish(), energy


@pytest.mark.parametrize("refit", [True, False])
@pytest.mark.parametrize("seed", [1, 2])
def test_every_joule_has_one_owner(seed: int, refit: bool) -> None:
    _, ledger, energy = accounts(seed, refit=refit)
    for s, one in enumerate(energy.series):
        sums = ledger.domains[one.domain]
        measured = int(energy.energy_nj[s][energy.known[s]].sum())
        assert measured > 0
        assert sums.measured_nj == measured
        assert int(sums.energy_nj.sum()) + sums.idle_nj + sums.residual_nj == measured
    assert not [name for name in ledger.causes if "part" in name or "stopped" in name]
    assert ledger.unattributed == 0


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


def test_joining_windows_keeps_all_times() -> None:
    energy = energy_of(readings(moving(T_NS)))
    rows = [(k * 7 * MS, k * 7 * MS + 5 * MS, k % 2, k % 5) for k in range(1400)]
    stream = SegmentWindows(model_cases.machine(0, 1), energy, ())
    stream.add(model_cases.segments([]))
    batch = [stream.add(model_cases.segments(rows)), stream.finish()][0]
    joined = coarse(batch, (1,))
    assert windows(joined) < windows(batch)
    assert len(first_parts(batch, (1,))) == windows(joined)
    assert (joined.idle_ns.sum(axis=0) == batch.idle_ns.sum(axis=0)).all()
    for group in range(5):
        for name in ("cpu_ns", "overlap_ns", "shared_ns"):
            before, after = (
                getattr(one.entries, name)[one.entries.group == group].sum()
                for one in (batch, joined)
            )
            assert after == pytest.approx(before)
    assert coarse(batch, (0,)) is batch
    assert ends(batch.energy, (0,)).all()
