# SPDX-License-Identifier: Apache-2.0
"""Power at rest: what a trickle on an idle machine costs, what few windows, idle ones and those of
another trace tell, and what becomes of a figure that windows contradict.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import model_cases
from model_cases import Case
from power_cases import FACTORS, IDLE_W, Known, calibrated, known, with_energy
from qjoule.engine.class_keys import ClassKeys
from qjoule.engine.memory_adapter import MemoryAdapter
from qjoule.model.arrays import EFFECTS, LONG_TAILS_NS, Entries, WindowBatch
from qjoule.model.batches import cut
from qjoule.model.coefficients import Coefficients, PowerInterval
from qjoule.model.features import FEATURES
from qjoule.model.fit.beliefs import belief_of
from qjoule.model.fit.cells import Cell, Conditions
from qjoule.model.fit.earlier_blocks import IdlePowerEvidence
from qjoule.model.fit.observed import Rows
from qjoule.model.fit.remembered import Now
from qjoule.model.labels import GroupLabel
from qjoule.model.ledger import Ledger
from qjoule.model.power_model import PowerModel

PACKAGE, MS = "package", 1_000_000
LABELS = [GroupLabel("queries", (("fingerprint", f"{i:016x}"),), f"select {i}") for i in range(4)]
NOW_S, HOUR_S = 1.7e9, 3600.0
LONG_TAILS = [EFFECTS.index(f"package_tail_{ns // 1000}us") for ns in LONG_TAILS_NS]


def learn(
    case: Known,
    cells: Sequence[Cell] = (),
    coefficients: Coefficients | None = None,
    *,
    source: int = 1,
) -> tuple[Ledger, tuple[Cell, ...]]:
    """The ledger of a trace, `source` hours after the first, and the cells it learned."""
    when_s = NOW_S + source * HOUR_S
    now = Now(when_s, Conditions())
    memory = MemoryAdapter(cells, ClassKeys(LABELS, {}), source, now, round(when_s * 1e9))
    account = model_cases.account(case.series, (0,), coefficients, memory=memory)
    account.add(case.batch)
    return account.finish(), memory.take()


def idling(seed: int, idle_w: float = IDLE_W) -> Known:
    return known(seed, FACTORS, load=0.05, idle_w=idle_w)


def busy(seed: int, idle_w: float = IDLE_W) -> Known:
    return known(seed + 50, FACTORS, awake=True, idle_w=idle_w)


def at_rest(windows: int, idle_w: float = IDLE_W) -> Known:
    """Windows in which nothing ran."""
    case = known(3, FACTORS, windows=windows, idle_w=idle_w)
    batch, dt_ns = case.batch, np.diff(case.batch.energy.boundaries_ns)
    none = np.zeros((windows, 1), np.int64)
    energy_nj = np.rint(idle_w * dt_ns).astype(np.int64)[None]
    batch = replace(
        batch,
        energy=replace(batch.energy, energy_nj=energy_nj),
        entries=batch.entries.take(slice(0, 0)),
        active_ns=none,
        core_ns=none,
        idle_ns=4 * dt_ns[:, None],
    )
    return replace(case, batch=batch, energy_nj=np.zeros(len(FACTORS)))


def rest_w(ledger: Ledger) -> float:
    return float(ledger.models[PACKAGE].idle_w[0])


@pytest.mark.parametrize("windows", [25, 40, 600])
@pytest.mark.parametrize("length_ms", [20, 1000])
def test_a_trickle_on_an_idle_machine_costs_no_more_than_a_core_can_draw(
    windows: int, length_ms: int
) -> None:
    """A statement runs for a thousandth of each window: its power cannot be separated from rest."""
    length = length_ms * MS
    ran = length // 1000
    rows = [(n * length + MS, n * length + MS + ran, 0, 0) for n in range(windows)]
    energies = model_cases.energy(
        [n * length for n in range(windows + 1)], {(0, PACKAGE): [30 * length] * windows}
    )
    machine = model_cases.machine(0, 0, 0, 0)
    case = Case(machine, energies, model_cases.segments(rows), (), Coefficients(), "separate")
    sums = model_cases.run(case, refit=True).ledger.domains[PACKAGE]
    owners_nj = int(sums.energy_nj.sum())
    assert 0 < owners_nj < 0.01 * sums.measured_nj
    assert owners_nj / (ran * windows) < 80
    assert int(sums.energy_nj.sum()) + sums.idle_nj == sums.measured_nj


def test_few_windows_tell_less_than_many() -> None:
    """Intervals of few windows are wider, and contain the truth."""
    case = known(7, FACTORS)
    widths = []
    for count in (25, 50, 100, 1500):
        batch = cut(case.batch, 0, count)
        account = model_cases.account(case.series)
        account.add(batch)
        ledger = account.finish()
        low, high = ledger.ci95()
        energy_nj = np.maximum(ledger.domains[PACKAGE].energy_nj, 1)
        widths.append(float(((high - low) / energy_nj).mean()))
        share = energy_nj.sum() / ledger.domains[PACKAGE].measured_nj
        assert share < 0.8  # the rest of it is power at rest
    assert all(a > 0.9 * b for a, b in pairwise(widths)), widths


def test_a_memory_counts_from_the_first_window() -> None:
    _, cells = learn(known(1, FACTORS))
    case = known(2, FACTORS, windows=12)
    plain, _ = learn(case, source=2)
    ledger, _ = learn(case, cells, source=2)
    error = [
        np.abs(result.domains[PACKAGE].energy_nj - case.energy_nj).sum() / case.energy_nj.sum()
        for result in (plain, ledger)
    ]
    assert error[1] < 0.05 < error[0]
    assert abs(rest_w(ledger) - IDLE_W) < 1.0


def test_windows_in_which_nothing_ran_tell_power_at_rest() -> None:
    quiet = at_rest(600)
    _, cells = learn(quiet)
    (cell,) = [cell for cell in cells if cell.domain == f"{PACKAGE}/rest"]
    assert float(cell.moment[0] / cell.fixed[0, 0]) == pytest.approx(IDLE_W, rel=0.01)
    ledger, _ = learn(busy(1), cells, source=2)
    assert abs(rest_w(ledger) - IDLE_W) < 0.05 * IDLE_W


def test_idle_times_within_a_block_tell_it_too() -> None:
    """Half a minute of work, and a quarter of a minute without."""
    case, quiet = known(5, FACTORS, windows=800), at_rest(700)
    both = replace(case, batch=after(case, quiet))
    _, cells = learn(both)
    (cell,) = [cell for cell in cells if cell.domain == f"{PACKAGE}/rest"]
    assert float(cell.moment[0] / cell.fixed[0, 0]) == pytest.approx(IDLE_W, rel=0.02)


def after(first: Known, second: Known) -> WindowBatch:
    """The windows of both in turn."""
    a, b = first.batch, second.batch
    end_ns, count = int(a.energy.boundaries_ns[-1]), len(a.idle_ns)
    bounds = np.append(a.energy.boundaries_ns, b.energy.boundaries_ns[1:] + end_ns)
    energy = replace(
        a.energy,
        boundaries_ns=bounds,
        energy_nj=np.concatenate([a.energy.energy_nj, b.energy.energy_nj], axis=1),
        cause=np.concatenate([a.energy.cause, b.energy.cause], axis=1),
        half_width_ns=np.concatenate([a.energy.half_width_ns, b.energy.half_width_ns], axis=1),
    )
    moved = replace(b.entries, window=b.entries.window + count)
    entries = Entries(
        *(
            np.concatenate([getattr(a.entries, field.name), getattr(moved, field.name)])
            for field in fields(Entries)
        )
    )
    return replace(
        a,
        energy=energy,
        entries=entries,
        idle_ns=np.concatenate([a.idle_ns, b.idle_ns]),
        lost_ns=np.concatenate([a.lost_ns, b.lost_ns]),
        active_ns=np.concatenate([a.active_ns, b.active_ns]),
        core_ns=np.concatenate([a.core_ns, b.core_ns]),
    )


def test_one_impossible_trace_does_not_void_what_others_told_and_two_alike_do() -> None:
    _, cells = learn(idling(0))
    strange, odd = learn(idling(1, idle_w=90.0), cells, source=2)
    assert "package power at rest is not what it was: learned anew" in strange.notes
    ledger, _ = learn(busy(1), (*cells, *odd), source=3)
    assert abs(rest_w(ledger) - IDLE_W) < 0.05 * IDLE_W
    # A second trace that shows the same makes it true.
    _, again = learn(idling(2, idle_w=90.0), (*cells, *odd), source=3)
    ledger, _ = learn(busy(1, idle_w=90.0), (*cells, *odd, *again), source=4)
    assert abs(rest_w(ledger) - 90.0) < 0.05 * 90.0


def test_a_trace_corrects_what_it_alone_has_told() -> None:
    """The trace's first blocks show more than power at rest, as while a package waits for a timer
    tick."""
    (wrong,), (right,) = (rest_cells(at_rest(600, w)) for w in (1.6 * IDLE_W, IDLE_W))
    corrected = replace(right, source=wrong.source, when_s=wrong.when_s + 30.0, anew=True)
    ledger, _ = learn(busy(1), (wrong, corrected), source=2)
    assert abs(rest_w(ledger) - IDLE_W) < 0.05 * IDLE_W


def rest_cells(case: Known) -> list[Cell]:
    return [cell for cell in learn(case)[1] if cell.domain == f"{PACKAGE}/rest"]


def lingering(seed: int, tail_w: float) -> Known:
    """A rest in which most sleeps end before the package has left its long tail."""
    case = idling(seed)
    batch, entries = case.batch, case.batch.entries
    first = np.flatnonzero(np.diff(entries.window, prepend=-1))
    windows = entries.window[first]
    idle_ns = (np.diff(batch.energy.boundaries_ns) - batch.active_ns[:, 0])[windows]
    tail_ns = idle_ns * np.random.default_rng(seed).uniform(0.6, 1.0, len(first))
    effects = entries.effects.copy()
    for column in LONG_TAILS:
        effects[first, column] = tail_ns
    energy_nj = batch.energy.energy_nj.copy()
    energy_nj[0, windows] += np.rint(tail_w * tail_ns).astype(np.int64)
    entries = replace(entries, effects=effects)
    return replace(case, batch=replace(with_energy(case, energy_nj), entries=entries))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("tail_w", [0.0, 6.0])
def test_a_rest_of_short_sleeps_tells_power_at_rest_without_tails(seed: int, tail_w: float) -> None:
    (cell,) = rest_cells(lingering(seed, tail_w))
    value_w = float(cell.moment[0] / cell.fixed[0, 0])
    assert abs(value_w - IDLE_W) < 3.0 * float(cell.fixed[0, 0]) ** -0.5 + 0.01 * IDLE_W


def wavering(wave: float) -> Known:
    """A rest in which power goes up and down once, by `wave` of it."""
    quiet = at_rest(600)
    turn = np.sin(np.linspace(0.0, 2.0 * np.pi, 600))
    energy_nj = np.rint(quiet.batch.energy.energy_nj * (1.0 + wave * turn)).astype(np.int64)
    return replace(quiet, batch=with_energy(quiet, energy_nj))


@pytest.mark.parametrize("warmer", [0.94, 1.06])
def test_power_at_rest_that_changes_within_a_rest_may_be_another_one_later(warmer: float) -> None:
    (steady,), (changing,) = (rest_cells(wavering(wave)) for wave in (0.0, 0.08))
    sigma_w = float(changing.fixed[0, 0]) ** -0.5
    assert 0.7 < sigma_w / (0.08 * IDLE_W / 2.0**0.5) < 1.3
    for seed in range(3):
        case = busy(seed, idle_w=warmer * IDLE_W)
        of_steady, of_changing = (learn(case, (one,), source=2)[0] for one in (steady, changing))
        (low, high), (narrow_low, narrow_high) = of_changing.ci95(), of_steady.ci95()
        assert ((low <= case.energy_nj) & (case.energy_nj <= high)).all()
        assert (high - low > narrow_high - narrow_low).all()


SIGMA_W = st.floats(0.01, 100.0)


@given(st.lists(st.tuples(SIGMA_W, SIGMA_W, st.floats(0.0, 100.0)), min_size=1, max_size=3))
def test_what_is_told_of_another_time_is_the_same_value_and_less_certain(
    zones: list[tuple[float, float, float]],
) -> None:
    sigma_w, value_w, changes_w = np.array(zones).T
    evidence = IdlePowerEvidence(sigma_w**-2.0, value_w * sigma_w**-2.0)
    later = evidence.blurred(changes_w)
    assert later.value_w == pytest.approx(value_w)
    assert later.precision**-1.0 == pytest.approx(sigma_w**2 + changes_w**2)
    assert not IdlePowerEvidence.none(len(zones)).blurred(changes_w).known.any()


@pytest.mark.parametrize("warmer", [0.8, 1.3])
def test_a_calibrated_power_at_rest_is_compared_with_the_windows(warmer: float) -> None:
    wrong_w = warmer * IDLE_W
    interval = PowerInterval(wrong_w, wrong_w - 0.2, wrong_w + 0.2)
    coefficients = calibrated(idle_w={(0, PACKAGE): interval})
    case = known(4, FACTORS, windows=300)
    ledger, _ = learn(case, (), coefficients)
    assert "package power at rest is not what was calibrated: learned anew" in ledger.notes
    assert abs(rest_w(ledger) - IDLE_W) < 0.05 * IDLE_W
    low, high = ledger.ci95()
    assert ((low <= case.energy_nj) & (case.energy_nj <= high)).all()
    plain, _ = learn(case, (), calibrated())
    assert not any("power at rest" in note for note in plain.notes)


def test_an_idle_minute_moves_a_calibrated_power_at_rest() -> None:
    """The machine is warmer than at its calibration, and never sleeps while it has work."""
    cold = PowerInterval(0.85 * IDLE_W, 0.84 * IDLE_W, 0.86 * IDLE_W)
    coefficients = calibrated(idle_w={(0, PACKAGE): cold})
    _, cells = learn(idling(0), (), coefficients)
    plain, _ = learn(busy(2), (), coefficients, source=2)
    ledger, _ = learn(busy(2), cells, coefficients, source=2)
    assert abs(rest_w(ledger) - IDLE_W) < 0.08 * IDLE_W
    assert abs(rest_w(ledger) - IDLE_W) < 0.5 * abs(rest_w(plain) - IDLE_W)


def test_a_rest_in_the_trace_leaves_what_is_believed_of_shared_power() -> None:
    """Shared power is drawn by a package that is awake: 100 W here, whatever the package draws at
    rest."""

    def shared_w(rest: int) -> float:
        active = np.append(np.zeros(rest), np.ones(30))
        count = len(active)
        rows = Rows(
            power_w=40.0 + 60.0 * active,
            known=np.ones(count, bool),
            zone=np.zeros(count, np.int64),
            active=active,
            crowd=np.ones((count, 1)),
            features=np.zeros((count, 1, len(FEATURES))),
            classes=np.zeros(0, np.int64),
            effects=np.zeros((count, len(EFFECTS))),
            edge_w=np.zeros(1),
            step_s=1.0,
        )
        prior = PowerModel.of(Coefficients(), "package", [0], counters=True)
        weights = Coefficients().of("package", counters=True)
        return float(belief_of(prior, rows, weights, dram=False).mean[1])

    assert shared_w(0) == shared_w(10) == shared_w(300) == pytest.approx(25.0)
