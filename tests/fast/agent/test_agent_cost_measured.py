# SPDX-License-Identifier: Apache-2.0
"""The cost of tracing: from the kernel's accounts and /proc to shares of the machine."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from qjoule.agent.cost import SAMPLE_S, Cost, CostMeter, Ran
from qjoule.errors import QjouleError
from qjoule.metrics.families import Family

CPUS, QUERIES_PER_S = 4, 10_000


class Kernel:
    """A clock, and programs that run for each query: 0.2 us in a uprobe, 1 us in another."""

    def __init__(self, uprobes: bool = True, error: Exception | None = None) -> None:
        self.now_s, self.queries, self.uprobes, self.error = 100.0, 0.0, uprobes, error
        self.open: list[int] = []
        self.asked = 0

    def ask(self) -> tuple[Ran, int]:
        self.asked += 1
        if self.error is not None:
            raise self.error
        n = int(self.queries)
        ran = Ran(n, 1200 * n) if self.uprobes else Ran(0, 1000 * n)
        self.open.append(os.open("/dev/null", os.O_RDONLY))
        return ran, self.open[-1]

    def closed(self) -> bool:
        return not any(Path(f"/proc/self/fd/{fd}").exists() for fd in self.open)


def meter(kernel: Kernel, said: list[str], trap_ns: float = 0.0) -> CostMeter:
    return CostMeter(
        {"engine": os.getpid(), "gone": 2**22 + 1},
        kernel.ask,
        trap_ns,
        said.append,
        CPUS,
        clock=lambda: kernel.now_s,
    )


def measured(kernel: Kernel, one: CostMeter, seconds: float) -> list[Cost]:
    found = []
    for _ in range(int(seconds / 0.2)):
        kernel.now_s += 0.2
        kernel.queries += 0.2 * QUERIES_PER_S
        if (cost := one.tick()) is not None:
            found.append(cost)
    return found


def of(families: Sequence[Family], name: str) -> dict[str, float]:
    samples: Any = next((one.samples for one in families if one.name == name), ())
    return {sample.labels[0][1]: float(sample.value) for sample in samples}


def test_programs_and_traps_are_shares_of_all_cpus() -> None:
    kernel, said = Kernel(), list[str]()
    one = meter(kernel, said, trap_ns=3000.0)
    found = measured(kernel, one, 600)
    assert len(found) + 1 >= 600 / 45 and len(found) <= 600 / 15 + 1
    for cost in found:
        assert cost.programs == pytest.approx(1.2e-6 * QUERIES_PER_S / CPUS, rel=1e-3)
        assert cost.traps == pytest.approx(3e-6 * QUERIES_PER_S / CPUS, rel=1e-3)
        assert cost.known == pytest.approx(
            cost.processes + (cost.programs or 0.0) + (cost.traps or 0.0)
        )
    families = list(one.families())
    hooks = of(families, "qjoule_hook_cpu_seconds")
    assert hooks["traps"] / hooks["programs"] == pytest.approx(2.5)
    # Extrapolated to all of the time but the last, unfinished stretch.
    assert 600 - 50 <= hooks["programs"] / (1.2e-6 * QUERIES_PER_S) <= 600
    assert set(of(families, "qjoule_budget_used_ratio")) == {"processes", "programs", "traps"}
    one.close()
    assert kernel.closed() and not said


def test_accounts_are_kept_only_during_samples() -> None:
    kernel = Kernel()
    one = meter(kernel, [])
    on = 0.0
    for _ in range(3000):
        measured(kernel, one, 0.2)
        on += 0.0 if kernel.closed() else 0.2
        if kernel.closed():
            kernel.open.clear()
    assert 0 < on / 600 <= (SAMPLE_S + 0.4) / 15


def test_traps_of_unknown_cost_are_no_zero() -> None:
    kernel, said = Kernel(), list[str]()
    one = meter(kernel, said)
    found = measured(kernel, one, 120)
    assert {cost.traps for cost in found} == {None}
    assert len(said) == 1 and "budget.trap_ns" in said[0] and "uprobes ran 10000" in said[0]
    assert "traps" not in of(list(one.families()), "qjoule_budget_used_ratio")
    without = measured(kernel2 := Kernel(uprobes=False), meter(kernel2, said), 60)
    assert {cost.traps for cost in without} == {0.0} and len(said) == 1


def test_without_accounts_hooks_are_unknown() -> None:
    kernel, said = Kernel(error=QjouleError("not permitted")), list[str]()
    one = meter(kernel, said)
    found = measured(kernel, one, 200)
    assert found and {(cost.programs, cost.traps) for cost in found} == {(None, None)}
    assert kernel.asked == 1 and said == ["what hooks cost the servers is unknown: not permitted"]
    assert not of(list(one.families()), "qjoule_hook_cpu_seconds")
    assert set(of(list(one.families()), "qjoule_budget_used_ratio")) == {"processes"}


def test_before_the_first_measurement_nothing_is_claimed() -> None:
    one = meter(Kernel(), [])
    assert one.cost is None and not of(list(one.families()), "qjoule_budget_used_ratio")
