# SPDX-License-Identifier: Apache-2.0
"""Counters of `qjoule-tracer`, also on CPUs that come online while it runs or lack a counter.

Software clocks and page faults, which any machine has, stand in for the counters of a CPU. The
tracer treats a CPU that it was not started with like one that came online later.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from qjoule.contract import COUNTER_NAMES, WHOLE, Block, Loss, Mode
from tracer_parts.parts import write_topology
from tracing.cpu_time import tolerance
from tracing.tracer import Session, tracing

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(not {0, 1} <= os.sched_getaffinity(0), reason="needs CPUs 0 and 1"),
]
#: PERF_TYPE_SOFTWARE has a clock and page faults.
CLOCK, FAULTS = "1:0", "1:2"
COMPUTED_NS = 50e6  #: on each of CPUs 0 and 1, by the program's own clock
COMPUTE = """
import os, sys, time
for cpu in (0, 1):
    os.sched_setaffinity(0, {cpu})
    end_ns = time.thread_time_ns() + 50_000_000
    while time.thread_time_ns() < end_ns:
        pass
"""
PAGES = 3000
FAULT = f"""
import mmap
room = mmap.mmap(-1, {PAGES} * mmap.PAGESIZE, flags=mmap.MAP_PRIVATE)
room.madvise(mmap.MADV_NOHUGEPAGE)
for page in range({PAGES}):
    room[page * mmap.PAGESIZE] = 1
"""


def seen(
    program: str, *counters: str, mode: Mode = Mode.RECORD, tree: Path | None = None, says: str = ""
) -> tuple[Session, int]:
    """What a tracer recorded of a Python program, and the program's pid."""
    options = [word for counter in counters for word in ("--counter", counter)]
    options += [] if tree is None else ["--cpu-topology", str(tree)]
    with tracing(mode, "--energy", "none", "--ring-mb", "32", *options) as session:
        load = subprocess.Popen([sys.executable, "-I", "-c", program])
        assert load.wait(60) == 0
        words = session.finish()
    assert says in words
    assert words.count("\n") == (1 if says else 0), words
    return session, load.pid


def cpu_ns(segments: np.ndarray) -> int:
    return int((segments["t1_ns"] - segments["t0_ns"]).sum())


def loss(session: Session, cause: Loss, cpu: int) -> int:
    losses = session.records(Block.LOSS)
    return int(losses[(losses["cause"] == cause) & (losses["cpu"] == cpu)]["count"].max(initial=0))


def test_counters_count_what_the_cpu_did() -> None:
    session, _ = seen(COMPUTE, f"cycles={CLOCK}", f"llc-misses={CLOCK}")
    assert session.records(Block.HELLO)[0]["counters"] == 0b101
    assert not session.records(Block.SEGMENT).size
    records = session.records(Block.SEGMENT_COUNTERS)
    segments, counters = records["segment"], records["counters"]
    valid = segments["valid"] == 0b101
    assert valid.mean() > 0.99
    assert not np.any(segments["valid"] & ~np.uint8(0b101))
    for column in (0, 2):
        counted_ns = int(counters[valid, column].sum())
        assert counted_ns == pytest.approx(cpu_ns(segments[valid]), rel=tolerance())
    assert not counters[:, 1].any()
    assert set(segments["counted"][valid]) == {WHOLE}, "a software event is never multiplexed"
    assert Loss.MULTIPLEXED not in session.records(Block.LOSS)["cause"]


def test_counters_in_the_live_view() -> None:
    session, _ = seen(COMPUTE, f"instructions={CLOCK}", mode=Mode.LIVE)
    sums = session.records(Block.AGGREGATE)
    valid = sums["valid"] == 0b10
    assert valid.mean() > 0.9
    counted_ns = int(sums["counters"][valid, 1].sum())
    assert counted_ns == pytest.approx(int(sums["cpu_ns"][valid].sum()), rel=tolerance())
    assert (sums["counted_ns"][valid, 1] == sums["cpu_ns"][valid]).all()
    assert (sums["counted_ns"][:, 1] <= sums["cpu_ns"]).all()
    assert not sums["counted_ns"][:, [0, 2]].any()
    assert not sums["scaled_ns"].any()


