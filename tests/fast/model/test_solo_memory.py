# SPDX-License-Identifier: Apache-2.0
"""Two programs that ran alone on other days teach how a joint run is divided."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

import model_cases
from model_cases import Case
from qjoule.engine.accounts import ClassKeys, divided
from qjoule.engine.memory_adapter import MemoryAdapter
from qjoule.model.coefficients import Coefficients
from qjoule.model.fit.cells import Cell, Conditions
from qjoule.model.fit.remembered import Now
from qjoule.model.labels import GroupLabel
from qjoule.model.ledger import Ledger
from qjoule.model.windows import SegmentWindows

S = 1_000_000_000
REST_W, SHARED_W, OWN_W = 20.0, 10.0, (5.0, 8.0)  #: power of the two programs, each on two cores
LABELS = [GroupLabel("queries", (("fingerprint", f"{i:016x}"),), f"select {i}") for i in range(2)]


def day(number: int, programs: Sequence[int], cells: Sequence[Cell]) -> tuple[Ledger, list[Cell]]:
    """A minute in which programs ran side by side, all windows alike; none: at rest."""
    bounds = [n * S for n in range(61)]
    watts = REST_W + (SHARED_W if programs else 0.0) + sum(OWN_W[p] for p in programs)
    energies = model_cases.energy(bounds, {(0, "package"): [round(watts * S)] * 60})
    rows = [(0, 60 * S, 2 * p + core, p) for p in programs for core in (0, 1)]
    segments = model_cases.segments(rows)
    counts = np.tile(np.array([150, 200, 1], np.uint64) * np.uint64(S), (len(rows), 1))
    segments = replace(segments, counters=counts, valid=np.ones(counts.shape, bool))
    machine = model_cases.machine(0, 0, 0, 0)
    case = Case(machine, energies, segments, (), Coefficients(), "separate")
    when_s = 1.7e9 + 600.0 * number
    now = Now(when_s, Conditions())
    memory = MemoryAdapter(cells, ClassKeys(LABELS, {}), number, now, round(when_s * 1e9))
    account = model_cases.account(case.energy.series, memory=memory)
    ledger = divided(account, SegmentWindows(machine, case.energy), [case.segments])
    return ledger, [*cells, *memory.take()]


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
