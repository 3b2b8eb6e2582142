# SPDX-License-Identifier: Apache-2.0
"""Counts, times and shapes on a real Redis: the server's statistics equal the trace's."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from qjoule.contract import QueryFlag
from servers.process import DatabaseServer
from servers.redis import command_stats
from tracing import redis_story as day
from tracing.recording import Run, Told, recording
from tracing.tolerance import tolerance

pytestmark = [pytest.mark.root, pytest.mark.server]


@pytest.fixture(scope="module")
def told(redis: DatabaseServer, tmp_path_factory: pytest.TempPathFactory) -> Told[day.Story]:
    directory = tmp_path_factory.mktemp("redis") / "trace"
    with redis.connect() as referee:
        with recording(directory, "--pid", str(redis.pid), "--ring-mb", "64"):
            story = day.tell(redis, referee)
        return Told(story, Run(directory))


def test_redis_nothing_is_lost(told: Told[day.Story]) -> None:
    assert told.run.loss == {}
    assert told.run.trace.complete
    assert set(told.run.queries["rung"]) == {"socket"}


def test_redis_every_command_counts(told: Told[day.Story]) -> None:
    """The server's own count, except for what scripts called: that came over no socket."""
    calls = told.story.calls
    assert calls["set"] + calls["get"] + calls["incr"] > 100_000
    counted = told.run.executions()
    del counted["INFO"]  # the queries of this test's own checks
    del counted["CLIENT SETINFO"]  # the driver's greeting: Redis 7.0 has no such subcommand
    assert counted.total() == calls.total() - day.IN_SCRIPT * day.SCRIPTS


def test_redis_commands_count_under_their_own_shape(told: Told[day.Story]) -> None:
    counted = told.run.executions()
    expected = {
        "SET user:?:name": day.PLAIN,
        "GET user:?:name": day.PLAIN,
        "INCR hits:?": day.PIPELINED,
        "EVAL": day.SCRIPTS,
        "BLPOP queue:?": day.BLOCKED,
        "RPUSH queue:?": day.BLOCKED,
        "SUBSCRIBE news:sport": 1,
        "PUBLISH news:sport": day.PUBLISHED,
        "MULTI; SET order:?; LPUSH orders:open; EXEC": 4 * day.TRANSACTIONS,
        "SET long:?": 1,
        "SET session:?": 1,
        "SET piece:?": 1,
        "SET " + "k" * 64 + "…": 1,
    }
    assert {text: counted[text] for text in expected} == expected


def test_redis_pipelines_of_different_commands_are_one_request(told: Told[day.Story]) -> None:
    mixed = told.run.flagged(QueryFlag.PIPELINED)
    assert Counter(mixed["text"])["MULTI; SET order:?; LPUSH orders:open; EXEC"] == day.TRANSACTIONS


def test_redis_no_value_is_told(told: Told[day.Story]) -> None:
    shapes = told.run.trace.pandas("shapes")
    assert not [text for text in shapes["text"] if "secret" in text or "redis.call" in text]
    assert len(told.run.trace.pandas("statements")) == 0


def test_redis_a_command_that_blocks_lasts_until_its_reply(told: Told[day.Story]) -> None:
    blocked = told.run.queries[told.run.queries["text"] == "BLPOP queue:?"].sort_values("begin_ns")
    pushed = told.run.queries[told.run.queries["text"] == "RPUSH queue:?"].sort_values("begin_ns")
    # The n-th element is popped after it was pushed, whenever its reader began to wait.
    assert (blocked["end_ns"].to_numpy() > pushed["begin_ns"].to_numpy()).all()


@contextmanager
def undisturbed(pid: int) -> Iterator[None]:
    """Prevents ordinary processes from preempting this server's main thread."""
    os.sched_setscheduler(pid, os.SCHED_FIFO, os.sched_param(1))
    try:
        yield
    finally:
        os.sched_setscheduler(pid, os.SCHED_OTHER, os.sched_param(0))


HEAVY = {"SORT n": "SORT n LIMIT 0 1", "EVAL": "EVAL {loop} 0"}
LOOP = "local x = 0 for i = 1, 2000000 do x = x + i end return x"
ROUNDS = 40


def test_redis_cpu_time_equals_the_servers_own(redis: DatabaseServer, tmp_path: Path) -> None:
    """Commands that take much longer than reading and answering them, run one at a time.

    The server measures elapsed time, which equals CPU time only while nothing else gets its CPU. So
    only commands that had the CPU from beginning to end count. The kernel reserves a twentieth of
    the CPU for others (Documentation/scheduler/sched-rt-group.rst).
    """
    said_us: dict[str, list[float]] = {text: [] for text in HEAVY}
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
                    said_us[text].append(command_stats(client)[name]["usec"] - before)
    run = Run(tmp_path / "t")
    segments = run.trace.pandas("segments")
    cpu_ns = (segments["t1_ns"] - segments["t0_ns"]).groupby(segments["query"]).sum()
    for text, us in said_us.items():
        told = run.queries[run.queries["text"] == text].sort_values("begin_ns")
        mine_ns = cpu_ns.reindex(told["query"]).to_numpy()
        said_ns = np.array(us) * 1e3
        assert len(mine_ns) == len(said_ns)
        alone = mine_ns > 0.995 * (told["end_ns"] - told["begin_ns"]).to_numpy()
        assert alone.sum() >= ROUNDS // 10, text
        assert mine_ns[alone].sum() == pytest.approx(said_ns[alone].sum(), rel=tolerance()), text


def test_redis_snapshot_is_background(redis: DatabaseServer, tmp_path: Path) -> None:
    with redis.connect() as client, recording(tmp_path / "t", "--pid", str(redis.pid)):
        client.eval("for i = 1, 100000 do redis.call('set', 'key:' .. i, i) end", 0)
        client.bgsave()
        while client.info("persistence")["rdb_bgsave_in_progress"]:
            time.sleep(0.01)
        client.flushall()
    run = Run(tmp_path / "t")
    segments, owners = run.trace.pandas("segments"), run.trace.pandas("owners")
    owners = owners.set_index("owner")
    spent = (segments["t1_ns"] - segments["t0_ns"]).groupby(segments["owner"]).sum()
    forks = owners[(owners["kind"] == "server") & (owners["tgid"] != redis.pid)]
    assert set(forks["role"]) == {"redis-fork"}
    assert spent.reindex(forks.index).sum() > 1_000_000