# ---- further counters ----------------------------------------------------------------------------


def test_each_segment_has_what_was_counted_in_it() -> None:
    session, pid = seen(FAULT, f"more={FAULTS}", f"more={CLOCK}", f"cycles={CLOCK}")
    counters = int(session.records(Block.HELLO)["counters"][0])
    assert counters == 1 | 3 << len(COUNTER_NAMES)
    assert not session.records(Block.SEGMENT).size
    assert not session.records(Block.SEGMENT_COUNTERS).size
    records = session.records(Block.SEGMENT_MORE)
    segments = records["counted"]["segment"]
    mine = segments["tgid"] == pid
    assert (records["shares"][mine, :2] == WHOLE).all()
    assert not records["shares"][:, 2:].any()
    assert not records["more"][:, 2:].any()
    assert PAGES <= records["more"][mine, 0].sum() < 5 * PAGES
    clock_ns = int(records["more"][mine, 1].sum())
    assert clock_ns == pytest.approx(cpu_ns(segments[mine]), rel=0.05)
    assert clock_ns == pytest.approx(int(records["counted"]["counters"][mine, 0].sum()), rel=0.05)
    assert Loss.MULTIPLEXED not in session.records(Block.LOSS)["cause"]


def test_further_counters_need_no_others() -> None:
    """And nearly all page faults of a program that writes to its memory are in user space."""
    session, pid = seen(FAULT, f"more={FAULTS}:u", f"more={FAULTS}:k", f"more={FAULTS}")
    records = session.records(Block.SEGMENT_MORE)
    segments = records["counted"]["segment"]
    assert not segments["valid"].any()
    user, kernel, both = records["more"][segments["tgid"] == pid].sum(axis=0)[:3].tolist()
    assert user >= PAGES
    assert kernel < PAGES / 10
    assert user + kernel == both


# ---- CPUs that differ ----------------------------------------------------------------------------


@pytest.fixture
def one_cpu(tmp_path: Path) -> Path:
    """A topology without CPU 1."""
    return write_topology(tmp_path / "cpus", [(0, [0])])


def test_a_cpu_that_comes_online_later_has_no_counters_and_that_is_counted_as_loss(
    one_cpu: Path,
) -> None:
    session, pid = seen(COMPUTE, f"cycles={CLOCK}", tree=one_cpu)
    records = session.records(Block.SEGMENT_COUNTERS)
    segments = records["segment"]
    mine = segments["pid"] == pid
    here, there = (mine & (segments["cpu"] == cpu) for cpu in (0, 1))
    assert set(segments["valid"][here]) == {1}
    assert set(segments["counted"][here]) == {WHOLE}
    assert cpu_ns(segments[there]) > 0.5 * COMPUTED_NS
    assert not segments["valid"][there].any()
    assert not segments["counted"][there].any()
    assert not records["counters"][there].any()
    assert loss(session, Loss.COUNTER, 1) >= there.sum()
    assert not loss(session, Loss.COUNTER, 0)


def test_a_counter_that_one_cpu_lacks_is_read_on_the_others(tmp_path: Path) -> None:
    absent = max(os.sched_getaffinity(0)) + 1
    tree = write_topology(tmp_path / "cpus", [(0, [0]), (0, [1]), (1, [absent])])
    says = "counter cycles is not available on 1 of 3 CPUs: "
    session, pid = seen(COMPUTE, f"cycles={CLOCK}", tree=tree, says=says)
    assert session.records(Block.HELLO)[0]["counters"] == 1
    segments = session.records(Block.SEGMENT_COUNTERS)["segment"]
    assert set(segments["valid"][segments["pid"] == pid]) == {1}
