# SPDX-License-Identifier: Apache-2.0
"""Counts and shapes on a real Redis, compared with `INFO commandstats`; `--via`."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from qjoule.contract import QueryFlag
from qjoule_studies.servers.process import DatabaseServer
from tracing import redis_story as day
from tracing.live_top import QJOULE, live_top
from tracing.recording import Run, Trial, check_no_waits, check_whole, qjoule, recording

pytestmark = [pytest.mark.beside, pytest.mark.root, pytest.mark.server]


@pytest.fixture(scope="module")
def trial(redis: DatabaseServer, tmp_path_factory: pytest.TempPathFactory) -> Trial[day.Story]:
    directory = tmp_path_factory.mktemp("redis") / "trace"
    with redis.connect() as referee:
        with recording(directory, "--pid", str(redis.pid), "--ring-mb", "64"):
            story = day.tell(redis, referee)
        return Trial(story, Run(directory))


def test_redis_nothing_is_lost_and_no_value_is_told(trial: Trial[day.Story]) -> None:
    check_whole(trial.run, "socket")
    assert not any("redis.call" in text for text in trial.run.text_of.values())
    check_no_waits(trial.run.trace)


def test_redis_every_command_counts(trial: Trial[day.Story]) -> None:
    """The server's own count, except for what scripts called: that came over no socket."""
    calls = trial.story.calls
    assert calls["set"] + calls["get"] + calls["incr"] > 60_000
    counted = trial.run.executions()
    del counted["INFO"]  # the queries of this test's own checks
    del counted["CLIENT SETINFO"]  # the driver's greeting: Redis 7.0 has no such subcommand
    assert counted.total() == calls.total() - day.IN_SCRIPT * day.SCRIPTS


def test_redis_commands_count_under_their_own_shape(trial: Trial[day.Story]) -> None:
    counted = trial.run.executions()
    expected = {
        **day.COMMON_SHAPES,
        "BLPOP queue:?": day.BLOCKED,
        "RPUSH queue:?": day.BLOCKED,
        "SUBSCRIBE news:sport": 1,
        "PUBLISH news:sport": day.PUBLISHED,
        "SET long:?": 1,
        "SET session:?": 1,
        "SET piece:?": 1,
        "SET " + "k" * 64 + "…": 1,
    }
    assert {text: counted[text] for text in expected} == expected


def test_redis_pipelines_of_different_commands_are_one_request(trial: Trial[day.Story]) -> None:
    mixed = trial.run.flagged(QueryFlag.PIPELINED)
    assert Counter(mixed["text"])["MULTI; SET order:?; LPUSH orders:open; EXEC"] == day.TRANSACTIONS


def test_redis_a_command_that_blocks_lasts_until_its_reply(trial: Trial[day.Story]) -> None:
    blocked = trial.run.queries[trial.run.queries["text"] == "BLPOP queue:?"].sort_values(
        "begin_ns"
    )
    pushed = trial.run.queries[trial.run.queries["text"] == "RPUSH queue:?"].sort_values("begin_ns")
    # The n-th element is popped after it was pushed, whenever its reader began to wait.
    assert (blocked["end_ns"].to_numpy() > pushed["begin_ns"].to_numpy()).all()


def test_redis_snapshot_is_background(trial: Trial[day.Story], redis: DatabaseServer) -> None:
    segments = trial.run.trace.pandas("segments")
    owners = trial.run.trace.pandas("owners").set_index("owner")
    spent = (segments["t1_ns"] - segments["t0_ns"]).groupby(segments["owner"]).sum()
    forks = owners[(owners["kind"] == "server") & (owners["tgid"] != redis.pid)]
    assert set(forks["role"]) == {"redis-fork"}
    assert spent.reindex(forks.index).sum() > 1_000_000


# ---- `--via`: another qjoule traces, and sends what it saw through pipes -------------------------

CALLS = 300
VIA = ("--via", f"env PATH={Path(QJOULE).parent}:{os.environ['PATH']}")


def test_a_recording_comes_whole_when_it_is_stopped(redis: DatabaseServer, tmp_path: Path) -> None:
    before = set(Path("/var/tmp").glob("qjoule-*"))
    output = tmp_path / "t"
    with redis.connect() as client, recording(output, *VIA, "--pid", str(redis.pid)) as recorder:
        for number in range(CALLS):
            client.set(f"via:{number}", "secret")
    assert Run(output).executions()["SET via:?"] == CALLS
    assert Run(output).trace.complete
    assert "MB from env" in recorder.messages
    assert output.stat().st_mode & 0o077 == 0
    assert list(tmp_path.iterdir()) == [output]
    assert set(Path("/var/tmp").glob("qjoule-*")) == before


def test_a_program_there_prints_nothing_into_the_trace(
    redis: DatabaseServer, tmp_path: Path
) -> None:
    options = ["--pid", str(redis.pid), "--energy", "none", "-o", str(tmp_path / "t")]
    done = qjoule("record", *VIA, *options, "--", "sh", "-c", "cat; echo 'hello  you'; exit 7")
    assert done.returncode == 7, done.stderr
    assert "hello  you" in done.stderr and not done.stdout
    assert Run(tmp_path / "t").trace.complete


def test_the_view_counts_what_the_server_did(redis: DatabaseServer) -> None:
    with redis.connect() as client, live_top(*VIA, "--pid", str(redis.pid)) as top:
        for number in range(CALLS):
            client.set(f"seen:{number}", "secret")
        client.set("last", "")
        snapshots = top.finish(lambda row: row["shape"] == "SET last")
    rows = [row for snapshot in snapshots for row in snapshot["interval"]["rows"]]
    assert sum(row["calls"] for row in rows if row["shape"] == "SET seen:?") == CALLS
