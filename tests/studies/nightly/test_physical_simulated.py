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
from physical_kit_cases import SIMULATED as KIT_LOADS
from physical_kit_cases import collected, host
from physical_machine import SimulatedMachine, machine
from qjoule.model.physical import PhysicalTest, Round, Verdict, judge
from qjoule.physical import load, reading
from qjoule.physical.kit.collect import Collection, collect
from qjoule.physical.kit.document import Document
from qjoule.physical.kit.judged import pairs, rest_w
from qjoule.physical.kit.schedule import SHORTEST_S, schedule
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


@pytest.mark.parametrize("residual", RESIDUALS[1:])
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
@pytest.mark.parametrize("residual", RESIDUALS[1:])
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


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Document:
    """All runs of two servers."""
    return collected(host(tmp_path_factory.mktemp("kit")))


def test_every_pair_of_a_right_attribution_agrees(kit: Document) -> None:
    found = pairs(kit)
    assert len(found) == 15
    assert {pair.verdict for pair in found} == {Verdict.AGREES}
    assert sum(pair.held for pair in found) >= 28  # of 30, at 95 %


def test_bursts_are_charged_what_their_pauses_leave_to_others(kit: Document) -> None:
    """A load that keeps the package awake in the other's pauses adds what is shared then."""
    found = {(pair.a.name, pair.b.name): pair for pair in pairs(kit)}
    test = found["mariadb computing", "mariadb bursts"].test
    assert test is not None
    computing = next(run for run in kit.runs if run.loads == (0,)).parts[0]
    assert test.a.adds_w.value > computing.energy_w - computing.shared_w + 1.0


def test_loads_have_their_power(kit: Document, tmp_path: Path) -> None:
    of, loads = host(tmp_path).machine, tuple(KIT_LOADS.values())
    alone = {run.loads: run for run in kit.runs if len(run.parts) == 1}
    for position in (0, 1, 3, 4):
        part = alone[position,].parts[0]
        expected_w = of.own_w(loads[position]) + of.once_w
        assert part.energy_w == pytest.approx(expected_w, rel=0.05)
        assert part.shared_w == pytest.approx(of.once_w, rel=0.05)
        assert part.low_w <= expected_w <= part.high_w
        assert alone[position,].power_w == pytest.approx(of.rest_w + expected_w, rel=0.05)
    assert rest_w(kit) == pytest.approx(of.rest_w + 0.01 * (of.once_w + 3), rel=0.1)


@pytest.mark.parametrize(
    ("wrong", "verdict"),
    [({}, Verdict.AGREES), ({"p3": 0.0}, Verdict.DIFFERS)],
    ids=["known", "not known"],
)
def test_a_package_that_is_slow_to_sleep(
    tmp_path: Path, wrong: dict[str, float], verdict: Verdict
) -> None:
    """It draws 4 W for 0.8 ms after its last core slept: longer than most pauses of bursts."""
    on = host(tmp_path, ["mariadb"])
    on.machine = replace(on.machine, tail_w=4.0)
    found = pairs(collected(on, 3, 0.8, **wrong))
    assert found[0].verdict is Verdict.AGREES
    assert {pair.verdict for pair in found[1:]} == {verdict}


def test_the_budget_is_kept(tmp_path: Path) -> None:
    """The clock says that every round takes three minutes, so later runs are shorter."""
    on, now = host(tmp_path, ["mariadb"]), iter(range(0, 10**6, 90))
    plan = schedule(on.loads, frozenset(), budget_s=270.0, rounds=3)
    collect(
        on, plan, Collection(), lambda _words: None, calibration="none", clock=lambda: next(now)
    )
    lengths = [seconds for _, seconds in on.made]
    assert lengths[0] > lengths[-1] == SHORTEST_S
