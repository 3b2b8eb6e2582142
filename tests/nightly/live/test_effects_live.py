# SPDX-License-Identifier: Apache-2.0
"""Idle tails and wake-ups in the live view's sums, against segments that another tracer recorded.

Trees like sysfs declare CPUs 0 and 1 to be one core, two cores, or two packages, whatever they
really are. One tracer for each and a recording run at the same time, beside processes that wake at
a known rate. Where other work kept the CPUs busy there is nothing to compare, and tests are skipped
with the reason. tests/nightly/vm/test_vm_effects does the same on an emulated machine of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from live_effects_cases import Effects, of_segments, of_sums
from qjoule.contract import Block, Mode
from tracer_parts.parts import write_topology
from tracing.tolerance import tolerance
from tracing.tracer import Session, tracing

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(not {0, 1} <= os.sched_getaffinity(0), reason="needs CPUs 0 and 1"),
]

#: Sleeps on one CPU, without the kernel's timer slack (PR_SET_TIMERSLACK). Arguments: the CPU, how
#: often, and for how many ms.
NAPS = """
import ctypes, os, sys, time
cpu, times, sleep_ms = map(float, sys.argv[1:])
os.sched_setaffinity(0, {int(cpu)})
os.setpriority(os.PRIO_PROCESS, 0, -19)
ctypes.CDLL(None).prctl(29, 1, 0, 0, 0)
for _ in range(int(times)):
    time.sleep(sleep_ms / 1000)
"""
#: Two on one CPU, whose tails overlap, and one on the other.
LOAD = (("1", "1200", "1.1"), ("1", "500", "2.9"), ("0", "800", "1.7"))
MACHINES = {
    "one core": [(0, [0, 1])],
    "two cores": [(0, [0]), (0, [1])],
    "two packages": [(0, [0]), (1, [1])],
}
#: A counter whose energy does not matter: it makes the tracer sum effects.
REPLAYED = "domain 0 package 1e-6 0 1\n0 0 package 0\n"
#: So few are no statement about a machine.
FEW = 100


class Seen:
    """What the tracers saw, by the name of the machine; `pids` are those of `LOAD`."""

    def __init__(self, directory: Path) -> None:
        replayed = directory / "replayed"
        replayed.write_text(REPLAYED)
        with ExitStack() as stack:

            def start(mode: Mode, *options: str) -> Session:
                common = ("--ring-mb", "64", "--window-ms", "100", "--only-running")
                return stack.enter_context(tracing(mode, *common, *options))

            recorded = start(Mode.RECORD, "--energy", "none")
            live = {}
            for name, machine in MACHINES.items():
                topology = write_topology(directory / name.replace(" ", "_"), machine)
                energy = ("--energy", f"replay:{replayed}")
                live[name] = start(Mode.LIVE, "--cpu-topology", str(topology), *energy)
            self.without = start(Mode.LIVE, "--energy", "estimated:5,10,20,40")
            command = [sys.executable, "-I", "-c", NAPS]
            naps = [subprocess.Popen([*command, *arguments]) for arguments in LOAD]
            assert [one.wait(60) for one in naps] == [0, 0, 0]
            self.pids = [one.pid for one in naps]
            for session in (*live.values(), self.without, recorded):
                assert session.finish() == ""
        segments = recorded.records(Block.SEGMENT)
        self.live: dict[str, Effects] = {}
        self.recorded: dict[str, Effects] = {}
        for name, session in live.items():
            sums = session.records(Block.AGGREGATE), session.records(Block.PACKAGE_TIME)
            self.live[name], bounds_ns = of_sums(*sums)
            cpus = session.records(Block.CPU)
            self.recorded[name] = of_segments(segments, cpus, bounds_ns)


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    directory = tmp_path_factory.mktemp("effects")
    directory.chmod(0o755)
    return Seen(directory)


def _of(effects: Effects, pid: int) -> np.ndarray:
    return effects.of.get(pid, np.zeros_like(effects.everybody))


@pytest.mark.parametrize("which", range(len(LOAD)))
@pytest.mark.parametrize("machine", MACHINES)
def test_a_process_has_the_wake_ups_and_tails_of_its_segments(
    seen: Seen, machine: str, which: int
) -> None:
    """Within 3 %, and of few events 20: each tracer reads the clock at another moment."""
    live, recorded = (_of(of[machine], seen.pids[which]) for of in (seen.live, seen.recorded))
    if recorded[14] < FEW:
        pytest.skip(f"its CPU slept {recorded[14]:.0f} times, else ran something")
    slack = tolerance(0.03)
    assert live[13:] == pytest.approx(recorded[13:], rel=slack, abs=20)
    for tails in (slice(3, 8), slice(8, 13)):
        longest = np.array([1e5, 2e5, 4e5, 8e5, 1.6e6])
        assert (
            np.abs(live[tails] - recorded[tails]) <= slack * recorded[tails] + 20 * longest
        ).all()


@pytest.mark.parametrize("which", range(len(LOAD)))
def test_a_process_that_wakes_at_a_known_rate_has_as_many_wake_ups(seen: Seen, which: int) -> None:
    """All of its own that ended an idle time, and no more than it slept."""
    cpu, times, _ = LOAD[which]
    live, recorded = (_of(of["two cores"], seen.pids[which]) for of in (seen.live, seen.recorded))
    assert live[14] <= int(times) + FEW, "a Python interpreter starts and ends, too"
    if recorded[14] < 0.8 * int(times):
        pytest.skip(f"CPU {cpu} ran something else at {times} - {recorded[14]:.0f} wake-ups")
    assert live[14] >= 0.8 * int(times)
    assert live[12] > 0.5e6 * live[14], "it slept for longer than that, and one at a time"


@pytest.mark.parametrize("machine", MACHINES)
def test_a_package_was_awake_as_long_as_its_segments_say(seen: Seen, machine: str) -> None:
    live, recorded = seen.live[machine].awake_ns, seen.recorded[machine].awake_ns
    assert live.shape == recorded.shape
    assert (live.sum(axis=0) > 0).all()
    assert live.sum(axis=0) == pytest.approx(recorded.sum(axis=0), rel=tolerance(0.02))


def test_without_a_measured_total_nothing_is_summed(seen: Seen) -> None:
    """An estimate is computed from CPU time, so tails are not in it."""
    sums = seen.without.records(Block.AGGREGATE)
    assert sums["cpu_ns"].sum() > 0
    assert not len(seen.without.records(Block.PACKAGE_TIME))
    for name in ("package_tail_ns", "core_tail_ns", "package_wakes", "core_wakes"):
        assert not sums[name].any()
