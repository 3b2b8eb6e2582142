# SPDX-License-Identifier: Apache-2.0
"""Checks the checker: the package of known power follows the kernel's own accounts."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tracing.animated_rapl import animated_rapl

pytestmark = pytest.mark.root


def cpu_times() -> tuple[float, float]:
    """Seconds in which a CPU was busy, and in which the host ran something else: /proc/stat."""
    first = Path("/proc/stat").read_text().splitlines()[0]
    user, nice, system, _idle, _iowait, irq, softirq, steal, *_ = map(int, first.split()[1:])
    tick_s = 1 / os.sysconf("SC_CLK_TCK")
    return (user + nice + system + irq + softirq) * tick_s, steal * tick_s


def test_it_draws_for_what_the_kernel_says_was_busy() -> None:
    with animated_rapl(idle_w=10.0, shared_w=5.0, cpu_w=2.0) as rapl:
        before = cpu_times()
        subprocess.run(["timeout", "1", "sh", "-c", "while :; do :; done"], check=False)
        kernel_s, stolen_s = (end - begin for begin, end in zip(before, cpu_times(), strict=True))
        energy = (rapl.root / "intel-rapl:0" / "energy_uj").read_text()
    totals = rapl.totals
    assert totals is not None
    # One tick per CPU, and work that runs for less than a tick and so is in no tick.
    allowed_s = 0.1 + 0.1 * kernel_s
    assert kernel_s - allowed_s <= totals.cpu_busy_s <= kernel_s + stolen_s + allowed_s
    assert 1 <= totals.any_busy_s <= totals.seconds
    assert totals.any_busy_s <= totals.cpu_busy_s + 1e-6
    drawn_uj = 1e6 * (10 * totals.seconds + 5 * totals.any_busy_s + 2 * totals.cpu_busy_s)
    assert totals.energy_uj == pytest.approx(drawn_uj, rel=1e-3)
    assert 0 < int(energy) <= totals.energy_uj
