# SPDX-License-Identifier: Apache-2.0
"""SMT in the live view: the kernel's sums of time shared with the sibling, against segments.

A tree like sysfs declares CPUs 0 and 1 to be the threads of one core, whatever they really are. A
second tracer records the same load. The shared time is also computed afterwards from its segments.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from qjoule.contract import Block, Mode
from tracer_parts.parts import write_topology
from tracing.tolerance import tolerance
from tracing.tracer import Session, tracing

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(not {0, 1} <= os.sched_getaffinity(0), reason="needs CPUs 0 and 1"),
]

#: Alternately computes and sleeps on one CPU. Arguments: the CPU, both times in ms, and rounds.
BURST = """
import os, sys, time
cpu, busy_ms, sleep_ms, rounds = map(int, sys.argv[1:])
os.sched_setaffinity(0, {cpu})
for _ in range(rounds):
    end_ns = time.thread_time_ns() + busy_ms * 1_000_000
    while time.thread_time_ns() < end_ns:
        pass
    time.sleep(sleep_ms / 1000)
"""
#: One that shares its core at times, and its sibling.
BURSTS = (("0", "3", "2", "200"), ("1", "5", "4", "110"))


class Seen:
    """What three tracers recorded of the load, and its processes."""

    def __init__(self, tree: Path) -> None:
        smt = write_topology(tree / "smt", [(0, [0, 1])])
        alone = write_topology(tree / "alone", [(0, [0]), (0, [1])])
        clock = ("--counter", "cycles=1:0")  # PERF_COUNT_SW_CPU_CLOCK: ns of the CPU
        with ExitStack() as stack:

            def start(mode: Mode, topology: Path, *options: str) -> Session:
                common = ("--energy", "none", "--ring-mb", "64", "--cpu-topology", str(topology))
                return stack.enter_context(tracing(mode, *common, *options))

            self.recorded = start(Mode.RECORD, smt)
            self.live = start(Mode.LIVE, smt, *clock)
            self.without = start(Mode.LIVE, alone, *clock)
            self.tgids = self._load()
            for session in (self.live, self.without, self.recorded):
                assert session.finish() == ""

    @staticmethod
    def _load() -> list[int]:
        command = [sys.executable, "-I", "-c", BURST]
        bursts = [subprocess.Popen([*command, *arguments]) for arguments in BURSTS]
        assert [burst.wait(60) for burst in bursts] == [0, 0]
        return [burst.pid for burst in bursts]

    def sums(self, session: Session, tgid: int) -> np.ndarray:
        sums = session.records(Block.AGGREGATE)
        mine: np.ndarray = sums[sums["tgid"] == tgid]
        return mine


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    return Seen(tmp_path_factory.mktemp("overlap"))


def _busy_ns(
    segments: np.ndarray, cpu: int, at_ns: npt.NDArray[np.uint64]
) -> npt.NDArray[np.float64]:
    """The CPU's cumulative busy time at each of these times."""
    mine = np.sort(segments[segments["cpu"] == cpu], order="t0_ns")
    edges = np.column_stack((mine["t0_ns"], mine["t1_ns"])).ravel().astype(np.int64)
    so_far = np.cumsum(np.diff(edges, prepend=edges[0]) * (np.arange(len(edges)) % 2))
    found: npt.NDArray[np.float64] = np.interp(at_ns.astype(np.int64), edges, so_far)
    return found


def _overlap_ns(segments: np.ndarray, tgid: int) -> tuple[float, int]:
    """CPU time of a process while the other of CPUs 0 and 1 was busy, and number of its
    segments.
    """
    mine = segments[segments["tgid"] == tgid]
    total = 0.0
    for cpu in (0, 1):
        here = mine[mine["cpu"] == cpu]
        by_end, by_begin = (_busy_ns(segments, 1 - cpu, here[t]) for t in ("t1_ns", "t0_ns"))
        total += float((by_end - by_begin).sum())
    return total, len(mine)


@pytest.mark.parametrize("which", [0, 1])
def test_the_kernels_sum_is_that_of_the_segments(seen: Seen, which: int) -> None:
    """Within 1 % and 3 us per segment: the cost of one tracer's programs as the other sees it."""
    segments = seen.recorded.records(Block.SEGMENT)
    expected_ns, count = _overlap_ns(segments, seen.tgids[which])
    sums = seen.sums(seen.live, seen.tgids[which])
    assert expected_ns > 20e6, "the load has to overlap for this to say anything"
    assert int(sums["overlap_ns"].sum()) == pytest.approx(
        expected_ns, abs=tolerance(0.01) * expected_ns + 3_000 * count
    )


def test_no_sum_has_more_of_it_than_time(seen: Seen) -> None:
    sums = seen.live.records(Block.AGGREGATE)
    assert (sums["overlap_ns"] <= sums["cpu_ns"]).all()
    assert (sums["overlap_counters"] <= sums["counters"]).all()


def test_counters_are_shared_as_the_time_is(seen: Seen) -> None:
    """The counter is a clock of ns, so as much of it overlaps as of the time."""
    for tgid in seen.tgids:
        sums = seen.sums(seen.live, tgid)
        assert int(sums["overlap_counters"][:, 0].sum()) == pytest.approx(
            int(sums["overlap_ns"].sum()), rel=tolerance()
        )


def test_cpus_of_different_cores_share_nothing(seen: Seen) -> None:
    sums = seen.without.records(Block.AGGREGATE)
    assert sums["cpu_ns"].sum() > 500e6
    assert not sums["overlap_ns"].any()
    assert not sums["overlap_counters"].any()
