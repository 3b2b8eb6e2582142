# SPDX-License-Identifier: Apache-2.0
"""Laws of a machine's memory, on windows of known power and on simulated machines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

import model_cases
from power_cases import FACTORS, IDLE_W, Known, calibrated, known
from qjoule.engine.class_keys import ClassKeys
from qjoule.engine.memory_adapter import MemoryAdapter
from qjoule.model.arrays import F64
from qjoule.model.cells_of_time import BLOCK_NS
from qjoule.model.coefficients import Coefficients
from qjoule.model.fit.cells import Cell, Conditions
from qjoule.model.fit.remembered import Now
from qjoule.model.labels import GroupLabel
from qjoule.model.ledger import Ledger

PACKAGE = "package"
LABELS = [GroupLabel("queries", (("fingerprint", f"{i:016x}"),), f"select {i}") for i in range(4)]
NOW_S, HOUR_S, DAY_S = 1.8e9, 3_600.0, 86_400.0


def learn(
    cases: Known | Sequence[Known],
    cells: Sequence[Cell] = (),
    coefficients: Coefficients | None = None,
    *,
    source: int = 1,
    when_s: float = NOW_S,
) -> tuple[Ledger, tuple[Cell, ...]]:
    """The ledger of a trace whose windows are those of `cases` in turn, and the cells it learned.

    The trace begins at `when_s`.
    """
    cases = [cases] if isinstance(cases, Known) else cases
    offset_ns = round(when_s * 1e9)
    memory = MemoryAdapter(
        cells, ClassKeys(LABELS, {}), source, Now(when_s, Conditions()), offset_ns
    )
    account = model_cases.account(cases[0].series, (0,), coefficients, memory=memory)
    first = begin_ns = 0
    for case in cases:
        bounds_ns = case.batch.energy.boundaries_ns + begin_ns
        moved = replace(case.batch.energy, boundaries_ns=bounds_ns)
        account.add(replace(case.batch, first=first, energy=moved))
        first += len(case.batch.idle_ns)
        begin_ns = int(bounds_ns[-1])
    return account.finish(), memory.take()


def length_ns(case: Known) -> int:
    return int(np.diff(case.batch.energy.boundaries_ns[[0, -1]])[0])


def energies(ledger: Ledger) -> F64:
    return ledger.domains[PACKAGE].energy_nj.astype(np.float64)


def assert_conserved(ledger: Ledger, case: Known) -> None:
    sums = ledger.domains[PACKAGE]
    parts = int(sums.energy_nj.sum()) + sums.idle_nj + sums.residual_nj
    assert parts == sums.measured_nj == int(case.batch.energy.energy_nj.sum())


@pytest.mark.parametrize("seed", range(2))
def test_a_trace_in_two_parts_with_memory_between_is_as_one(seed: int) -> None:
    first, second = known(seed, FACTORS), known(seed + 100, FACTORS)
    assert length_ns(first) == BLOCK_NS  # so that both divide into the same blocks
    together, _ = learn([first, second])
    ledger_a, cells = learn(first)
    # The second part begins where the first one ends: its memory has no age.
    ledger_b, _ = learn(second, cells, source=2, when_s=NOW_S + BLOCK_NS * 1e-9)
    assert np.allclose(energies(ledger_a) + energies(ledger_b), energies(together), rtol=1e-4)
    one, two = together.models[PACKAGE], ledger_b.models[PACKAGE]
    assert np.allclose(one.factor, two.factor, rtol=1e-3)
    widths, others = (np.sqrt(np.diag(model.covariance)) for model in (one, two))
    assert np.allclose(widths, others, rtol=0.02)


@pytest.mark.parametrize("seed", range(2))
def test_a_shape_that_changed_is_named_within_a_block(seed: int) -> None:
    _, cells = learn(known(seed, FACTORS))
    same, _ = learn(known(seed + 50, FACTORS), cells, source=2, when_s=NOW_S + DAY_S)
    assert not same.notes
    changed = (1.25, 1.2, 1.0, 1.1)
    case = known(seed + 60, changed)
    ledger, later = learn(case, cells, source=2, when_s=NOW_S + DAY_S)
    assert list(ledger.notes) == ["select 1 does not draw what the memory says"]
    assert np.abs(energies(ledger) / case.energy_nj - 1).max() < 0.06
    # From now on only what was seen since counts.
    after_s = NOW_S + DAY_S + 60
    again, _ = learn(known(seed + 70, changed), (*cells, *later), source=3, when_s=after_s)
    assert not again.notes


def test_a_calibration_that_contradicts_the_memory_is_believed() -> None:
    _, cells = learn(known(1, FACTORS, idle_w=1.5 * IDLE_W))
    case = known(2, FACTORS)
    ledger, _ = learn(case, cells, calibrated(), source=2, when_s=NOW_S + DAY_S)
    plain, _ = learn(case, (), calibrated(), source=2)
    assert "the memory of package power contradicts the calibration: not used" in ledger.notes
    assert np.array_equal(energies(ledger), energies(plain))


@pytest.mark.parametrize("seed", range(3))
def test_energy_is_conserved_whatever_is_remembered(seed: int) -> None:
    case = known(seed, FACTORS, windows=300)
    _, cells = learn(known(seed + 1, (0.3, 3.0, 1.0, 2.0), idle_w=90.0))
    _, rested = learn(idling(seed, idle_w=(3.0, 60.0, 90.0)[seed]))
    for known_cells in (cells, [replace(one, centred=-5 * one.centred) for one in cells], rested):
        ledger, _ = learn(case, known_cells, source=2, when_s=NOW_S + 60)
        assert_conserved(ledger, case)


# ---- power at rest -------------------------------------------------------------------------------
#
# The machine of the later windows never sleeps, so these cannot tell power at rest from the power
# that the package draws once while it is awake.


def idling(seed: int, idle_w: float = IDLE_W) -> Known:
    return known(seed, FACTORS, load=0.05, idle_w=idle_w)


def busy(seed: int, *, counters: bool = True) -> Known:
    return known(seed + 50, FACTORS, awake=True, counters=counters)


def rest_of(cells: Sequence[Cell]) -> list[Cell]:
    return [cell for cell in cells if cell.domain.endswith("/rest")]


def idle_error(ledger: Ledger) -> tuple[float, float]:
    """Of power at rest as learned last: the difference from the truth, and its standard error."""
    model = ledger.models[PACKAGE]
    return abs(float(model.idle_w[0]) - IDLE_W), float(model.covariance[0, 0]) ** 0.5


@pytest.mark.parametrize("counters", [True, False])
def test_an_idle_minute_tells_a_busy_one_its_power_at_rest(counters: bool) -> None:
    _, cells = learn(idling(0))
    case = busy(0, counters=counters)
    alone, _ = learn(case, source=2, when_s=NOW_S + HOUR_S)
    ledger, _ = learn(case, cells, source=2, when_s=NOW_S + HOUR_S)
    error, sigma = idle_error(ledger)
    assert error < 3 * sigma and sigma < 0.05 * IDLE_W
    assert sigma < 0.5 * idle_error(alone)[1]


def test_only_an_idle_machine_tells_of_rest_and_only_one_number_a_package() -> None:
    for case in (known(1, FACTORS), busy(1)):
        _, cells = learn(case)
        assert cells and not rest_of(cells)
    (cell,) = rest_of(learn(idling(2))[1])
    assert cell.domain == f"{PACKAGE}/rest" and cell.names == ("idle_w.0",)
    assert not len(cell.keys) and cell.is_sound
    assert float(cell.moment[0] / cell.fixed[0, 0]) == pytest.approx(IDLE_W, rel=0.02)
