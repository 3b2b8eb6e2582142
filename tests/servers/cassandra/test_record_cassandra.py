# SPDX-License-Identifier: Apache-2.0
"""Counts and shapes on a real Cassandra, with and without the agent: the server counts the same."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from qjoule.contract import QueryFlag
from qjoule_studies.servers.process import DatabaseServer
from tracing import cql_story as day
from tracing.recording import (
    Run,
    check_helpers,
    check_no_waits,
    check_waits,
    check_whole,
    qjoule,
    recording,
)

pytestmark = [pytest.mark.beside, pytest.mark.root, pytest.mark.server]

PREPARED_BEFORE = 200  #: executions


@dataclass
class Trial:
    story: day.Story
    run: Run
    attach_mode: str
    before: str  #: the text of a statement that was prepared before


@pytest.fixture(scope="module")
def on_cassandra(
    cassandra: DatabaseServer, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Trial]:
    directory = tmp_path_factory.mktemp("cassandra")
    options = "--pid", str(cassandra.pid), "--ring-mb", "64"
    with ExitStack() as stack:
        client = stack.enter_context(cassandra.connect())
        day.set_up(client)
        select = client.session.prepare("SELECT id, note FROM shop.orders WHERE id = ?")
        with (
            recording(directory / "statistical", *options),
            recording(directory / "agent", *options, "--agent"),
        ):
            _only_one_may_use_the_agent(directory, *options)
            day.together(client, select, ((i,) for i in range(PREPARED_BEFORE)))
            story = day.tell(cassandra, client)
    before = {
        "statistical": f"(prepared before tracing began: 0x{select.query_id.hex()})",
        "agent": "select id, note from shop.orders where id = ?",
    }
    return {
        attach_mode: Trial(story, Run(directory / attach_mode), attach_mode, text)
        for attach_mode, text in before.items()
    }


def _only_one_may_use_the_agent(directory: Path, *options: str) -> None:
    second = qjoule("record", "-o", str(directory / "second"), "-d", "1", "--agent", *options)
    assert second.returncode == 1
    assert "another qjoule uses the agent" in second.stderr
    assert len(second.stderr.strip().splitlines()) == 1


@pytest.fixture(params=["statistical", "agent"])
def trial(request: pytest.FixtureRequest, on_cassandra: dict[str, Trial]) -> Trial:
    return on_cassandra[request.param]


def test_cassandra_nothing_is_lost_and_no_literal_is_told(trial: Trial) -> None:
    check_whole(trial.run, trial.attach_mode)
    if trial.attach_mode == "agent":
        check_waits(trial.run.trace)
        check_helpers(trial.run.trace)
    else:
        check_no_waits(trial.run.trace)


def test_cassandra_requests_count_under_their_own_shape(trial: Trial) -> None:
    """In every version of the protocol, compressed or not; of a batch by its statements."""
    prepared, texts = (trial.run.executions(command=name) for name in ("execute", "query"))
    assert {text: prepared[text] for text in trial.story.prepared} == trial.story.prepared
    assert {text: texts[text] for text in trial.story.text} == trial.story.text


def test_cassandra_the_server_counts_the_same(trial: Trial) -> None:
    """Cassandra's metrics count statements: a batch is six; a PREPARE and a failed statement are
    none."""
    # A driver reads the schema again whenever it likes, so only what lies between the two readings
    # of the metrics counts. A reply counts its own query: the first reading is in neither count.
    first, last = trial.run.having("cql_metrics")["begin_ns"].agg(["min", "max"])
    queries = trial.run.queries
    between = queries[queries["begin_ns"].between(first, last, inclusive="right")]
    executions = between.groupby("command", observed=True)["executions"].sum()
    assert executions["execute"] == trial.story.counted["prepared_statements_executed"]
    regular = executions["query"] - trial.story.text[day.BATCH]
    assert regular == trial.story.counted["regular_statements_executed"]


def test_cassandra_prepared_before_is_known_by_its_id_or_by_the_agent(trial: Trial) -> None:
    assert trial.run.executions(command="execute")[trial.before] == PREPARED_BEFORE


def test_cassandra_without_the_agent_requests_own_no_cpu_time(
    on_cassandra: dict[str, Trial],
) -> None:
    """No thread shows which request it works for, so none is charged or timed; stages have rows."""
    run = on_cassandra["statistical"].run
    segments = run.trace.pandas("segments")
    assert segments["query"].isna().all()
    assert all(int(flags) & QueryFlag.NO_END for flags in run.queries["flags"])
    assert (run.queries["begin_ns"] == run.queries["end_ns"]).all()
    of_server = segments.merge(run.trace.pandas("owners")[["owner", "kind", "role"]], on="owner")
    of_server = of_server[of_server["kind"] == "server"]
    spent = (of_server["t1_ns"] - of_server["t0_ns"]).groupby(of_server["role"].astype(str)).sum()
    for stage in ("Native-Transpor", "epollEventLoopG", "ReadStage-?", "MutationStage-?"):
        assert spent.get(stage, 0) > 0, stage


def test_cassandra_the_agent_joins_what_other_stages_do(on_cassandra: dict[str, Trial]) -> None:
    """Counters are always passed to a separate stage, whose thread works for the request."""
    run = on_cassandra["agent"].run
    queries = run.queries.set_index("query")
    counters = queries[(queries["text"] == day.COUNT) & (queries["command"] == "execute")]
    segments, owners = run.trace.pandas("segments"), run.trace.pandas("owners")
    segments = segments[segments["query"].isin(counters.index)]
    threads = owners.set_index("owner")["pid"].reindex(segments["owner"]).to_numpy()
    elsewhere = segments[threads != counters["pid"].reindex(segments["query"]).to_numpy()]
    assert set(elsewhere["query"]) == set(counters.index)
