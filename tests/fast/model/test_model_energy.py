# SPDX-License-Identifier: Apache-2.0
"""Raw counters to nanojoules: wraps, resets, gaps, failed reads, false values. Also: what owners
cause besides running.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from power_cases import WINDOW_NS, Known, calibrated, known, learned, with_energy
from qjoule.engine.accounts import idle_table
from qjoule.model.arrays import EFFECTS, F64, real_sums
from qjoule.model.energy import Cause, Readings, Series, WindowEnergy
from qjoule.model.idle_table import IdleTable
from qjoule.model.ledger import Ledger
from qjoule.model.reading_windows import window_energy
from qjoule.trace.meta import EnergyInfo, IdleState, Meta

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
    uncut = read(raws, series)
    if not uncut.known.all():
        return
    cut = min(cut, len(steps) - 1)
    first, second = read(raws[: cut + 1], series), read(raws[cut:], series)
    parts = [*first.energy_nj[0].tolist(), *second.energy_nj[0].tolist()]
    assert parts == uncut.energy_nj[0].tolist()
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
    energies = zip(windows.energy_nj[0].tolist(), windows.known[0].tolist(), strict=True)
    assert [nj / 1e9 if ok else None for nj, ok in energies] == joules


# ---- what owners cause besides running, and what a table of idle states tells of it --------------

FACTORS = (1.1, 0.92, 1.0, 1.1)


def with_effect(case: Known, names: tuple[str, ...], amount: F64, cost: float) -> Known:
    """The case in which each entry also causes `amount` (m,) of each effect, at `cost` nJ each for
    the last of them."""
    entries = case.batch.entries
    effects = entries.effects.copy()
    for name in names:
        effects[:, EFFECTS.index(name)] = amount
    each_nj = cost * amount
    energy = case.batch.energy
    more = np.rint(real_sums(entries.window, each_nj, energy.energy_nj.shape[1])).astype(np.int64)
    batch = replace(
        case.batch,
        entries=replace(entries, effects=effects),
        energy=replace(energy, energy_nj=energy.energy_nj + more),
    )
    truth = case.energy_nj + real_sums(entries.group, each_nj, len(case.energy_nj))
    return replace(case, batch=batch, energy_nj=truth)


def tails_ns(case: Known, seed: int) -> F64:
    """Idle time after each entry, mostly after those of group 0: it sleeps often."""
    entries = case.batch.entries
    often = np.where(entries.group == 0, 0.15, 0.01)
    drawn = np.random.default_rng(seed).uniform(0.5, 1.5, len(entries.window))
    return np.asarray(often * drawn * WINDOW_NS)


def error(ledger: Ledger, case: Known) -> F64:
    return np.abs(ledger.domains["package"].energy_nj / case.energy_nj - 1.0)


def covered(ledger: Ledger, case: Known) -> bool:
    low, high = ledger.ci95()
    return bool(((low <= case.energy_nj) & (case.energy_nj <= high)).all())


def test_the_owner_whose_sleep_began_a_tail_pays_for_it() -> None:
    plain = known(20, FACTORS, windows=3000)
    names = ("package_tail_800us", "package_tail_1600us")
    case = with_effect(plain, names, tails_ns(plain, 1), 12.0)
    ledger = learned(case, calibrated())
    assert error(ledger, case).max() < 0.08
    assert covered(ledger, case)
    entries = replace(case.batch.entries, effects=plain.batch.entries.effects)
    without = replace(case.batch, entries=entries)
    blind = learned(replace(case, batch=without), calibrated())
    assert error(blind, case)[0] > 2 * error(ledger, case)[0]
    # A tail of the package is drawn once, whoever slept.
    shared = ledger.domains["package"].shared_nj - blind.domains["package"].shared_nj
    assert shared[0] > 5 * max(int(shared[1]), 1)


def test_power_that_no_term_explains_widens_every_interval_and_is_said() -> None:
    plain = known(24, (1.0, 1.0, 1.0, 1.0), windows=4000)
    entries, energy = plain.batch.entries, plain.batch.energy
    mine = entries.group == 0
    share = real_sums(entries.window[mine], entries.cpu_ns[mine], energy.energy_nj.shape[1])
    strange = np.rint(1.2e9 * (share / WINDOW_NS) ** 4).astype(np.int64)
    odd = replace(plain, batch=with_energy(plain, energy.energy_nj + strange))
    strange_power, usual = learned(odd, calibrated()), learned(plain, calibrated())
    assert any("the model does not fit this machine" in note for note in strange_power.notes)
    assert not any("does not fit" in note for note in usual.notes)
    width = [np.subtract(*ledger.ci95()[::-1]).sum() for ledger in (strange_power, usual)]
    assert width[0] > 1.2 * width[1]


def meta(*states: IdleState, source: str = "powercap") -> Meta:
    return Meta(energy=EnergyInfo(source, "measured"), idle_states=states)


C1, C6 = IdleState("C1", 2, 2, cpus=4), IdleState("C6", 133, 600, cpus=4)


POLL, OFF = IdleState("POLL", 0, 0, cpus=4), IdleState("C6", 133, 600, cpus=4, disabled=4)
PARTLY = IdleState("C6", 133, 600, cpus=4, disabled=3)


@pytest.mark.parametrize(
    ("idle_states", "source", "table"),
    [
        ((POLL, C1, C6), "powercap", IdleTable((0, 2_000, 600_000), (0, 2_000, 133_000))),
        ((C1, OFF), "powercap", IdleTable((2_000,), (2_000,))),
        ((C1, PARTLY), "powercap", IdleTable((2_000, 600_000), (2_000, 133_000))),
        ((POLL,), "powercap", None),  # polling is no sleep
        ((IdleState("haltpoll", 1, 1, cpus=4),), "powercap", None),  # a guest
        ((C1, C6), "host", None),
    ],
)
def test_the_table_of_a_trace_has_the_states_in_use_on_real_cores(
    idle_states: tuple[IdleState, ...], source: str, table: IdleTable | None
) -> None:
    assert idle_table(meta(*idle_states, source=source)) == table
