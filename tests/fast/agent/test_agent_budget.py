# SPDX-License-Identifier: Apache-2.0
"""The cost of tracing is measured as shares of the machine, and held within its budget. Also: the
flight recorder beside the agent.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from qjoule.agent.cost import SAMPLE_S, Cost, CostMeter, ProgramTotals
from qjoule.agent.degradation import HOLD_S, LEVELS, MOST_HOLD_S, Controller, DegradationLevel
from qjoule.agent.recordings import AGAIN_S, FlightRecorder, create_directory
from qjoule.errors import QjouleError
from qjoule.metrics.exposition import Family

LIMIT = 0.01
DAY_S = 86_400.0
START_S = 5.0
#: What each level leaves of the cost of the one before.
RATIOS = st.tuples(*[st.floats(0.1, 1.0)] * (len(LEVELS) - 1))


class SimulatedAgent:
    """Days of an agent whose measurements have an error of some percent."""

    def __init__(
        self, full: Callable[[float], float], ratios: tuple[float, ...], days: float, seed: int
    ) -> None:
        """`full`: the share of the CPU that level 0 costs, by seconds since the beginning."""
        self.times: list[float] = []
        self.levels: list[int] = []
        self.shares: list[float] = []
        chance = random.Random(seed)
        wall_s = begin_s = 1.8e9
        controller = Controller(LIMIT, DegradationLevel())
        while wall_s < begin_s + days * DAY_S:
            wall_s += chance.uniform(15, 45)
            share = full(wall_s - begin_s)
            for ratio in ratios[: controller.shed.level]:
                share *= ratio
            change = controller.take(share * chance.uniform(0.95, 1.05), wall_s)
            self.times.append(wall_s - begin_s)
            self.levels.append(controller.shed.level)
            self.shares.append(share)
            if change is not None:
                assert abs(change.level - controller.shed.level) == 1 and change.valid()
                controller = Controller(LIMIT, change)
                wall_s += START_S

    @property
    def changes(self) -> int:
        return sum(a != b for a, b in pairwise(self.levels))


@given(st.floats(0.0, 0.05), RATIOS, st.integers(0, 2**32))
def test_a_steady_load_stays_within_the_budget(
    load: float, ratios: tuple[float, ...], seed: int
) -> None:
    run = SimulatedAgent(lambda _: load, ratios, 3, seed)
    # Shedding, and recoveries that were taken back, each after twice the time of the one before.
    assert run.changes <= len(LEVELS) - 1 + 10
    at_last_level = load
    for ratio in ratios:
        at_last_level *= ratio
    if at_last_level <= 0.94 * LIMIT:
        assert fmean(run.shares) <= 1.03 * LIMIT
    else:
        half = len(run.levels) // 2
        assert load <= 1.06 * LIMIT or fmean(run.levels[half:]) > 0
    if load <= 0.94 * LIMIT:
        assert not any(run.levels), "what fits is never left out"


@given(st.floats(0.012, 0.05), RATIOS, st.integers(0, 2**32))
def test_it_recovers_when_the_load_falls(load: float, ratios: tuple[float, ...], seed: int) -> None:
    run = SimulatedAgent(lambda s: load if s < DAY_S else 0.0005, ratios, 4, seed)
    assert any(run.levels), "it was left out first"
    assert run.levels[-1] == 0
    # At the latest once every hold, the longest one included, has passed.
    steps = zip(run.times, run.levels, strict=True)
    back_s = next(s for s, level in steps if s > DAY_S and not level)
    assert back_s <= DAY_S + MOST_HOLD_S + len(LEVELS) * HOLD_S


@given(
    st.floats(0.002, 0.03), st.floats(0.0, 0.02), st.floats(600, 2 * DAY_S), RATIOS, st.integers(0)
)
@example(0.005859375, 0.015625, 3991.0, (0.5, 1.0), 1)  # sheds both levels, and recovers both
def test_loads_that_come_and_go_do_not_make_it_flap(
    low: float, more: float, period_s: float, ratios: tuple[float, ...], seed: int
) -> None:
    run = SimulatedAgent(lambda s: low + more * (s % period_s < period_s / 2), ratios, 3, seed)
    assert run.changes <= 3 * 24, "not more than about once per hour"


CPUS, QUERIES_PER_S = 4, 10_000


class Kernel:
    """A clock, and programs that run for each query: 0.2 us in a uprobe, 1 us in another."""

    def __init__(self, error: Exception | None = None) -> None:
        self.now_s, self.queries, self.error = 100.0, 0.0, error
        self.fd = -1
        self.asked = 0

    def ask(self) -> tuple[ProgramTotals, int]:
        self.asked += 1
        if self.error is not None:
            raise self.error
        n = int(self.queries)
        self.fd = os.open("/dev/null", os.O_RDONLY)
        return ProgramTotals(n, 1200 * n), self.fd

    def closed(self) -> bool:
        """Whether the descriptor is, with which the kernel keeps accounts."""
        return not Path(f"/proc/self/fd/{self.fd}").exists()


def meter_of(kernel: Kernel, messages: list[str], trap_ns: float = 0.0) -> CostMeter:
    processes = {"engine": os.getpid(), "gone": 2**22 + 1}
    return CostMeter(
        processes, kernel.ask, trap_ns, messages.append, CPUS, clock=lambda: kernel.now_s
    )


def measured(kernel: Kernel, meter: CostMeter, seconds: float) -> list[Cost]:
    costs = []
    for _ in range(int(seconds / 0.2)):
        kernel.now_s += 0.2
        kernel.queries += 0.2 * QUERIES_PER_S
        if (cost := meter.tick()) is not None:
            costs.append(cost)
    return costs


def by_part(families: Sequence[Family], name: str) -> dict[str, float]:
    samples: Any = next((family.samples for family in families if family.name == name), ())
    return {sample.labels[0][1]: float(sample.value) for sample in samples}


def test_programs_and_traps_are_shares_of_all_cpus() -> None:
    kernel, messages = Kernel(), list[str]()
    meter = meter_of(kernel, messages, trap_ns=3000.0)
    assert meter.cost is None and not by_part(list(meter.families()), "qjoule_budget_used_ratio")
    costs, accounted_s = list[Cost](), 0.0
    for _ in range(3000):
        costs += measured(kernel, meter, 0.2)
        accounted_s += 0.0 if kernel.closed() else 0.2
    assert 0 < accounted_s / 600 <= (SAMPLE_S + 0.4) / 15, "the kernel accounts in samples alone"
    assert 600 / 45 - 1 <= len(costs) <= 600 / 15 + 1
    for cost in costs:
        assert cost.programs == pytest.approx(1.2e-6 * QUERIES_PER_S / CPUS, rel=1e-3)
        assert cost.traps == pytest.approx(3e-6 * QUERIES_PER_S / CPUS, rel=1e-3)
        parts = cost.processes + (cost.programs or 0.0) + (cost.traps or 0.0)
        assert cost.known == pytest.approx(parts)
    families = list(meter.families())
    hooks = by_part(families, "qjoule_hook_cpu_seconds")
    assert hooks["traps"] / hooks["programs"] == pytest.approx(2.5)
    # Extrapolated to all of the time but the last, unfinished stretch.
    assert 600 - 50 <= hooks["programs"] / (1.2e-6 * QUERIES_PER_S) <= 600
    assert set(by_part(families, "qjoule_budget_used_ratio")) == {"processes", "programs", "traps"}
    meter.close()
    assert kernel.closed() and not messages


def test_a_cost_that_is_unknown_is_no_zero() -> None:
    kernel, messages = Kernel(), list[str]()
    meter = meter_of(kernel, messages)
    assert {cost.traps for cost in measured(kernel, meter, 120)} == {None}
    assert len(messages) == 1 and "budget.trap_ns" in messages[0]
    kernel = Kernel(error=QjouleError("not permitted"))
    meter = meter_of(kernel, messages)
    costs = measured(kernel, meter, 200)
    assert costs and {(cost.programs, cost.traps) for cost in costs} == {(None, None)}
    assert kernel.asked == 1
    assert messages[1:] == ["what hooks cost the servers is unknown: not permitted"]
    assert set(by_part(list(meter.families()), "qjoule_budget_used_ratio")) == {"processes"}


# ---- the flight recorder beside the agent, with a root part of a test ----------------------------


@dataclass
class FakeRootPart:
    """Records nothing. `started`: how often."""

    directory: Path
    started: int = 0
    runs: bool = False
    refuses: bool = False

    def start(self) -> FakeRootPart:
        if self.refuses:
            raise QjouleError("not permitted")
        self.started += 1
        (self.directory / f"qjoule-20260103-00000{self.started}.qjoule/ring").mkdir(parents=True)
        self.runs = True
        return self

    def exit_code(self, *, wait: bool) -> int | None:
        return 0 if wait or not self.runs else None


def test_it_is_started_again_and_leaves_one_ring_and_the_newest_parts(tmp_path: Path) -> None:
    first, second = (tmp_path / f"qjoule-2026010{day}-120000.qjoule" for day in (1, 2))
    for old in (first, second):
        (old / "ring").mkdir(parents=True)
    parts = [first / f"kept-20260101T00000{n}Z-key" for n in range(3)]
    for part in parts:
        part.mkdir()
    root, messages = FakeRootPart(tmp_path), list[str]()
    recorder = FlightRecorder(tmp_path, root.start, 2, messages.append)
    recorder.tick(1.0)
    assert root.started == 1
    assert not (first / "ring").exists(), "the last one's may still be needed"
    assert (second / "ring").is_dir()
    assert [part.exists() for part in parts] == [False, True, True]
    root.runs = False
    recorder.tick(3.0)
    assert root.started == 1 and messages[-1].endswith("recorder has ended"), "not at once"
    root.refuses = True
    recorder.tick(AGAIN_S + 2)
    assert messages[-1] == "recordings: not started: not permitted"
    root.refuses = False
    recorder.tick(2 * AGAIN_S + 4)
    assert root.started == 2


def test_a_directory_that_others_may_write_is_refused(tmp_path: Path) -> None:
    assert create_directory(tmp_path / "new").stat().st_mode & 0o777 == 0o700
    (tmp_path / "new").chmod(0o777)
    (tmp_path / "file").touch()
    for name, message in (("new", "must belong to uid"), ("file", "--recordings")):
        with pytest.raises(QjouleError, match=message):
            create_directory(tmp_path / name)
