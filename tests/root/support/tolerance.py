# SPDX-License-Identifier: Apache-2.0
"""How far our CPU time may be from another account of it."""

from __future__ import annotations

import os
from typing import Any

import psutil
import pytest

#: What is promised of a machine that does nothing else.
PROMISED = 0.03
#: Beside other work, on this machine or on its host, switches are not shown (`switch` in the loss),
#: or a CPU is away while one of the two reads its clock.
BUSY = 0.10
_IS_QUIET = bool(os.environ.get("QJOULE_QUIET"))
#: What the host had taken when the test began.
_taken_before_s = 0.0


def tolerance(promised: float = PROMISED) -> float:
    """As a share of the CPU time. `QJOULE_QUIET=1` holds the tests to the promise."""
    return promised if _IS_QUIET else max(promised, BUSY)


def begin() -> None:
    """A test begins."""
    global _taken_before_s  # noqa: PLW0603 (one clock, one machine)
    _taken_before_s = _taken_s()


def near_kernels(seconds: float) -> Any:
    """CPU time by the kernel's account of a thread (getrusage(2), CLOCK_THREAD_CPUTIME_ID, /proc).

    That leaves out what the host took from a CPU meanwhile (`update_rq_clock_task()` of
    kernel/sched/core.c), which ours, by the clock between two switches, does not: whosever it was,
    it was no more than all CPUs lost since the test began.
    """
    taken_s = 0.0 if _IS_QUIET else _taken_s() - _taken_before_s
    return pytest.approx(seconds, abs=tolerance() * seconds + taken_s)


def _taken_s() -> float:
    return float(psutil.cpu_times().steal)
