# SPDX-License-Identifier: Apache-2.0
"""Counters of `qjoule-tracer`, also on CPUs that come online while it runs or lack a counter.
Also: `qjoule record --counters`.

Software clocks and page faults, which any machine has, stand in for the counters of a CPU. The
tracer treats a CPU that it was not started with like one that came online later.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import psutil
import pytest

from qjoule.contract import COUNTER_NAMES, WHOLE, Block, Loss, Mode
from qjoule.lazy_import import pc
from qjoule.trace.reader import Trace
from qjoule_studies.servers.process import DatabaseServer
from tracer_parts.parts import write_topology
from tracing.cpu_time import tolerance
from tracing.postgres_client import postgres_client, query
from tracing.recording import qjoule, recording
from tracing.tracer import Session, tracing

pytestmark = pytest.mark.root

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


def traced(
    program: str,
    *counters: str,
    mode: Mode = Mode.RECORD,
    tree: Path | None = None,
    message: str = "",
) -> tuple[Session, int]:
    """What a tracer recorded of a Python program, and the program's pid."""
    options = [word for counter in counters for word in ("--counter", counter)]
    options += [] if tree is None else ["--cpu-topology", str(tree)]
    with tracing(mode, "--energy", "none", "--ring-mb", "32", *options) as session:
        load = subprocess.Popen([sys.executable, "-I", "-c", program])
        assert load.wait(60) == 0
        messages = session.finish()
    assert message in messages
    assert messages.count("\n") == (1 if message else 0), messages
    return session, load.pid


def cpu_ns(segments: np.ndarray) -> int:
    return int((segments["t1_ns"] - segments["t0_ns"]).sum())


def loss(session: Session, cause: Loss, cpu: int) -> int:
    losses = session.records(Block.LOSS)
    return int(losses[(losses["cause"] == cause) & (losses["cpu"] == cpu)]["count"].max(initial=0))


@pytest.mark.skipif(not {0, 1} <= os.sched_getaffinity(0), reason="needs CPUs 0 and 1")
def test_counters_count_what_the_cpu_did() -> None:
    session, _ = traced(COMPUTE, f"cycles={CLOCK}", f"llc-misses={CLOCK}")
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


@pytest.mark.skipif(not {0, 1} <= os.sched_getaffinity(0), reason="needs CPUs 0 and 1")
def test_counters_in_the_live_view() -> None:
    session, _ = traced(COMPUTE, f"instructions={CLOCK}", mode=Mode.LIVE)
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


@pytest.mark.skipif(not {0, 1} <= os.sched_getaffinity(0), reason="needs CPUs 0 and 1")
def test_each_segment_has_what_was_counted_in_it() -> None:
    session, pid = traced(FAULT, f"more={FAULTS}", f"more={CLOCK}", f"cycles={CLOCK}")
    counters = int(session.records(Block.HELLO)["counters"][0])
    assert counters == 1 | 3 << len(COUNTER_NAMES)
    assert not session.records(Block.SEGMENT).size
    assert not session.records(Block.SEGMENT_COUNTERS).size
    records = session.records(Block.SEGMENT_MORE)
    segments = records["counted"]["segment"]
    of_process = segments["tgid"] == pid
    assert (records["shares"][of_process, :2] == WHOLE).all()
    assert not records["shares"][:, 2:].any()
    assert not records["more"][:, 2:].any()
    assert PAGES <= records["more"][of_process, 0].sum() < 5 * PAGES
    clock_ns = int(records["more"][of_process, 1].sum())
    assert clock_ns == pytest.approx(cpu_ns(segments[of_process]), rel=0.05)
    assert clock_ns == pytest.approx(
        int(records["counted"]["counters"][of_process, 0].sum()), rel=0.05
    )
    assert Loss.MULTIPLEXED not in session.records(Block.LOSS)["cause"]


@pytest.mark.skipif(not {0, 1} <= os.sched_getaffinity(0), reason="needs CPUs 0 and 1")
def test_further_counters_need_no_others() -> None:
    """Nearly all page faults of a program that writes to its memory are in user space."""
    session, pid = traced(FAULT, f"more={FAULTS}:u", f"more={FAULTS}:k", f"more={FAULTS}")
    records = session.records(Block.SEGMENT_MORE)
    segments = records["counted"]["segment"]
    assert not segments["valid"].any()
    user, kernel, in_both = records["more"][segments["tgid"] == pid].sum(axis=0)[:3].tolist()
    assert user >= PAGES
    assert kernel < PAGES / 10
    assert user + kernel == in_both


# ---- CPUs that differ ----------------------------------------------------------------------------


@pytest.fixture
def one_cpu(tmp_path: Path) -> Path:
    """A topology without CPU 1."""
    return write_topology(tmp_path / "cpus", [(0, [0])])


