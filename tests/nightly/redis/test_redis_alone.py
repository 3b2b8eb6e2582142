# SPDX-License-Identifier: Apache-2.0
"""A Redis that has the machine to itself: its CPU time, and a recording in which it restarts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from qjoule_studies.servers.process import DatabaseServer
from qjoule_studies.servers.redis import redis_server
from servers.databases import command_stats
from tracing.cpu_time import tolerance
from tracing.recording import Run, recording

pytestmark = [pytest.mark.root, pytest.mark.server]

#: Of a recording of all servers, other servers' statements included: its own must find room.
ROOM = ("--ring-mb", "64")
HEAVY = {"SORT n": "SORT n LIMIT 0 1", "EVAL": "EVAL {loop} 0"}
LOOP = "local x = 0 for i = 1, 2000000 do x = x + i end return x"
ROUNDS = 40


@contextmanager
def undisturbed(pid: int) -> Iterator[None]:
    """Prevents ordinary processes from preempting this server's main thread."""
    os.sched_setscheduler(pid, os.SCHED_FIFO, os.sched_param(1))
    try:
        yield
    finally:
        os.sched_setscheduler(pid, os.SCHED_OTHER, os.sched_param(0))


def test_redis_cpu_time_equals_the_servers_own(redis: DatabaseServer, tmp_path: Path) -> None:
    """Commands that take much longer than reading and answering them, run one at a time.

    The server measures elapsed time, which equals CPU time only while nothing else gets its CPU. So
    only commands that had the CPU from beginning to end count. The kernel reserves a twentieth of
    the CPU for others (Documentation/scheduler/sched-rt-group.rst).
    """
    theirs_us: dict[str, list[float]] = {text: [] for text in HEAVY}
    with undisturbed(redis.pid), redis.connect() as client:
        client.eval(
            "for i = 1, 60000 do redis.call('rpush', KEYS[1], i * 7919 % 60013) end", 1, "n"
        )
        with recording(tmp_path / "t", "--pid", str(redis.pid)):
            for _ in range(ROUNDS):
                for text, command in HEAVY.items():
                    name = text.split()[0].lower()
                    before = command_stats(client).get(name, {"usec": 0})["usec"]
                    client.execute_command(*(w.format(loop=LOOP) for w in command.split()))
                    theirs_us[text].append(command_stats(client)[name]["usec"] - before)
    run = Run(tmp_path / "t")
    segments = run.trace.pandas("segments")
    cpu_ns = (segments["t1_ns"] - segments["t0_ns"]).groupby(segments["query"]).sum()
    for text, us in theirs_us.items():
        queries = run.queries[run.queries["text"] == text].sort_values("begin_ns")
        ours_ns = cpu_ns.reindex(queries["query"]).to_numpy()
        theirs_ns = np.array(us) * 1e3
        assert len(ours_ns) == len(theirs_ns)
        alone = ours_ns > 0.995 * (queries["end_ns"] - queries["begin_ns"]).to_numpy()
        assert alone.sum() >= ROUNDS // 10, text
        assert ours_ns[alone].sum() == pytest.approx(theirs_ns[alone].sum(), rel=tolerance()), text


def test_redis_restarted_while_recording(tmp_path: Path) -> None:
    """Under the name of a file, or with a value, that looks like a Sentinel's option, too."""
    configuration = tmp_path / "redis-sentinel"
    configuration.write_text("")
    odd = ("--pidfile", str(tmp_path / "--sentinel"))
    with redis_server() as server, recording(tmp_path / "t", *ROOM):
        for turn in ("first", "again"):
            with server.connect() as client:
                client.get(f"{turn}:1")
            server.stop()
            server.start()
        server.stop()
        server.argv = [server.argv[0], str(configuration), *server.argv[1:], *odd]
        server.start()
        with server.connect(tcp=True) as client:
            client.get("odd:1")
    run = Run(tmp_path / "t")
    assert run.loss == {}
    counted = run.executions()
    assert [counted[f"GET {turn}:?"] for turn in ("first", "again", "odd")] == [1, 1, 1]
