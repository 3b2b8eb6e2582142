# SPDX-License-Identifier: Apache-2.0
"""CPU time by perf's software counter, which is read at every context switch."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

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
