# SPDX-License-Identifier: Apache-2.0
"""CPU time by a trace and by perf's software counter, and how far they may differ."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pandas as pd
import psutil
import pytest

from tracing.recording import Run

#: The promise for a machine that does nothing else.
PROMISED = 0.03
#: With other work on this machine or its host, some switches are not seen (`switch` in the loss),
#: or a CPU is taken away while one of the two accounts reads its clock.
BUSY = 0.10
_IS_QUIET = bool(os.environ.get("QJOULE_QUIET"))
#: The time that the host had taken when the test began.
_taken_before_s = 0.0


def tolerance(promised: float = PROMISED) -> float:
    """Tolerance as a share of the CPU time; with `QJOULE_QUIET=1` the one that the docs promise."""
    return promised if _IS_QUIET else max(promised, BUSY)


def begin_test() -> None:
    """Called when a test begins."""
    global _taken_before_s  # noqa: PLW0603 (one clock, one machine)
    _taken_before_s = _taken_s()


def near_kernels(seconds: float) -> Any:
    """Compares with the kernel's CPU time of a thread (getrusage(2), CLOCK_THREAD_CPUTIME_ID,
    /proc).

    The kernel's account leaves out what the host took from a CPU (`update_rq_clock_task()` of
    kernel/sched/core.c). Ours, by the clock between two switches, includes it. Whoever was
    affected, it was at most what all CPUs lost since the test began.
    """
    taken_s = 0.0 if _IS_QUIET else _taken_s() - _taken_before_s
    return pytest.approx(seconds, abs=tolerance() * seconds + taken_s)


def _taken_s() -> float:
    return float(psutil.cpu_times().steal)


needs_perf = pytest.mark.skipif(
    shutil.which("perf") is None, reason="perf is not installed (linux-perf)"
)


@contextmanager
def task_clock(pid: int) -> Iterator[list[int]]:
    """Appends the ns that the process was on a CPU during the block, as perf counts it.

    It does not use schedstat. Its sum over a process omits threads that have exited, and it counts
    a thread from the moment in which another CPU decided to switch to it: the scheduler saves a
    reading of its clock then (wakeup_preempt(), kernel/sched/core.c). Whatever still runs until the
    CPU switches lacks that time: in a virtual machine, where interrupts between CPUs are slow, up
    to a quarter of the time of a thread that often wakes up.
    """
    orders, answers = os.pipe(), os.pipe()
    control = ("--delay", "-1", "--control", f"fd:{orders[0]},{answers[1]}")
    command = ["perf", "stat", *control, "-x", ",", "-e", "task-clock", "-p", str(pid)]
    perf = subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, pass_fds=(orders[0], answers[1])
    )
    os.close(orders[0])
    os.close(answers[1])
    counted: list[int] = []
    try:
        os.write(orders[1], b"enable\n")
        assert os.read(answers[0], 16).startswith(b"ack\n"), "perf did not attach"
        yield counted
        perf.send_signal(signal.SIGINT)
        assert perf.stderr is not None
        (line,) = (line for line in perf.stderr if "task-clock" in line)
        counted.append(round(float(line.split(",")[0]) * 1e6))
    finally:
        perf.kill()
        perf.wait()
        os.close(orders[1])
        os.close(answers[0])


def seconds_by_marker(run: Run, markers: Iterable[str]) -> dict[str, float]:
    """CPU time of the queries whose text has each marker."""
    segments = run.trace.pandas("segments").dropna(subset="query")
    segments = segments.merge(run.queries[["query", "text"]], on="query")
    ns = segments["t1_ns"] - segments["t0_ns"]
    texts = segments["text"].astype("string")
    return {
        marker: float(ns[texts.str.contains(marker, na=False)].sum()) / 1e9 for marker in markers
    }


def check_owners(run: Run, roles: Iterable[str] = ()) -> pd.DataFrame:
    """At least 98 % of a server's CPU time belongs to a statement, its session or a named role.

    Args:
        roles: names of the server's processes or threads; none: any name will do.

    Returns:
        The server's segments, with `ns`, and the role and kind of their owners.
    """
    owners = run.trace.pandas("owners")[["owner", "kind", "server", "role"]]
    segments = run.trace.pandas("segments").merge(owners, on="owner")
    segments = segments[segments["server"].notna()].merge(
        run.queries[["query", "text", "command"]], on="query", how="left"
    )
    ns = segments["ns"] = segments["t1_ns"] - segments["t0_ns"]
    has_role = segments["role"].isin([*roles]) if roles else segments["role"].notna()
    statement = segments["text"].notna()
    overhead = segments["command"].isin(["other", "connect"])
    share = ns[statement | overhead | ((segments["kind"] == "server") & has_role)].sum() / ns.sum()
    keys = [segments[name].astype(str) for name in ("kind", "command", "role")]
    assert share >= 0.98, ns.groupby(keys).sum()
    return segments