@pytest.mark.skipif(not {0, 1} <= os.sched_getaffinity(0), reason="needs CPUs 0 and 1")
def test_a_cpu_that_comes_online_later_has_no_counters_and_that_is_counted_as_loss(
    one_cpu: Path,
) -> None:
    session, pid = traced(COMPUTE, f"cycles={CLOCK}", tree=one_cpu)
    records = session.records(Block.SEGMENT_COUNTERS)
    segments = records["segment"]
    of_thread = segments["pid"] == pid
    on_first_cpu, on_second_cpu = (of_thread & (segments["cpu"] == cpu) for cpu in (0, 1))
    assert set(segments["valid"][on_first_cpu]) == {1}
    assert set(segments["counted"][on_first_cpu]) == {WHOLE}
    assert cpu_ns(segments[on_second_cpu]) > 0.5 * COMPUTED_NS
    assert not segments["valid"][on_second_cpu].any()
    assert not segments["counted"][on_second_cpu].any()
    assert not records["counters"][on_second_cpu].any()
    assert loss(session, Loss.COUNTER, 1) >= on_second_cpu.sum()
    assert not loss(session, Loss.COUNTER, 0)


@pytest.mark.skipif(not {0, 1} <= os.sched_getaffinity(0), reason="needs CPUs 0 and 1")
def test_a_counter_that_one_cpu_lacks_is_read_on_the_others(tmp_path: Path) -> None:
    absent = max(os.sched_getaffinity(0)) + 1
    tree = write_topology(tmp_path / "cpus", [(0, [0]), (0, [1]), (1, [absent])])
    message = "counter cycles is not available on 1 of 3 CPUs: "
    session, pid = traced(COMPUTE, f"cycles={CLOCK}", tree=tree, message=message)
    assert session.records(Block.HELLO)[0]["counters"] == 1
    segments = session.records(Block.SEGMENT_COUNTERS)["segment"]
    assert set(segments["valid"][segments["pid"] == pid]) == {1}


# --------------------------------------------------------------------------------------------------
#
# `qjoule record --counters`, and what `qjoule characterise` makes of it: page faults of a query.
#
# They are a software event, which any machine has; this machine may have no other.

#: A raw event that no CPU has. Kernels without hardware counters refuse it; some drivers mask what
#: they do not know, and count nothing.
ABSENT = "rffffffffffff"
#: Sorts in memory that the backend has not touched before: one fault for each of its pages.
SORT = b"SELECT count(*) FROM (SELECT repeat('x', 500) || g AS t FROM generate_series(1, 30000) g"
SORT += b" ORDER BY t OFFSET 1) AS sorted"


def _faults(pid: int) -> int:
    """Page faults so far, minor and major: proc(5), /proc/PID/stat."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[7]) + int(fields[9])


@pytest.mark.beside
@pytest.mark.server
def test_page_faults_by_shape(postgres: DatabaseServer, tmp_path: Path) -> None:
    directory = tmp_path / "faults.qjoule"
    options = (f"--pid={postgres.pid}", "--counters", f"page-faults,page-faults:k,{ABSENT}")
    with (
        postgres_client(postgres.port) as client,
        recording(directory, *options) as recorder,
    ):
        backends = [
            child
            for child in psutil.Process(postgres.pid).children()
            if any("[local]" in part or "127.0.0.1" in part for part in child.cmdline())
        ]
        pid = max(backends, key=psutil.Process.create_time).pid
        client.exchange(query(b"SET work_mem = '64MB'"))
        before = _faults(pid)
        client.exchange(query(SORT))
        faults = _faults(pid) - before
        client.exchange(query(b"SELECT 1"))
        refused = f"qjoule: not counted: {ABSENT} (" in recorder.messages
    trace = Trace(directory)
    accepted = () if refused else (ABSENT,)
    assert trace.meta.more_counters == ("page-faults", "page-faults:k", *accepted)
    assert refused or trace.meta.counters, "who refuses no raw event has hardware counters"
    (sort,) = [
        row["query"]
        for row in trace.table("queries").select(["query", "statement_bytes"]).to_pylist()
        if row["statement_bytes"] == len(SORT)
    ]
    segments = trace.table("segments")
    of_sort = segments.filter(pc.equal(segments.column("query"), sort)).to_pylist()
    page_faults, in_kernel = (sum(segment["more"][i] for segment in of_sort) for i in (0, 1))
    assert faults > 1000
    assert page_faults == pytest.approx(faults, rel=0.05)
    assert in_kernel < page_faults
    assert all(segment["more_counted"][:2] == [1.0, 1.0] for segment in of_sort)

    characterised = qjoule("characterise", str(directory), "--json")
    assert characterised.returncode == 0, characterised.stderr
    rows = json.loads(characterised.stdout)["rows"]
    by_time = trace.meta.counters.count("instructions") == 0
    name = "page-faults_per_s" if by_time else "page-faults_pki"
    (row,) = [row for row in rows if "generate_series" in row["shape"]]
    assert row["metrics"][name]["value"] > 0
    if by_time:
        told_again = row["metrics"][name]["value"] * row["cpu_ns"] / 1e9
        assert told_again == pytest.approx(page_faults)
