# SPDX-License-Identifier: Apache-2.0
"""The physical test's verdict on simulated machines that draw 15 to 60 % of their power once.

Runs are traces on disk. They take the whole way of the test: powers, attribution, division,
verdict.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from physical_cells import SimulatedLoad
from physical_machine import SimulatedMachine, machine
from qjoule.model.physical import PhysicalTest, Round, Verdict, judge
from qjoule.physical import load, reading
from qjoule.physical.load import Query, Run
from qjoule.physical.reading import Division
from qjoule.trace.reader import Trace

#: Draws more than twice of what B draws: 50:50, as time says, is far from the truth.
A = SimulatedLoad(load.A.fingerprint, instructions=7.0, misses=0.0)
B = SimulatedLoad(load.B.fingerprint, instructions=0.8, misses=0.005)
SIMULATED = {load.A: A, load.B: B}
SECONDS = 1.5
RESIDUALS = (0.15, 0.3, 0.45, 0.6)


def measured(
    folder: Path, of: SimulatedMachine, calibration: str, rounds: int = 3
) -> list[tuple[Round, Division]]:
    """Rounds as `qjoule doctor --physical` measures them."""
    return [_round(folder, of, calibration, number) for number in range(rounds)]


def _round(
    folder: Path, of: SimulatedMachine, calibration: str, number: int
) -> tuple[Round, Division]:
    def recorded(*queries: Query) -> tuple[Trace, Run]:
        path = folder / f"{number}-{'-'.join(query.name for query in queries)}"
        seed = 10 * number + len(list(folder.iterdir()))
        begin_ns, end_ns = of.record(path, [SIMULATED[q] for q in queries], SECONDS, seed)
        calls = {q.name: round((end_ns - begin_ns) / SIMULATED[q].call_ns) for q in queries}
        return Trace(path), Run(begin_ns, end_ns, calls)

    a, b, both = recorded(load.A), recorded(load.B), recorded(load.A, load.B)
    return reading.round_of(a, b, both, calibration)


def verdict(found: list[tuple[Round, Division]]) -> PhysicalTest:
    return judge([one for one, _ in found])


def with_shared(found: list[tuple[Round, Division]]) -> PhysicalTest:
    """The verdict on energies from which the shared part is not subtracted."""
    return judge(
        [
            replace(one, split_a=divided.energy_nj["A"], split_b=divided.energy_nj["B"])
            for one, divided in found
        ]
    )


@pytest.mark.parametrize("residual", RESIDUALS)
def test_the_division_agrees_with_what_each_load_adds(tmp_path: Path, residual: float) -> None:
    of = machine(residual, (A, B))
    found = measured(tmp_path, of, str(of.calibration(tmp_path / "calibration.json")))
    test = verdict(found)
    true_share = of.own_w(A) / (of.own_w(A) + of.own_w(B))
    assert true_share > 0.65
    assert test.verdict is Verdict.AGREES, test.why
    assert test.a.physical_share.value == pytest.approx(true_share, abs=0.02)
    assert test.a.split_share.value == pytest.approx(true_share, abs=0.02)
    once_w = of.rest_w + of.once_w
    assert test.residual_w.value == pytest.approx(once_w, rel=0.05)


@pytest.mark.parametrize("residual", RESIDUALS[2:])
def test_energy_with_its_shared_part_would_be_refused(tmp_path: Path, residual: float) -> None:
    """What is drawn once is in both rows in equal parts, and pulls their ratio towards 1."""
    of = machine(residual, (A, B))
    found = measured(tmp_path, of, str(of.calibration(tmp_path / "calibration.json")))
    assert verdict(found).verdict is Verdict.AGREES
    assert with_shared(found).verdict is Verdict.DIFFERS


WRONG = {
    "only time counts": {"a": 0.0, "b": 0.0, "c": 0.0, "t": 6.0},
    "instructions and misses cost nothing": {"a": 2.0, "b": 0.0, "c": 0.0},
    "misses cost six times as much": {"c": 720.0},
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
@pytest.mark.parametrize("residual", RESIDUALS[2:])
def test_a_wrong_attribution_is_refused(
    tmp_path: Path, residual: float, wrong: dict[str, float]
) -> None:
    of = machine(residual, (A, B))
    found = measured(tmp_path, of, str(of.calibration(tmp_path / "calibration.json", **wrong)))
    test = verdict(found)
    assert test.verdict is Verdict.DIFFERS
    assert "off by" in test.why


def test_without_a_calibration_the_split_is_not_called_right(tmp_path: Path) -> None:
    """Both loads always run together, so nothing but a calibration can tell them apart."""
    assert verdict(measured(tmp_path, machine(0.45, (A, B)), "none")).verdict is Verdict.DIFFERS
