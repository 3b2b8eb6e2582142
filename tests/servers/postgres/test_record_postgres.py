# SPDX-License-Identifier: Apache-2.0
"""Counts and texts on a real PostgreSQL: what the clients sent equals what the trace contains."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from qjoule.contract import QueryFlag
from servers.process import DatabaseServer
from tracing import postgres_story as day
from tracing.mysql_story import marker_counts
from tracing.postgres_client import SYNC, bind, execute, parse, postgres_client, query
from tracing.recording import Run, both_rungs, recording

pytestmark = [pytest.mark.root, pytest.mark.server]

#: Bytes that the database's encoding does not have: refused before the server keeps the statement,
#: so on the symbol rung the call has no text.
REFUSED = "m_bytes"


@dataclass
class Told:
    story: day.Story
    run: Run
    rung: str


@pytest.fixture(scope="module")
def on_postgres(
    postgres: DatabaseServer, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Told]:
    directory = tmp_path_factory.mktemp("postgres")
    day.prepare_server(postgres)
    before = day.Before(postgres)
    with both_rungs(directory, postgres.pid):
        story = day.tell(postgres, before)
    return {rung: Told(story, Run(directory / rung), rung) for rung in ("socket", "symbol")}


@pytest.fixture(params=["socket", "symbol"])
def told(request: pytest.FixtureRequest, on_postgres: dict[str, Told]) -> Told:
    return on_postgres[request.param]


def test_postgres_nothing_is_lost(told: Told) -> None:
    assert told.run.loss == {}
    assert told.run.trace.complete
    assert set(told.run.queries["rung"]) == {told.rung}


def test_postgres_every_statement_counts_under_its_own_shape(told: Told) -> None:
    sent = told.story.sent.copy()
    if told.rung == "symbol":
        del sent[REFUSED]
    # The text is in the server's memory, whenever it was prepared.
    sent["m_before"] = told.story.executed_before_attach
    assert marker_counts(told.run.queries) == sent


def test_simple_extended_and_prepared_protocols_count_the_same(told: Told) -> None:
    """pgbench's 40,000 statements: one count per protocol, times three, is the trace's."""
    executions = told.run.executions()
    reads = day.CLIENTS * day.SELECTS_EACH
    writes = day.CLIENTS * day.TRANSACTIONS_EACH
    assert executions["select abalance from pgbench_accounts where aid = ?"] == 3 * (reads + writes)
    for text, count in executions.items():
        if text.startswith(("update pgbench", "insert into pgbench", "end")):
            assert count == 3 * writes, text
    for protocol in day.PROTOCOLS:
        counted = told.story.counted[protocol]
        for text, calls in counted.items():
            # For prepared utility statements pg_stat_statements counts only the first execution: it
            # clears their queryId (pg_stat_statements.c, pgss_ProcessUtility).
            if protocol == "prepared" and text in ("BEGIN", "END"):
                continue
            if "pgbench_accounts" in text and text.startswith("SELECT"):
                assert calls == reads + writes
            elif "count(*)" not in text:
                assert calls == writes, text


def test_statement_prepared_before_attach(told: Told) -> None:
    nameless = told.run.flagged(QueryFlag.NO_TEXT)
    executed = nameless["executions"].sum()
    assert executed == 0


def test_copy_is_one_query_to_its_end(told: Told) -> None:
    copies = told.run.having("m_copied").sort_values("begin_ns").to_dict("records")
    coming, going = (row for row in copies if row["text"].startswith("copy"))
    (after,) = (row for row in copies if "m_after_copy" in row["text"])
    assert coming["end_ns"] <= going["begin_ns"] < going["end_ns"] <= after["begin_ns"]
    # Its data follows the statement and takes nearly all of the time, so it belongs to it.
    assert going["begin_ns"] - coming["end_ns"] < coming["end_ns"] - coming["begin_ns"]


def test_parallel_workers_work_for_their_leaders_query(told: Told) -> None:
    assert told.story.parallel_workers > 0
    queries = set(told.run.having("m_gathered")["query"])
    segments = told.run.trace.pandas("segments")
    owners = told.run.trace.pandas("owners").set_index("owner")
    mine = segments[segments["query"].isin(queries)]
    by_process = (mine["t1_ns"] - mine["t0_ns"]).groupby(mine["owner"].map(owners["tgid"])).sum()
    workers = by_process.drop(told.story.parallel_leader)
    assert len(workers) >= told.story.parallel_workers
    # They scan together with the leader: a large part of the work, unless they were missed.
    assert workers.sum() > 0.2 * by_process.sum()


def test_both_rungs_of_postgres_agree(on_postgres: dict[str, Told]) -> None:
    socket, symbol = (on_postgres[rung].run.executions() for rung in ("socket", "symbol"))
    differ = {text for text in socket.keys() | symbol.keys() if socket[text] != symbol[text]}
    counts = {text: (socket[text], symbol[text]) for text in differ if REFUSED not in text}
    assert counts == {"": (1, 0), "?": (0, 1)}, "the empty statement, and the one without text"


def test_messages_cut_by_the_servers_buffer(postgres: DatabaseServer, tmp_path: Path) -> None:
    """Long pipelines: reads of 8 KB cut headers and names at every place.

    No execution is lost, and one that cannot be identified is not assigned to a shape.
    """
    with both_rungs(tmp_path, postgres.pid), postgres_client(postgres.port) as client:
        for length in range(1, 8):
            name = b"n" * length
            client.exchange(parse(b"select 1 as m_cut_%d" % length, name), SYNC)
            client.exchange(*([bind(name), execute()] * 2000), SYNC)
        client.send(*([query(b"select 1 as m_burst")] * 1000))
        for _ in range(1000):
            client.replies()
        client.exchange(*([parse(b"select 1 as m_a"), bind(), execute()] * 2), SYNC)
        mixed = (b"select 1 as m_a", b"select 2 as m_b", b"select 1 as m_a")
        client.exchange(*(part for t in mixed for part in (parse(t), bind(), execute())), SYNC)
    sent = Counter({f"m_cut_{n}": 2000 for n in range(1, 8)})
    sent.update(m_burst=1000, m_a=4, m_b=1)
    socket, symbol = Run(tmp_path / "socket"), Run(tmp_path / "symbol")
    assert marker_counts(symbol.queries) == sent
    assert socket.queries["executions"].sum() == sent.total()
    claimed = marker_counts(socket.queries)
    assert all(claimed[marker] <= sent[marker] for marker in claimed)
    assert claimed["m_a"] == 2
    assert claimed["m_b"] == 0


def test_a_query_that_outlives_the_recording(postgres: DatabaseServer, tmp_path: Path) -> None:
    its_backend = "pg_stat_activity where query like '%m_long%' and pid != pg_backend_pid()"
    with postgres_client(postgres.port) as client, closing(postgres.connect()) as observer:
        with recording(tmp_path / "t", "--pid", str(postgres.pid)):
            client.send(query(b"select pg_sleep(60) as m_long"))
            while not observer.execute(f"select 1 from {its_backend}").fetchone():
                time.sleep(0.01)
        observer.execute(f"select pg_cancel_backend(pid) from {its_backend}")
        client.replies()
    assert list(Run(tmp_path / "t").having("m_long")["status"]) == ["unfinished"]
