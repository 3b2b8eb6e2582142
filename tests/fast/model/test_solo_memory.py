# SPDX-License-Identifier: Apache-2.0
"""Two programs that ran alone on other days teach how a joint run is divided."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

import model_cases
from model_cases import Case
from qjoule.engine.accounts import divided
from qjoule.engine.class_keys import ClassKeys
from qjoule.engine.memory_adapter import MemoryAdapter
from qjoule.model.coefficients import Coefficients
from qjoule.model.fit.cells import Cell, Conditions
from qjoule.model.fit.remembered import Now
from qjoule.model.labels import GroupLabel
from qjoule.model.ledger import Ledger
from qjoule.model.shares import shares_of
from qjoule.model.windows import SegmentWindows

S = 1_000_000_000
REST_W, SHARED_W, OWN_W = 20.0, 10.0, (5.0, 8.0)  #: power of the two programs, each on two cores
LABELS = [GroupLabel("queries", (("fingerprint", f"{i:016x}"),), f"select {i}") for i in range(2)]


def day(
    number: int,
    programs: Sequence[int],
    cells: Sequence[Cell],
    *,
    asleep_w: float | None = None,
    more: float = 1.0,
) -> tuple[Ledger, list[Cell]]:
    """A minute in which programs ran side by side, all windows alike; none: at rest.

    `asleep_w`: power of another package, in which nothing ran; None: there is none. `more`: what
    the programs draw is multiplied by it.
    """
    bounds = [n * S for n in range(61)]
    watts = REST_W + (SHARED_W if programs else 0.0) + more * sum(OWN_W[p] for p in programs)
    asleep = [] if asleep_w is None else [asleep_w]
    energies = model_cases.energy(
        bounds,
        {(n, "package"): [round(one * S)] * 60 for n, one in enumerate([watts, *asleep])},
    )
    rows = [(0, 60 * S, 2 * p + core, p) for p in programs for core in (0, 1)]
    segments = model_cases.segments(rows)
    counts = np.tile(np.array([150, 200, 1], np.uint64) * np.uint64(S), (len(rows), 1))
    segments = replace(segments, counters=counts, valid=np.ones(counts.shape, bool))
    machine = model_cases.machine(0, 0, 0, 0, *[1] * len(asleep))
    case = Case(machine, energies, segments, (), Coefficients(), "separate")
    when_s = 1.7e9 + 600.0 * number
    now = Now(when_s, Conditions())
    memory = MemoryAdapter(cells, ClassKeys(LABELS, {}), number, now, round(when_s * 1e9))
    packages = tuple(range(1 + len(asleep)))
    account = model_cases.account(case.energy.series, packages, memory=memory)
    ledger = divided(account, SegmentWindows(machine, case.energy), [case.segments])
    return ledger, [*cells, *memory.take()]


def share_ci95(ledger: Ledger) -> tuple[float, float]:
    """Interval of the first program's share."""
    errors = ledger.share_errors(record_loss=0.0, estimated=False)
    measured = shares_of(ledger.domains["package"].energy_nj, errors, ledger.ci95("package"))
    assert measured is not None
    return measured[1][0], measured[2][0]


def width(ledger: Ledger) -> float:
    low, high = share_ci95(ledger)
    return high - low


def test_solo_runs_on_other_days_teach_what_each_draws_beside_the_other() -> None:
    caused = np.array(OWN_W) + SHARED_W / 2
    expected = caused[0] / caused.sum()
    for rested in (False, True):
        cells: list[Cell] = []
        for number, programs in enumerate([[]] * rested + [[0], [1]], 1):
            _, cells = day(number, programs, cells)
        ledger, _ = day(9, [0, 1], cells)
        share = ledger.domains["package"].energy_nj / ledger.domains["package"].energy_nj.sum()
        assert abs(share[0] - expected) < 0.045  # it is 0.065 off where all are alike
        low, high = ledger.ci95()
        assert ((low <= caused * 60 * S) & (caused * 60 * S <= high)).all()
    plain, _ = day(9, [0, 1], [])
    share = plain.domains["package"].energy_nj / plain.domains["package"].energy_nj.sum()
    assert abs(share[0] - 0.5) < 0.01  # nothing tells them apart


@pytest.mark.parametrize("rested", [False, True])
def test_what_a_package_asleep_draws_does_not_void_what_is_remembered_of_the_others(
    rested: bool,
) -> None:
    """A socket beside the busy one drew 28 to 47 W in runs of 2 x Xeon E5-2683 v4."""

    def joint(asleep_w: Sequence[float]) -> Ledger:
        cells: list[Cell] = []
        for number, programs in enumerate([[]] * rested + [[0], [1]], 1):
            _, cells = day(number, programs, cells, asleep_w=asleep_w[number - 1])
        return day(9, [0, 1], cells, asleep_w=asleep_w[-1])[0]

    same, other = joint([20.0] * 4), joint([20.0, 22.5, 19.0, 29.0])
    assert width(other) < 1.1 * width(same)
    assert width(same) < 0.7 * width(day(9, [0, 1], [], asleep_w=20.0)[0])
    for ledger, asleep_w in ((same, 20.0), (other, 29.0)):
        sums = ledger.domains["package"]
        parts = int(sums.energy_nj.sum()) + sums.idle_nj + sums.residual_nj
        assert parts == sums.measured_nj
        assert parts == pytest.approx((REST_W + SHARED_W + sum(OWN_W) + asleep_w) * 60 * S)


def test_more_memory_of_the_same_never_widens() -> None:
    cells: list[Cell] = []
    before = width(day(99, [0, 1], cells)[0])
    for number in range(1, 9):
        _, cells = day(number, [number % 2], cells)
        now = width(day(99, [0, 1], cells)[0])
        assert now < 1.12 * before  # a step of the drift that is allowed for may come in
        before = now


def test_a_memory_that_disagrees_is_believed_less() -> None:
    agreeing: list[Cell] = []
    disagreeing: list[Cell] = []
    for number in (1, 2):
        _, agreeing = day(number, [number - 1], agreeing)
        _, disagreeing = day(number, [number - 1], disagreeing, more=2.5)
    same, other = day(9, [0, 1], agreeing)[0], day(9, [0, 1], disagreeing)[0]
    assert width(other) > 1.2 * width(same)
