# SPDX-License-Identifier: Apache-2.0
"""From the trace of a calibration run to the calibration, on a machine whose power is known.

The machine is one package of four cores with two threads each. It always draws IDLE_W, and SHARED_W
while any CPU is busy. Each counted event costs CYCLE_NJ (ALPHA of it while both siblings run),
INSTRUCTION_NJ or MISS_NJ. Its counter moves once a millisecond.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bench.accuracy.machine import Topology
from bench.accuracy.quick_run import cpu_info

import attribute_trace
from attribute_trace import BEGIN_NS, MS
from calibrations import MACHINE
from qjoule.commands.calibrated_run import summarise
from qjoule.errors import QjouleError
from qjoule.machine.calibration import Calibration, parse
from qjoule.machine.steps import Step, plan_steps, wakeup_rate
from qjoule.model.fit.known_loads import Phase
from qjoule.session.calibrating import Done
from qjoule.trace.meta import Cpu, DomainInfo, EnergyInfo
from qjoule.trace.reader import Trace

WINDOW_NS = 20 * MS
IDLE_W, SHARED_W = 20.0, 8.0
CYCLE_NJ, INSTRUCTION_NJ, MISS_NJ, ALPHA = 1.2, 0.5, 25.0, 0.55
#: Cycles, instructions and misses per ns of a thread that has its core to itself.
RATES = {
    "integer": (3.0, 9.0, 0.0),
    "floating_point": (3.0, 6.0, 0.0),
    "cache": (3.0, 4.0, 0.0005),
    "stream": (3.0, 2.0, 0.03),
    "chase": (3.0, 0.15, 0.012),
}
BESIDE_A_SIBLING = 0.6  #: what is left of its instructions and misses per ns
LATE_NS = 15_000
WAKEUP_NS = 20_000  #: of work at each wake-up
BETWEEN_NS = 110 * MS  #: between two phases, when a thousand watts are drawn
COUNTERS = ("cycles", "instructions", "llc_misses")
INFO = cpu_info(Topology(1, 4, 2))


def beside_a_sibling(step: Step, cpu: int) -> bool:
    return sum(other % 4 == cpu % 4 for other in step.cpus) > 1


def counts(step: Step, cpu: int, length_ns: int) -> tuple[int, ...]:
    cycles, *others = RATES["integer" if wakeup_rate(step.kernel) else step.kernel]
    left = BESIDE_A_SIBLING if beside_a_sibling(step, cpu) else 1.0
    return tuple(round(rate * length_ns) for rate in (cycles, *(left * rate for rate in others)))


def busy(step: Step) -> dict[int, float]:
    """The share of the phase that each CPU computes."""
    rate = wakeup_rate(step.kernel)
    share = 1.0 if rate is None else rate * WAKEUP_NS * 1e-9
    return dict.fromkeys(step.cpus, share) | dict.fromkeys(step.beside, 1.0)


def power_w(step: Step) -> float:
    shares = busy(step)
    total = IDLE_W + SHARED_W * max(shares.values(), default=0.0)
    for cpu, share in shares.items():
        cycles, instructions, misses = counts(step, cpu, MS)
        of_clock = CYCLE_NJ * cycles * (ALPHA if beside_a_sibling(step, cpu) else 1.0)
        total += share * (of_clock + INSTRUCTION_NJ * instructions + MISS_NJ * misses) / MS
    return total


@cache
def story() -> tuple[tuple[Done, ...], int]:
    """The phases of a quick run, and its end."""
    t_ns, done = BEGIN_NS + 7 * MS, []
    for step in plan_steps(INFO, short=True):
        end_ns = t_ns + round(step.seconds * 1e9)
        phase = Phase(step.kernel, t_ns, end_ns, step.threads, step.smt)
        done.append(Done(step, phase, float(len(step.cpus)), True))
        t_ns = end_ns + BETWEEN_NS
    return tuple(done), t_ns


def drawn_uj(times_ns: Sequence[int]) -> list[int]:
    """The counter's value at these times: the energy up to the last whole millisecond."""
    edges, powers = [BEGIN_NS], []
    for one in story()[0]:
        edges += [one.phase.t0_ns, one.phase.t1_ns]
        powers += [1000.0, power_w(one.step)]
    steps_nj = np.array([*powers, 1000.0]) * np.diff([*edges, story()[1]])
    total_nj = np.concatenate([[0.0], np.cumsum(steps_nj)])
    whole_ms = np.array(times_ns) // MS * MS
    found = np.interp(whole_ms, [*edges, story()[1]], total_nj) / 1000
    return [int(energy_uj) for energy_uj in found]


