# SPDX-License-Identifier: Apache-2.0
"""How far our CPU time may differ from another account of it."""

from __future__ import annotations

import os
from typing import Any

import psutil
import pytest

#: The promise for a machine that does nothing else.
PROMISED = 0.03
#: With other work on this machine or its host, some switches are not seen (`switch` in the loss),
#: or a CPU is taken away while one of the two accounts reads its clock.
BUSY = 0.10
_IS_QUIET = bool(os.environ.get("QJOULE_QUIET"))
#: The time that the host had taken when the test began.
_taken_before_s = 0.0


def tolerance(promised: float = PROMISED) -> float:
    """Tolerance as a share of the CPU time. `QJOULE_QUIET=1` requires the promised one."""
    return promised if _IS_QUIET else max(promised, BUSY)


def begin() -> None:
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
