# SPDX-License-Identifier: Apache-2.0
"""CPUs that come online while tracing, and counters that only some CPUs have.

The tracer is started with fewer or more CPUs than there are. It treats a CPU that it was not
started with like one that came online later.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from qjoule.contract import WHOLE, Block, Loss, Mode
from tracer_parts.parts import write_topology
from tracing.tracer import Session, tracing

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(not {0, 1} <= os.sched_getaffinity(0), reason="needs CPUs 0 and 1"),
]
COMPUTED_NS = 50e6  #: on each of CPUs 0 and 1, by the program's own clock
CLOCK = ("--counter", "cycles=1:0")  #: PERF_COUNT_SW_CPU_CLOCK: ns of the CPU
UNKNOWN_PACKAGE = 0xFFFF
COMPUTE = """
import os, sys, time
for cpu in (0, 1):
    os.sched_setaffinity(0, {cpu})
    end_ns = time.thread_time_ns() + 50_000_000
    while time.thread_time_ns() < end_ns:
        pass
"""


def _seen(mode: Mode, tree: Path, *options: str, says: str = "") -> tuple[Session, int]:
    """What a tracer recorded of a process that ran on CPU 0, then on CPU 1; its pid."""
    common = ("--energy", "none", "--ring-mb", "32", "--cpu-topology", str(tree))
    with tracing(mode, *common, *options) as session:
        load = subprocess.Popen([sys.executable, "-I", "-c", COMPUTE])
        assert load.wait(60) == 0
        words = session.finish()
    assert says in words
    assert words.count("\n") == (1 if says else 0), words
    return session, load.pid


def _cpu_ns(segments: np.ndarray) -> int:
    return int((segments["t1_ns"] - segments["t0_ns"]).sum())


def _loss(session: Session, cause: Loss, cpu: int) -> int:
    losses = session.records(Block.LOSS)
    mine = losses[(losses["cause"] == cause) & (losses["cpu"] == cpu)]
    return int(mine["count"].max(initial=0))


def test_a_cpu_that_comes_online_later_is_recorded(tmp_path: Path) -> None:
    session, pid = _seen(Mode.RECORD, write_topology(tmp_path / "cpus", [(0, [0])]))
    segments = session.records(Block.SEGMENT)
    mine = segments[segments["pid"] == pid]
    for cpu in (0, 1):
        assert _cpu_ns(mine[mine["cpu"] == cpu]) > 0.5 * COMPUTED_NS
        assert not _loss(session, Loss.SEGMENT, cpu)


def test_it_has_no_counters_and_that_is_counted(tmp_path: Path) -> None:
    tree = write_topology(tmp_path / "cpus", [(0, [0])])
    session, pid = _seen(Mode.RECORD, tree, *CLOCK)
    records = session.records(Block.SEGMENT_COUNTERS)
    segments = records["segment"]
    mine = segments["pid"] == pid
    here, there = (mine & (segments["cpu"] == cpu) for cpu in (0, 1))
    assert set(segments["valid"][here]) == {1}
    assert set(segments["counted"][here]) == {WHOLE}
    assert _cpu_ns(segments[there]) > 0.5 * COMPUTED_NS
    assert not segments["valid"][there].any()
    assert not segments["counted"][there].any()
    assert not records["counters"][there].any()
    assert _loss(session, Loss.COUNTER, 1) >= there.sum()
    assert not _loss(session, Loss.COUNTER, 0)


def test_in_the_live_view_it_is_of_no_known_package(tmp_path: Path) -> None:
    tree = write_topology(tmp_path / "cpus", [(0, [0])])
    session, pid = _seen(Mode.LIVE, tree, *CLOCK)
    sums = session.records(Block.AGGREGATE)
    mine = sums[sums["tgid"] == pid]
    known, unknown = (mine[mine["package"] == p] for p in (0, UNKNOWN_PACKAGE))
    assert len(known) + len(unknown) == len(mine)
    assert known["cpu_ns"].sum() > 0.5 * COMPUTED_NS
    assert (known["counted_ns"][:, 0] == known["cpu_ns"]).all()
    assert set(known["valid"]) == {1}
    assert unknown["cpu_ns"].sum() > 0.5 * COMPUTED_NS
    assert not unknown["counted_ns"].any()
    assert not unknown["valid"].any()


def test_a_counter_that_one_cpu_lacks_is_read_on_the_others(tmp_path: Path) -> None:
    absent = max(os.sched_getaffinity(0)) + 1
    tree = write_topology(tmp_path / "cpus", [(0, [0]), (0, [1]), (1, [absent])])
    says = "counter cycles is not available on 1 of 3 CPUs: "
    session, pid = _seen(Mode.RECORD, tree, *CLOCK, says=says)
    assert session.records(Block.HELLO)[0]["counters"] == 1
    segments = session.records(Block.SEGMENT_COUNTERS)["segment"]
    assert set(segments["valid"][segments["pid"] == pid]) == {1}
