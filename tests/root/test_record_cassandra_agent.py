"""The agent rung on a real Cassandra: what it says it answered is what the trace says."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from root.support import cassandra_story as day
from root.support.recording import Recorder, Run, qjoule, recording
from servers.cassandra import Client
from servers.process import DatabaseServer

pytestmark = [pytest.mark.root, pytest.mark.server]

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
        f"begin unlogged batch {day.INSERT_SHAPE}; "
        "delete from story.people where id = ?; apply batch"
    )


def test_agent_joins_what_other_stages_do(told: Told) -> None:
    """Counters are always handed to a stage of their own, whose thread works for the request."""
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
        client.execute("SELECT name FROM story.people WHERE id = 1")  # between two: unseen
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


@pytest.mark.parametrize("victim", ["recorder", "tracer"])
def test_agent_leaves_a_killed_qjoule(
    cassandra: DatabaseServer, client: Client, tmp_path: Path, victim: str
) -> None:
    until(lambda: not has_agent(cassandra.pid), "the agent did not leave")
    recorder = Recorder(tmp_path / "cut", "--energy", "none", *options(cassandra))
    try:
        recorder.attached()
        pid = recorder.tracer_pid if victim == "tracer" else recorder.process.pid
        client.execute("SELECT name FROM story.people WHERE id = 1")
        os.kill(pid, signal.SIGKILL)
        recorder.wait()
        until(lambda: not has_agent(cassandra.pid), "the agent did not leave")
        client.execute("SELECT name FROM story.people WHERE id = 1")
    finally:
        recorder.end()
    with recording(tmp_path / "again", *options(cassandra)):
        client.execute("SELECT name FROM story.people WHERE id = 1")
    assert Run(tmp_path / "again").executions(command="query") == Counter({day.SELECT_SHAPE: 1})
