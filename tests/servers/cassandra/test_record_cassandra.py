# SPDX-License-Identifier: Apache-2.0
"""Counts and shapes on a real Cassandra: the server's own counts equal the trace's."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from qjoule.contract import QueryFlag
from servers.process import DatabaseServer
from tracing import cql_story as day
from tracing.recording import Run, Told, recording

pytestmark = [pytest.mark.root, pytest.mark.server]


@pytest.fixture(scope="module")
def told(cassandra: DatabaseServer, tmp_path_factory: pytest.TempPathFactory) -> Told[day.Story]:
    directory = tmp_path_factory.mktemp("cassandra") / "trace"
    with cassandra.connect() as referee:
        day.set_up(referee)
        with recording(directory, "--pid", str(cassandra.pid), "--ring-mb", "64"):
            story = day.tell(cassandra, referee)
    return Told(story, Run(directory))


def test_cassandra_nothing_is_lost(told: Told[day.Story]) -> None:
    assert told.run.loss == {}
    assert told.run.trace.complete
    assert set(told.run.queries["rung"]) == {"statistical"}


def test_cassandra_requests_count_under_their_own_shape(told: Told[day.Story]) -> None:
    counted = told.run.executions()
    assert {text: counted[text] for text in told.story.calls} == told.story.calls


def test_cassandra_the_server_counts_the_same(told: Told[day.Story]) -> None:
    """Its metrics count statements: a batch is six; a PREPARE and a failed statement are none."""
    run, story = told.run, told.story
    batches = run.executions()[f"begin batch; {day.INSERT}; {day.DELETE}; apply batch"]
    prepared = run.executions(command="execute").total()
    assert prepared == story.counted["prepared_statements_executed"]
    # A driver reads the schema again whenever it likes, so only what lies between the two readings
    # of the metrics counts. A reply counts its own query: the first reading is in neither count.
    first, last = run.having("cql_metrics")["begin_ns"].agg(["min", "max"])
    between = run.queries[run.queries["begin_ns"].between(first, last, inclusive="right")]
    regular = between.loc[between["command"] == "query", "executions"].sum() - batches
    assert regular == story.counted["regular_statements_executed"]


def test_cassandra_no_literal_is_told(told: Told[day.Story]) -> None:
    texts = told.run.trace.pandas("shapes")["text"]
    assert not [text for text in texts if "secret" in text]
    assert len(told.run.trace.pandas("statements")) == 0


def test_cassandra_requests_own_no_cpu_time(told: Told[day.Story]) -> None:
    """No thread shows which request it works for, so none is charged or timed."""
    trace = told.run.trace
    assert trace.pandas("segments")["query"].isna().all()
    queries = told.run.queries
    assert all(int(flags) & QueryFlag.NO_END for flags in queries["flags"])
    assert (queries["begin_ns"] == queries["end_ns"]).all()


def test_cassandra_stages_have_rows(told: Told[day.Story]) -> None:
    owners = told.run.trace.pandas("owners")[["owner", "kind", "role"]]
    segments = told.run.trace.pandas("segments").merge(owners, on="owner")
    mine = segments[segments["kind"] == "server"]
    spent = (mine["t1_ns"] - mine["t0_ns"]).groupby(mine["role"].astype(str)).sum()
    for stage in ("Native-Transpor", "epollEventLoopG", "ReadStage-?", "MutationStage-?"):
        assert spent.get(stage, 0) > 0, stage


@pytest.mark.parametrize(
    "options",
    [
        {"protocol_version": 4},
        {"protocol_version": 3, "compression": "snappy"},
        {"protocol_version": 4, "compression": "lz4"},
    ],
    ids=lambda options: "-".join(map(str, options.values())),
)
def test_cassandra_older_protocols(
    cassandra: DatabaseServer, tmp_path: Path, options: dict[str, Any]
) -> None:
    counted = _few(cassandra, tmp_path / "t", options)
    assert counted.loss == {}
    assert _of_table(counted.executions()) == {day.INSERT: 300, day.SELECT: 300}


@pytest.mark.parametrize(
    "options",
    [{"protocol_version": 5}, {"protocol_version": 4}],
    ids=["segments", "envelopes"],
)
def test_cassandra_compressed_requests_count_as_any(
    cassandra: DatabaseServer, tmp_path: Path, options: dict[str, Any]
) -> None:
    """The whole story: every request is sent compressed if that makes it shorter."""
    compression = "lz4" if options["protocol_version"] == 5 else "snappy"
    with cassandra.connect() as referee:
        day.set_up(referee)
        with recording(tmp_path / "t", "--pid", str(cassandra.pid), "--ring-mb", "64"):
            story = day.tell(cassandra, referee, compression=compression, **options)
    run = Run(tmp_path / "t")
    assert run.loss == {}
    counted = run.executions()
    assert {text: counted[text] for text in story.calls} == story.calls
    assert (
        run.executions(command="execute").total() == story.counted["prepared_statements_executed"]
    )
    assert not [text for text in run.trace.pandas("shapes")["text"] if "secret" in text]


def test_cassandra_a_keyspace_is_part_of_an_id(cassandra: DatabaseServer, tmp_path: Path) -> None:
    """Statements without a keyspace are prepared in that of USE: the same text in two has
    two ids.
    """
    with cassandra.connect() as client:
        day.set_up(client)
        client.execute(
            'create keyspace if not exists "Shop" with replication ='
            " {'class': 'SimpleStrategy', 'replication_factor': 1}"
        )
        client.execute('create table if not exists "Shop".orders (id int primary key)')
        with recording(tmp_path / "t", "--pid", str(cassandra.pid)):
            for keyspace in ("shop", '"Shop"'):
                with cassandra.connect() as other:
                    other.execute(f"USE {keyspace}")
                    select = other.session.prepare("SELECT id FROM orders WHERE id = ?")
                    day.together(other, select, ((i,) for i in range(50)))
    counted = Run(tmp_path / "t").executions(command="execute")
    assert counted == {"select id from orders where id = ?": 100}


def test_cassandra_prepared_before_is_known_by_its_id(
    cassandra: DatabaseServer, tmp_path: Path
) -> None:
    with cassandra.connect() as client:
        day.set_up(client)
        select = client.session.prepare("SELECT id, note FROM shop.orders WHERE id = ?")
        with recording(tmp_path / "t", "--pid", str(cassandra.pid)):
            day.together(client, select, ((i,) for i in range(200)))
        counted = Run(tmp_path / "t").executions(command="execute")
        assert counted == {f"(prepared before tracing began: 0x{select.query_id.hex()})": 200}


def _few(
    server: DatabaseServer, directory: Path, options: dict[str, Any], note: str = "note"
) -> Run:
    """300 writes and 300 reads, prepared while tracing."""
    with server.connect() as client:
        day.set_up(client)
    with (
        recording(directory, "--pid", str(server.pid)),
        server.connect(**options) as client,
    ):
        insert = client.session.prepare("INSERT INTO shop.orders (id, note) VALUES (?, ?)")
        select = client.session.prepare("SELECT note FROM shop.orders WHERE id = ?")
        day.together(client, insert, ((i, note) for i in range(300)))
        day.together(client, select, ((i,) for i in range(300)))
    return Run(directory)


def _of_table(counted: Counter[str]) -> dict[str, int]:
    return {text: n for text, n in counted.items() if "shop.orders" in text}
