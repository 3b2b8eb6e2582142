# SPDX-License-Identifier: Apache-2.0
"""The agent rung on a real Cassandra: its own count of answers equals the trace's."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from cassandra.protocol import SyntaxException

from qjoule.contract import QueryFlag
from servers.cassandra import Client
from servers.process import DatabaseServer
from tracing import agent_story as day
from tracing.recording import QJOULE, Recorder, Run, qjoule, recording

pytestmark = [pytest.mark.beside, pytest.mark.root, pytest.mark.server]

TIMEOUT_S = 60.0
AGENT_THREAD = "qjoule-agent"


@dataclass
class Told:
    story: day.Story
    answered: day.Answered
    run: Run


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def has_agent(pid: int) -> bool:
    names = Path(f"/proc/{pid}/task").glob("*/comm")
    return any(name.read_text().rstrip() == AGENT_THREAD for name in names)


def options(server: DatabaseServer) -> tuple[str, ...]:
    return ("--agent", "--pid", str(server.pid), "--ring-mb", "64")


@pytest.fixture(scope="module")
def client(cassandra: DatabaseServer) -> Iterator[Client]:
    with cassandra.connect() as client:
        day.make_tables(client)
        yield client


@pytest.fixture(scope="module")
def told(
    cassandra: DatabaseServer, client: Client, tmp_path_factory: pytest.TempPathFactory
) -> Told:
    directory = tmp_path_factory.mktemp("agent") / "trace"
    with recording(directory, *options(cassandra)), day.counted(client) as answered:
        story = day.tell(client)
    return Told(story, answered, Run(directory))


def test_agent_nothing_is_lost(told: Told) -> None:
    assert told.run.loss == {}
    assert told.run.trace.complete
    assert set(told.run.queries["rung"]) == {"agent"}


def test_agent_counts_what_the_client_sent(told: Told) -> None:
    executed = told.run.executions(command="execute")
    assert executed == told.story.prepared
    counted = told.run.executions(command="query")
    assert {shape: counted[shape] for shape in told.story.text} == told.story.text


def test_agent_counts_what_cassandra_counts(told: Told) -> None:
    assert told.run.executions(command="execute").total() == told.answered.prepared
    texts = told.run.executions(command="query").total() - told.story.batches
    assert texts - day.ASKED == told.answered.text - day.COUNTED


def test_agent_shows_batches_by_their_statements(told: Told) -> None:
    batches = told.run.having("apply batch")
    assert len(batches) == told.story.batches
    (text,) = set(batches["text"])
    assert text == (
        f"begin batch; {day.INSERT_SHAPE}; delete from story.people where id = ?; apply batch"
    )


def test_agent_joins_what_other_stages_do(told: Told) -> None:
    """Counters are always passed to a separate stage, whose thread works for the request."""
    queries = told.run.queries.set_index("query")
    counters = queries[(queries["text"] == day.COUNT_SHAPE) & (queries["command"] == "execute")]
    segments, owners = told.run.trace.pandas("segments"), told.run.trace.pandas("owners")
    segments = segments[segments["query"].isin(counters.index)]
    threads = owners.set_index("owner")["pid"].reindex(segments["owner"]).to_numpy()
    elsewhere = segments[threads != counters["pid"].reindex(segments["query"]).to_numpy()]
    assert set(elsewhere["query"]) == set(counters.index)


def test_agent_leaves_and_comes_again(
    cassandra: DatabaseServer, client: Client, tmp_path: Path
) -> None:
    for turn in range(2):
        until(lambda: not has_agent(cassandra.pid), "the agent did not leave")
        client.execute("SELECT name FROM story.people WHERE id = 1")  # between two: not seen
        with recording(tmp_path / str(turn), *options(cassandra)):
            assert has_agent(cassandra.pid)
            for i in range(10):
                client.execute(f"SELECT name FROM story.people WHERE id = {i}")
        counted = Run(tmp_path / str(turn)).executions(command="query")
        assert counted == Counter({day.SELECT_SHAPE: 10})


def test_agent_leaves_nothing_on_disk(told: Told) -> None:  # noqa: ARG001
    assert not [p for p in Path("/tmp").glob("qjoule-*") if (p / "hooks.jar").exists()]


def test_agent_serves_one_qjoule_at_a_time(cassandra: DatabaseServer, tmp_path: Path) -> None:
    until(lambda: not has_agent(cassandra.pid), "the agent did not leave")
    with recording(tmp_path / "first", *options(cassandra)):
        second = qjoule("record", "-o", str(tmp_path / "second"), "-d", "1", *options(cassandra))
        assert second.returncode == 1
        assert "another qjoule uses the agent" in second.stderr
        assert len(second.stderr.strip().splitlines()) == 1
        assert has_agent(cassandra.pid)


@pytest.mark.parametrize("victim", ["root part", "command", "tracer"])
def test_agent_leaves_a_killed_qjoule(
    cassandra: DatabaseServer, client: Client, tmp_path: Path, victim: str
) -> None:
    until(lambda: not has_agent(cassandra.pid), "the agent did not leave")
    recorder = Recorder(tmp_path / "cut", "--energy", "none", *options(cassandra))
    try:
        recorder.attached()
        pids = {
            "root part": recorder.process.pid,
            "command": recorder.command_pid,
            "tracer": recorder.tracer_pid,
        }
        client.execute("SELECT name FROM story.people WHERE id = 1")
        os.kill(pids[victim], signal.SIGKILL)
        recorder.wait()
        until(lambda: not has_agent(cassandra.pid), "the agent did not leave")
        client.execute("SELECT name FROM story.people WHERE id = 1")
    finally:
        recorder.end()
    with recording(tmp_path / "again", *options(cassandra)):
        client.execute("SELECT name FROM story.people WHERE id = 1")
    assert Run(tmp_path / "again").executions(command="query") == Counter({day.SELECT_SHAPE: 1})


def test_agent_statements_that_a_client_may_send(
    cassandra: DatabaseServer, client: Client, tmp_path: Path
) -> None:
    by_name = "SELECT id FROM story.people WHERE name = '{}' ALLOW FILTERING"
    until(lambda: not has_agent(cassandra.pid), "the agent did not leave")
    with recording(tmp_path / "t", *options(cassandra)):
        client.execute(by_name.format("secret" * 2000))
        client.execute(by_name.format("s\u00e9cret \U0001f511 \x01 \\"))
        for nothing in ("SELEKT secret", "SELECT 'secret", "", " "):
            with pytest.raises(SyntaxException):
                client.execute(nothing)
    run = Run(tmp_path / "t")
    assert run.loss == {}
    shape = "select id from story.people where name = ? allow filtering"
    long, short = run.having("where name")["text"]
    assert short == shape
    assert shape.startswith(long.removesuffix("…").rstrip())
    assert len(run.flagged(QueryFlag.TRUNCATED)) == 1
    assert run.queries["executions"].sum() == 6
    assert not [t for t in run.text_of.values() if "secret" in t and "selekt" not in t]


def test_agent_in_the_live_view(cassandra: DatabaseServer, client: Client) -> None:
    until(lambda: not has_agent(cassandra.pid), "the agent did not leave")
    command = [QJOULE, "top", "-b", "-n", "3", "-d", "1", "--json", "--energy", "none"]
    arguments = ["--agent", "--pid", str(cassandra.pid)]
    with subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, text=True) as top:
        prepared = client.session.prepare(day.COUNT)
        while top.poll() is None:
            client.execute(prepared, (1,))
        assert top.stdout is not None
        documents = [json.loads(line) for line in top.stdout]
    assert top.returncode == 0
    rows = [row for document in documents for row in document["interval"]["rows"]]
    counted = [row for row in rows if row.get("shape") == day.COUNT_SHAPE]
    assert sum(row["calls"] for row in counted) > 0
    assert {row["rung"] for row in counted} == {"agent"}
    until(lambda: not has_agent(cassandra.pid), "the agent did not leave")
