# SPDX-License-Identifier: Apache-2.0
"""A local user who renames, forks or executes in a loop: nobody else's records are displaced."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from qjoule.contract import Block, Loss, Mode, TaskEvent
from qjoule.session.targets import plan_tracing
from servers.process import DatabaseServer
from tracing.recording import Run, recording
from tracing.tracer import tracing

pytestmark = [pytest.mark.root, pytest.mark.server]

SOURCE = Path(__file__).parent / "task_flood.c"
FLOODER, NEIGHBOUR = 54321, 54322  #: user ids that no package uses
QUERIES = 3000
#: A user has 4,000 events a second, and half of that at once: bpf/core/task_budget.bpf.h.
PER_S, BURST = 4000, 2000
#: A busy machine may not do that so often.
SLOW = ("fork", "exec")


@pytest.fixture
def flood_program(place: Path) -> Path:
    program = place / "task_flood"
    subprocess.run(["gcc", "-O2", "-Werror", "-o", program, SOURCE], check=True)
    program.chmod(0o755)
    return program


@contextmanager
def flooding(program: Path, how: str) -> Iterator[int]:
    """A user's process that floods; yields its pid."""
    process = subprocess.Popen([program, how], user=FLOODER, group=FLOODER, extra_groups=[])
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()


def cpu_ns(pid: int) -> int:
    """CPU time of a process so far."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])


@pytest.mark.parametrize("how", ["rename", "fork", "exec"])
def test_a_flood_displaces_nobody(
    redis: DatabaseServer, flood_program: Path, place: Path, how: str
) -> None:
    neighbour = place / "a_neighbour"
    neighbour.symlink_to("/bin/true")
    with (
        redis.connect() as client,
        flooding(flood_program, how) as flooder,
        recording(place / "t", "--pid", str(redis.pid)),
    ):
        before_ns = cpu_ns(flooder)
        for number in range(QUERIES):
            client.set(f"key:{number}", "value")
            if number % (QUERIES // 10) == 0:
                subprocess.run([neighbour], user=NEIGHBOUR, group=NEIGHBOUR, check=True)
        flooded_ns = cpu_ns(flooder) - before_ns
    run = Run(place / "t")
    assert run.executions()["SET key:?"] == QUERIES
    lost = run.loss
    beyond = lost.pop("task_rate", 0)
    assert beyond > 0 or how in SLOW
    assert lost == {}, "only events of the flood"
    owners = run.trace.pandas("owners")
    assert sum(owners["comm"].eq("a_neighbour").fillna(False)) == 10, "of another user"
    segments = run.trace.pandas("segments").merge(owners[["owner", "kind", "tgid"]], on="owner")
    mine = segments[segments["tgid"] == flooder]
    assert set(mine["kind"]) == {"process"}
    if how == "rename":  # the others' time is mostly that of their children
        seen_ns = int((mine["t1_ns"] - mine["t0_ns"]).sum())
        assert seen_ns >= 0.9 * flooded_ns, "whatever it is called"


@pytest.mark.parametrize("mode", [Mode.RECORD, Mode.LIVE])
@pytest.mark.parametrize("how", ["rename", "fork", "exec"])
def test_a_flood_is_told_at_its_rate(
    flood_program: Path, redis: DatabaseServer, how: str, mode: Mode
) -> None:
    """Recorded events are limited to what a user may cause in that time; the rest is counted."""
    plan = plan_tracing([redis.pid]).arguments()
    with (
        flooding(flood_program, how),
        tracing(mode, "--energy", "none", "--only-running", *plan) as session,
    ):
        subprocess.run(["/bin/sleep", "1.5"], check=True)
        session.finish()
    tasks = session.records(Block.TASK)
    mine = tasks[np.char.find(tasks["comm"], b"flood") >= 0]
    mine = mine[mine["event"] != TaskEvent.ALIVE]
    span_s = (int(mine["t_ns"].max()) - int(mine["t_ns"].min())) * 1e-9
    assert 0 < len(mine) <= BURST + PER_S * span_s + (os.cpu_count() or 1)
    if how not in SLOW:
        assert len(mine) >= BURST
        assert Loss.TASK_RATE in session.records(Block.LOSS)["cause"]