def segments(counted: bool) -> list[dict[str, Any]]:
    found = []
    for one in story()[0]:
        for cpu, share in busy(one.step).items():
            period_ns = 10 * MS if share == 1.0 else round(WAKEUP_NS / share)
            for t0_ns in range(one.phase.t0_ns, one.phase.t1_ns, period_ns):
                t1_ns = min(t0_ns + round(period_ns * share), one.phase.t1_ns)
                row = {"t0_ns": t0_ns, "t1_ns": t1_ns, "cpu": cpu, "package": 0, "owner": 1}
                if counted:
                    row |= zip(COUNTERS, counts(one.step, cpu, t1_ns - t0_ns), strict=True)
                found.append(row)
    return sorted(found, key=lambda row: row["t0_ns"])


def record(directory: Path, *, counted: bool, energy: bool = True) -> Trace:
    times = list(range(BEGIN_NS, story()[1], WINDOW_NS))
    # Some readings came late, and the next ones at once: the counter moved between them.
    times = sorted([*times, *(t_ns - LATE_NS for t_ns in times[50::50])])
    fixed = {"package": 0, "domain": "package", "unit_j": 1e-6, "range": 1 << 40, "status": 0}
    readings = [
        {"t_ns": t_ns, "half_width_ns": 500, "raw": raw} | fixed
        for t_ns, raw in zip(times, drawn_uj(times), strict=True)
    ]
    load = {"pid": 9, "tgid": 9, "comm": "qjoule-load", "process_comm": "qjoule-load"}
    meta = {
        "end_ns": story()[1],
        "counters": COUNTERS if counted else (),
        "energy": EnergyInfo("powercap", "measured"),
        "domains": (DomainInfo(0, "package", 1e-6, 1 << 40),) if energy else (),
        "cpus": tuple(Cpu(n, 0, n % 4, n % 4) for n in range(8)),
    }
    attribute_trace.write(
        directory,
        owners=[{"owner": 0, "kind": "idle"}, {"owner": 1, "kind": "process"} | load],
        segments=segments(counted),
        energy=readings if energy else [],
        queries=[],
        shapes=[],
        meta=meta,
    )
    return Trace(directory)


@pytest.fixture(scope="module", params=[True, False], ids=["counters", "time"])
def made(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[bool, Calibration]:
    trace = record(tmp_path_factory.mktemp("run") / "t", counted=request.param)
    return request.param, summarise(trace, MACHINE, story()[0], quick=True)


def test_what_is_drawn_at_rest_and_what_counts_cost(
    made: tuple[bool, Calibration],
) -> None:
    counted, calibration = made
    found = calibration.identified
    truth = {"idle_w.package.0": IDLE_W, "shared_w.package.0": SHARED_W}
    if counted:
        truth |= {"a.package": CYCLE_NJ, "b.package": INSTRUCTION_NJ, "c.package": MISS_NJ}
        truth["alpha.package"] = ALPHA
        assert calibration.held_out_error["package"] < 0.10
    else:
        assert "no hardware counters: only CPU time could be weighed" in calibration.notes
    for name, value in truth.items():
        assert found[name].low <= value <= found[name].high, (name, found[name])
    idle = found["idle_w.package.0"]
    assert idle.ok
    assert idle.high - idle.low < 0.05 * IDLE_W
    assert abs(idle.value - IDLE_W) < 0.02 * IDLE_W


def test_phases_hold_their_own_windows_alone(made: tuple[bool, Calibration]) -> None:
    """A thousand watts between phases would show in any phase that contained them."""
    for phase, one in zip(made[1].phases, story()[0], strict=True):
        assert phase.kernel == one.step.kernel
        assert phase.seconds == pytest.approx(one.step.seconds)
        assert abs(phase.windows - one.step.seconds / 0.02) <= 5
        expected = power_w(one.step)
        assert phase.power_w["package.0"] == pytest.approx(expected, rel=0.01), phase
    assert not [note for note in made[1].notes if "drifted" in note]
    assert parse(made[1].to_json().encode()) == made[1]


def test_without_energy_there_is_nothing_to_fit(tmp_path: Path) -> None:
    trace = record(tmp_path / "t", counted=False, energy=False)
    with pytest.raises(QjouleError, match="no reading"):
        summarise(trace, MACHINE, story()[0])
