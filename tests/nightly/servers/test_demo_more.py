# SPDX-License-Identifier: Apache-2.0
"""The demo on a busy machine, and when one of its other processes ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from exclusive.test_demo_run import (
    Victim,
    adds_up,
    ends_in_order,
    itself,
    server_of,
    small_demo,
    workload_of,
)
from tracing.recording import Run

pytestmark = [pytest.mark.root, pytest.mark.server]


@contextmanager
def busy_machine() -> Iterator[None]:
    """Keeps every CPU busy with something else."""
    loop = [sys.executable, "-c", "while True: pass"]
    loops = [subprocess.Popen(loop) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for one in loops:
            one.kill()
            one.wait()


def test_it_runs_on_a_busy_machine(tmp_path: Path) -> None:
    with busy_machine():
        output, messages, keep = small_demo(tmp_path / "kept")
    adds_up(output)
    assert "ALARM" not in output + messages
    run = Run(keep)
    assert run.trace.complete
    assert run.loss == {}


@pytest.mark.parametrize(
    ("victim", "number", "code"),
    [
        (itself, signal.SIGTERM, 143),
        (server_of, signal.SIGKILL, 1),
        (workload_of, signal.SIGKILL, 1),
    ],
    ids=["terminated", "server killed", "workload killed"],
)
def test_nothing_is_left_behind(victim: Victim, number: int, code: int) -> None:
    ends_in_order(victim, number, code)
