# SPDX-License-Identifier: Apache-2.0
"""Laws of a machine's memory, on simulated machines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from bench.accuracy.histories import DAY_S, Day, History, Run, attributed

from model_cases import accounts
from power_cases import IDLE_W, Known, calibrated, known
from qjoule.engine.class_keys import ClassKeys
from qjoule.engine.remembering import Remembering
from qjoule.model.arrays import F64
from qjoule.model.cells_of_time import BLOCK_NS
from qjoule.model.coefficients import Coefficients, PowerInterval
from qjoule.model.fit.cells import Cell, Conditions
from qjoule.model.fit.remembered import Now
from qjoule.model.labels import GroupLabel
from qjoule.model.ledger import Ledger

PACKAGE = "package"
FACTORS = (1.25, 0.8, 1.0, 1.1)
LABELS = [GroupLabel("queries", (("fingerprint", f"{i:016x}"),), f"select {i}") for i in range(4)]
NOW_S = 1.8e9


def learn(
    case: Known,
    cells: Sequence[Cell] = (),
    coefficients: Coefficients | None = None,
    *,
    source: int = 1,
    when_s: float = NOW_S,
) -> tuple[Ledger, tuple[Cell, ...]]:
    """The ledger of a case that begins at `when_s`, and what it told."""
    begin_ns = int(case.batch.energy.boundaries_ns[0])
    offset_ns = round(when_s * 1e9) - begin_ns
    keys = ClassKeys(LABELS, {})
    memory = Remembering(cells, keys, source, Now(when_s, Conditions()), offset_ns)
    account = accounts(case.series, (0,), coefficients or Coefficients()).new(memory=memory)
    account.add(case.batch)
    return account.finish(), memory.take()


def energies(ledger: Ledger) -> F64:
    return ledger.domains[PACKAGE].energy_nj.astype(np.float64)


@pytest.mark.parametrize("seed", range(4))
def test_a_trace_in_two_parts_with_memory_between_is_as_one(seed: int) -> None:
    first, second = known(seed, FACTORS), known(seed + 100, FACTORS)
    span_ns = int(np.diff(first.batch.energy.boundaries_ns[[0, -1]])[0])
    assert span_ns == BLOCK_NS  # so that both divide into the same blocks
    whole = accounts(first.series, (0,), Coefficients()).new()
    whole.add(first.batch)
    moved = replace(second.batch.energy, boundaries_ns=second.batch.energy.boundaries_ns + span_ns)
    count = len(first.batch.idle_ns)
    whole.add(replace(second.batch, first=count, energy=moved))
    together = whole.finish()
    ledger_a, told = learn(first)
    # The second part begins where the first one ends: its memory has no age.
    ledger_b, _ = learn(second, told, source=2, when_s=NOW_S + span_ns * 1e-9)
    assert np.allclose(energies(ledger_a) + energies(ledger_b), energies(together), rtol=1e-4)
    one, two = together.models[PACKAGE], ledger_b.models[PACKAGE]
    assert np.allclose(one.factor, two.factor, rtol=1e-3)
    widths, others = (np.sqrt(np.diag(model.covariance)) for model in (one, two))
    assert np.allclose(widths, others, rtol=0.02)


def test_a_trace_is_not_its_own_memory() -> None:
    case = known(1, FACTORS)
    plain, told = learn(case)
    again, _ = learn(case, told)
    assert np.array_equal(energies(plain), energies(again))
    other, _ = learn(case, told, source=2)
    assert not np.array_equal(energies(plain), energies(other))


@pytest.mark.parametrize("seed", range(3))
def test_a_shape_that_changed_is_named_within_a_block(seed: int) -> None:
    _, told = learn(known(seed, FACTORS))
    case = known(seed + 50, (1.25, 1.2, 1.0, 1.1))  # the second was 0.8
    ledger, later = learn(case, told, source=2, when_s=NOW_S + DAY_S)
    named = [note for note in ledger.notes if "select 1" in note]
    assert named == ["select 1 does not draw what the memory says"]
    assert len(ledger.notes) == 1
    within = np.abs(energies(ledger) / case.energy_nj - 1)
    assert within.max() < 0.06
    # From now on only what was seen since counts.
    again, _ = learn(
        known(seed + 70, (1.25, 1.2, 1.0, 1.1)),
        (*told, *later),
        source=3,
        when_s=NOW_S + DAY_S + 60,
    )
    assert not again.notes


@pytest.mark.parametrize("seed", range(3))
def test_what_did_not_change_is_not_named(seed: int) -> None:
    _, told = learn(known(seed, FACTORS))
    ledger, _ = learn(known(seed + 50, FACTORS), told, source=2, when_s=NOW_S + DAY_S)
    assert not ledger.notes


def test_a_memory_that_does_not_predict_the_windows_is_not_used() -> None:
    _, told = learn(known(1, FACTORS, idle_w=3 * IDLE_W))
    case = known(2, FACTORS)
    sure = calibrated(idle_w={(0, PACKAGE): PowerInterval(IDLE_W, 5.0, 40.0)})
    for coefficients in (Coefficients(), sure):
        ledger, _ = learn(case, told, coefficients, source=2, when_s=NOW_S + 60)
        plain, _ = learn(case, (), coefficients, source=2)
        assert np.abs(energies(ledger) / energies(plain) - 1).max() < 0.02


def test_a_calibration_that_contradicts_the_memory_is_believed() -> None:
    _, told = learn(known(1, FACTORS, idle_w=1.5 * IDLE_W))
    case = known(2, FACTORS)
    ledger, _ = learn(case, told, calibrated(), source=2, when_s=NOW_S + DAY_S)
    plain, _ = learn(case, (), calibrated(), source=2)
    assert "the memory of package power contradicts the calibration: not used" in ledger.notes
    assert np.array_equal(energies(ledger), energies(plain))


@pytest.mark.parametrize("seed", range(5))
def test_energy_is_conserved_whatever_is_remembered(seed: int) -> None:
    case = known(seed, FACTORS, windows=300)
    _, told = learn(known(seed + 1, (0.3, 3.0, 1.0, 2.0), idle_w=90.0))
    for cells in (told, [replace(one, centred=-5 * one.centred) for one in told]):
        ledger, _ = learn(case, cells, source=2, when_s=NOW_S + 60)
        sums = ledger.domains[PACKAGE]
        parts = int(sums.energy_nj.sum()) + sums.idle_nj + sums.residual_nj
        assert parts == sums.measured_nj == int(case.batch.energy.energy_nj.sum())


def covered(run: Run, ledger: Ledger) -> list[bool]:
    """Of each statement: whether its interval contains the truth."""
    low, high = ledger.ci95(PACKAGE)
    truth = run.truth.group_nj[PACKAGE]
    rows = [i for i, group in enumerate(run.recording.groups) if group.kind == "queries"]
    return [bool(low[i] <= truth[i] <= high[i]) for i in rows if truth[i] > 0]


def shares(values: F64, run: Run) -> F64:
    rows = [i for i, group in enumerate(run.recording.groups) if group.kind == "queries"]
    return np.asarray(values[rows] / values[rows].sum())


@pytest.fixture(scope="module")
def pairs() -> list[tuple[Run, Ledger]]:
    """Two statements that always run, with little variation; each ran alone once, last week."""
    found = []
    for seed in range(10):
        history = History.draw(seed, steady=True)
        cells: tuple[Cell, ...] = ()
        for number, name in enumerate(history.statements):
            day = Day((name,), 20.0, NOW_S + 600.0 * number)
            _, cells = attributed(history.run(day), day, cells)
        day = Day((), 20.0, NOW_S + 7 * DAY_S)
        run = history.run(day)
        found.append((run, attributed(run, day, cells)[0]))
    return found


def test_a_mixed_run_of_two_shapes_seen_alone_last_week(pairs: list[tuple[Run, Ledger]]) -> None:
    apart = [
        float(np.abs(shares(energies(ledger), run) - shares(run.truth.group_nj[PACKAGE], run))[0])
        for run, ledger in pairs
    ]
    assert max(apart) <= 0.02


def test_intervals_hold_with_a_memory(pairs: list[tuple[Run, Ledger]]) -> None:
    inside = [one for run, ledger in pairs for one in covered(run, ledger)]
    assert np.mean(inside) >= 0.9


HARDWARE = {"fan": 1.25, "one more module": 1.10}


@pytest.mark.parametrize("change", ["shape", *HARDWARE])
def test_a_memory_never_narrows_an_interval_that_the_truth_then_leaves(change: str) -> None:
    with_memory: list[bool] = []
    for seed in range(8):
        history = History.draw(seed, shapes=3)
        day = Day((), 20.0, NOW_S)
        _, cells = attributed(history.run(day), day, ())
        if change == "shape":
            name = history.statements[seed % 3]
            day = Day((), 20.0, NOW_S + DAY_S, factor=((name, 1.3 if seed % 2 else 0.75),))
        else:
            machine = history.machine
            now = replace(
                machine,
                idle_w=HARDWARE[change] * machine.idle_w,
                cycle_nj=0.85 * machine.cycle_nj,
            )
            history = replace(history, machine=now)
            day = Day((), 20.0, NOW_S + DAY_S)
        run = history.run(day)
        with_memory += covered(run, attributed(run, day, cells)[0])
    assert np.mean(with_memory) >= 0.9
