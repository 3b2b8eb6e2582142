# SPDX-License-Identifier: Apache-2.0
"""The physical test's verdict on simulated machines that draw 15 to 60 % of their power once.

Runs are traces on disk. They take the whole way of the test: powers, attribution, division,
verdict.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from physical_cells import SimulatedLoad
from physical_machine import SimulatedMachine, machine
from qjoule.model.physical import PhysicalTest, Round, Verdict, judge
from qjoule.physical import load, reading
from qjoule.physical.load import Query, Run
from qjoule.physical.reading import Division
from qjoule.trace.reader import Trace

pytestmark = pytest.mark.beside

#: Draws more than twice of what B draws: 50:50, as time says, is far from the truth.
A = SimulatedLoad(load.A.fingerprint, instructions=7.0, misses=0.0)
B = SimulatedLoad(load.B.fingerprint, instructions=0.8, misses=0.005)
SIMULATED = {load.A: A, load.B: B}
SECONDS = 1.5
RESIDUALS = (0.15, 0.45, 0.6)


def measured(
    folder: Path, of: SimulatedMachine, calibration: str, number: int
) -> tuple[Round, Division]:
    """A round as `qjoule doctor --physical` measures it."""

    def recorded(*queries: Query) -> tuple[Trace, Run]:
        path = folder / f"{number}-{'-'.join(query.name for query in queries)}"
        seed = 10 * number + len(list(folder.iterdir()))
        begin_ns, end_ns = of.record(path, [SIMULATED[q] for q in queries], SECONDS, seed)
        calls = {q.name: round((end_ns - begin_ns) / SIMULATED[q].call_ns) for q in queries}
        return Trace(path), Run(begin_ns, end_ns, calls)

    a, b, both = recorded(load.A), recorded(load.B), recorded(load.A, load.B)
    return reading.round_of(a, b, both, calibration)


def judged(folder: Path, of: SimulatedMachine, calibration: str) -> PhysicalTest:
    return judge([measured(folder, of, calibration, number)[0] for number in range(3)])


@pytest.mark.parametrize("residual", RESIDUALS)
def test_the_division_agrees_with_what_each_load_adds(tmp_path: Path, residual: float) -> None:
    of = machine(residual, (A, B))
    calibration = str(of.calibration(tmp_path / "calibration.json"))
    rounds = [measured(tmp_path, of, calibration, number) for number in range(3)]
    test = judge([one for one, _ in rounds])
    true_share = of.own_w(A) / (of.own_w(A) + of.own_w(B))
    assert true_share > 0.65
    assert test.verdict is Verdict.AGREES, test.why
    assert test.a.physical_share.value == pytest.approx(true_share, abs=0.02)
    assert test.a.split_share.value == pytest.approx(true_share, abs=0.02)
    once_w = of.rest_w + of.once_w
    assert test.residual_w.value == pytest.approx(once_w, rel=0.05)


WRONG = {
    "only time counts": {"a": 0.0, "b": 0.0, "c": 0.0, "t": 6.0},
    "instructions and misses cost nothing": {"a": 2.0, "b": 0.0, "c": 0.0},
    "misses cost six times as much": {"c": 720.0},
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
@pytest.mark.parametrize("residual", RESIDUALS[1:])
def test_a_wrong_attribution_is_refused(
    tmp_path: Path, residual: float, wrong: dict[str, float]
) -> None:
    of = machine(residual, (A, B))
    calibration = of.calibration(tmp_path / "calibration.json", **wrong)
    test = judged(tmp_path, of, str(calibration))
    assert test.verdict is Verdict.DIFFERS
    assert "off by" in test.why
