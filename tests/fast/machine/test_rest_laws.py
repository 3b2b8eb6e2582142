# SPDX-License-Identifier: Apache-2.0
"""Laws of the power at rest that a nearly idle machine tells, on windows of known power.

The machine of the later windows never sleeps, so these cannot tell power at rest from the power
that the package draws once while it is awake.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from model_cases import accounts
from power_cases import FACTORS, IDLE_W, Known, calibrated, known
from qjoule.engine.class_keys import ClassKeys
from qjoule.engine.remembering import Remembering
from qjoule.model.cells_of_time import BLOCK_NS
from qjoule.model.coefficients import Coefficients
from qjoule.model.fit.cells import Cell, Conditions
from qjoule.model.fit.remembered import Now
from qjoule.model.labels import GroupLabel
from qjoule.model.ledger import Ledger

PACKAGE = "package"
LABELS = [GroupLabel("queries", (("fingerprint", f"{i:016x}"),), f"select {i}") for i in range(4)]
NOW_S, HOUR_S = 1.8e9, 3600.0
NOT_AS_IT_WAS = "package power at rest is not what it was: learned anew"


def idling(seed: int, idle_w: float = IDLE_W) -> Known:
    return known(seed, FACTORS, load=0.05, idle_w=idle_w)


def busy(seed: int, *, idle_w: float = IDLE_W, counters: bool = True) -> Known:
    return known(seed + 50, FACTORS, awake=True, idle_w=idle_w, counters=counters)


def learn(
    cases: Sequence[Known],
    cells: Sequence[Cell] = (),
    coefficients: Coefficients | None = None,
    *,
    source: int = 1,
    when_s: float = NOW_S,
) -> tuple[Ledger, tuple[Cell, ...]]:
    """The ledger of a trace whose windows are those of `cases` in turn, and what it told."""
    offset_ns = round(when_s * 1e9)
    memory = Remembering(cells, ClassKeys(LABELS, {}), source, Now(when_s, Conditions()), offset_ns)
    account = accounts(cases[0].series, (0,), coefficients or Coefficients()).new(memory=memory)
    first = begin_ns = 0
    for case in cases:
        energy = replace(
            case.batch.energy, boundaries_ns=case.batch.energy.boundaries_ns + begin_ns
        )
        account.add(replace(case.batch, first=first, energy=energy))
        first += len(case.batch.idle_ns)
        begin_ns = int(energy.boundaries_ns[-1])
    return account.finish(), memory.take()


def idle_error(ledger: Ledger) -> tuple[float, float]:
    """Of power at rest as learned last: the difference from the truth, and its standard error."""
    model = ledger.models[PACKAGE]
    return abs(float(model.idle_w[0]) - IDLE_W), float(model.covariance[0, 0]) ** 0.5


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("counters", [True, False])
def test_an_idle_minute_tells_a_busy_one_its_power_at_rest(seed: int, counters: bool) -> None:
    _, told = learn([idling(seed)])
    case = busy(seed, counters=counters)
    alone, _ = learn([case], source=2, when_s=NOW_S + HOUR_S)
    ledger, _ = learn([case], told, source=2, when_s=NOW_S + HOUR_S)
    error, sigma = idle_error(ledger)
    assert error < 3 * sigma and sigma < 0.05 * IDLE_W
    assert sigma < 0.5 * idle_error(alone)[1]


@pytest.mark.parametrize("seed", range(3))
def test_it_makes_little_difference_whether_it_was_in_the_same_trace(seed: int) -> None:
    """Power at rest is known as well; the block's other evidence is checked by the memory."""
    idle, case = idling(seed), busy(seed)
    span_ns = int(np.diff(idle.batch.energy.boundaries_ns[[0, -1]])[0])
    assert span_ns == BLOCK_NS
    together, _ = learn([idle, case])
    _, told = learn([idle])
    apart, _ = learn([case], told, source=2, when_s=NOW_S + span_ns * 1e-9)
    one, two = together.models[PACKAGE], apart.models[PACKAGE]
    assert np.allclose(one.idle_w, two.idle_w, rtol=0.01)
    assert max(idle_error(ledger)[1] for ledger in (together, apart)) < 0.025 * IDLE_W


def test_a_busy_machine_tells_nothing_of_rest() -> None:
    for case in (known(1, FACTORS), busy(1)):
        _, told = learn([case])
        assert told and not [cell for cell in told if cell.domain.endswith("/rest")]


def test_a_cell_on_rest_holds_no_shape_and_one_number_a_package() -> None:
    _, told = learn([idling(2)])
    (cell,) = [cell for cell in told if cell.domain.endswith("/rest")]
    assert cell.domain == f"{PACKAGE}/rest" and cell.names == ("idle_w.0",)
    assert not len(cell.keys) and cell.is_sound
    assert float(cell.moment[0] / cell.fixed[0, 0]) == pytest.approx(IDLE_W, rel=0.02)


@pytest.mark.parametrize("was", [0.5, 2.0])
def test_power_at_rest_that_changed_is_noticed_and_said(was: float) -> None:
    """Windows in which the package sleeps again show it; only then can it be told."""
    _, told = learn([idling(1, idle_w=was * IDLE_W)])
    ledger, later = learn([known(3, FACTORS)], told, source=2, when_s=NOW_S + HOUR_S)
    assert NOT_AS_IT_WAS in ledger.notes
    plain, _ = learn([known(3, FACTORS)], source=2)
    assert idle_error(ledger)[0] < idle_error(plain)[0] + 0.5
    # It is void from then on, for later traces too.
    again, _ = learn([known(4, FACTORS)], (*told, *later), source=3, when_s=NOW_S + 2 * HOUR_S)
    assert NOT_AS_IT_WAS not in again.notes


def test_a_calibration_is_believed_instead() -> None:
    _, told = learn([idling(1, idle_w=1.1 * IDLE_W)])
    rest = [cell for cell in told if cell.domain.endswith("/rest")]
    ledger, _ = learn([busy(1)], rest, calibrated(), source=2, when_s=NOW_S + HOUR_S)
    plain, _ = learn([busy(1)], (), calibrated(), source=2)
    a, b = (one.domains[PACKAGE].energy_nj for one in (ledger, plain))
    assert np.array_equal(a, b)


@pytest.mark.parametrize("seed", range(4))
def test_energy_is_conserved_whatever_is_known_of_rest(seed: int) -> None:
    _, told = learn([idling(seed, idle_w=(3.0, 60.0)[seed % 2])])
    case = busy(seed)
    ledger, _ = learn([case], told, source=2, when_s=NOW_S + HOUR_S)
    sums = ledger.domains[PACKAGE]
    parts = int(sums.energy_nj.sum()) + sums.idle_nj + sums.residual_nj
    assert parts == sums.measured_nj == int(case.batch.energy.energy_nj.sum())
