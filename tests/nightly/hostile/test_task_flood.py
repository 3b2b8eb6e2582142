# SPDX-License-Identifier: Apache-2.0
"""A local user who renames, forks or executes in a loop: nobody else's records are displaced."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nightly.hostile.bound import process_of
from qjoule_studies.servers.process import DatabaseServer
from tracing.recording import Run, recording

pytestmark = [pytest.mark.root, pytest.mark.server]

FLOODER, NEIGHBOUR = 54321, 54322  #: user ids that no package uses
QUERIES = 3000
#: A user has 4,000 events a second (bpf/core/task_budget.bpf.h): a busy machine forks less often.
FLOODS = {
    "rename": "name(15, b'flood %d' % number)",
    "fork": "os.fork() or os._exit(0); os.wait()",
    "exec": "os.spawnv(os.P_WAIT, '/bin/true', ['flood'])",
}
PROGRAM = """
import ctypes, itertools, os
name = ctypes.CDLL(None).prctl
name(15, b"flood")
print("here", flush=True)
for number in itertools.count():
    {}
"""


@contextmanager
def flooding(how: str) -> Iterator[int]:
    with process_of(PROGRAM.format(FLOODS[how]), user=FLOODER) as process:
        yield process.pid


def cpu_ns(pid: int) -> int:
    """CPU time of a process so far."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])


@pytest.mark.parametrize("how", FLOODS)
def test_a_flood_displaces_nobody(redis: DatabaseServer, place: Path, how: str) -> None:
    neighbour = place / "a_neighbour"
    neighbour.symlink_to("/bin/true")
    with (
        redis.connect() as client,
        flooding(how) as flooder,
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
    assert beyond > 0 or how != "rename"
    assert lost == {}, "only events of the flood"
    owners = run.trace.pandas("owners")
    assert sum(owners["comm"].eq("a_neighbour").fillna(False)) == 10, "of another user"
    segments = run.trace.pandas("segments").merge(owners[["owner", "kind", "tgid"]], on="owner")
    mine = segments[segments["tgid"] == flooder]
    assert set(mine["kind"]) == {"process"}
    if how == "rename":  # the others' time is mostly that of their children
        seen_ns = int((mine["t1_ns"] - mine["t0_ns"]).sum())
        assert seen_ns >= 0.9 * flooded_ns, "whatever it is called"
