# SPDX-License-Identifier: Apache-2.0
"""A real PostgreSQL: what pg_stat_statements and the clients count is in the trace."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from qjoule.contract import QueryFlag
from qjoule_studies.servers.process import DatabaseServer
from tracing import postgres_story as day
from tracing.cpu_time import check_owners
from tracing.mysql_story import MARKER, marker_counts
from tracing.postgres_client import postgres_client, query
from tracing.recording import Run, attribute, both_attach_modes, check_waits
from waiting import until

pytestmark = [pytest.mark.beside, pytest.mark.root, pytest.mark.server]

ATTACH_MODES = ("socket", "symbol")
#: Requests with different statements: on sockets they have no statement of their own.
MIXED = {"m_same", "m_other", "m_inside", "m_failing_pipe"}
#: Bytes that the database's encoding does not have: refused before the server keeps the statement,
#: so on the symbol mode the call has no text.
REFUSED = "m_bytes"
#: The names of a server's processes.
ROLES = {
    *("backend", "checkpointer", "bgwriter", "walwriter", "autovac launch", "autovac worker"),
    *("parallel worker", "logical launch", "postgres"),
}


@dataclass
class Told:
    story: day.Story
    run: Run
    attach_mode: str
    directory: Path


@pytest.fixture(scope="module")
def on_postgres(
    postgres: DatabaseServer, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Told]:
    directory = tmp_path_factory.mktemp("postgres")
    day.prepare_server(postgres)
    outlives = "pg_stat_activity where query like '%m_outlives%' and pid != pg_backend_pid()"
    with ExitStack() as stack:
        before = stack.enter_context(closing(day.Before(postgres)))
        client = stack.enter_context(postgres_client(postgres.port))
        observer = stack.enter_context(closing(postgres.connect()))
        with both_attach_modes(directory, postgres.pid):
            story = day.tell(postgres, before)
            client.send(query(b"select pg_sleep(60) as m_outlives"))
            until(lambda: observer.execute(f"select 1 from {outlives}").fetchone())
        observer.execute(f"select pg_cancel_backend(pid) from {outlives}")
        client.replies()
    return {
        attach_mode: Told(story, Run(directory / attach_mode), attach_mode, directory / attach_mode)
        for attach_mode in ATTACH_MODES
    }


@pytest.fixture(params=ATTACH_MODES)
def told(request: pytest.FixtureRequest, on_postgres: dict[str, Told]) -> Told:
    return on_postgres[request.param]


def test_postgres_nothing_is_lost(told: Told) -> None:
    assert told.run.loss == {}
    check_waits(told.run.trace)
    assert told.run.trace.complete
    assert set(told.run.queries["attach_mode"]) == {told.attach_mode}


def test_executions_are_those_of_pg_stat_statements(told: Told) -> None:
    """It counts what was executed to its end: here that is everything that did not fail."""
    expected = told.story.tables.copy()
    executed = marker_counts(told.run.queries[~told.run.queries["status"].isin(["error"])])
    executed = Counter({marker: executed[marker] for marker in expected})
    executed["do"] = told.run.executions()["do ?"]
    # It counts each statement of a text, which is one query to us. It does not count PREPARE.
    assert expected.pop("m_multi") == 3 * executed.pop("m_multi") == 3
    executed["m_by_name"] -= 1
    for marker in MIXED if told.attach_mode == "socket" else ():
        del expected[marker]
        executed.pop(marker, None)
    assert executed == expected
    assert told.story.tables["m_portal"] == 4 * day.TURNS
    assert told.story.tables["m_same"] == 7 * (day.TURNS // 4) * 2


def test_no_text_is_in_anothers_session(told: Told) -> None:
    queries = told.run.having("m_client_")
    marks = queries["text"].str.extract(r"(m_client_\d+)")[0]
    assert (marks.groupby(queries["session"]).nunique() == 1).all()


def test_what_failed_is_told(told: Told) -> None:
    failed = told.run.queries[told.run.queries["status"].isin(["error"])]
    texts = failed["text"].dropna()
    found = Counter(match[0] for text in texts if (match := MARKER.search(text)))
    expected = {"m_fails": 5, "m_failing": 3, "m_aborted": 1, "m_cancelled": 1}
    assert {marker: found[marker] for marker in expected} == expected
    assert found.keys() <= {*expected, "m_terminated", "m_failing_pipe", REFUSED}
    assert "m_gone" not in str(told.run.text_of), "a name that no longer exists"


def test_every_other_statement_counts_under_its_own_shape(told: Told) -> None:
    sent, counted = told.story.sent.copy(), marker_counts(told.run.queries)
    if told.attach_mode == "symbol":
        del sent[REFUSED]
    assert {marker: counted[marker] for marker in sent} == sent
    assert len(told.run.having("m_fetched")) == 4, "one for each part of its rows"


def test_simple_extended_and_prepared_protocols_count_the_same(told: Told) -> None:
    executions = told.run.executions()
    reads, writes = (day.CLIENTS * n for n in (day.SELECTS_EACH, day.TRANSACTIONS_EACH))
    assert executions["select abalance from pgbench_accounts where aid = ?"] == 3 * (reads + writes)
    for text, count in executions.items():
        if text.startswith(("update pgbench", "insert into pgbench", "end")):
            assert count == 3 * writes, text


def test_statements_prepared_before_have_their_text(told: Told) -> None:
    executed = told.run.executions()
    expected = Counter({day.before_shape(n): day.BEFORE for n in range(day.STATEMENTS)})
    expected += day.BEFORE_EXTRA
    if told.attach_mode == "symbol":  # it shows each statement of a request
        expected.update((day.before_shape(4), day.before_shape(5)))
    assert {text: executed[text] for text in expected} == expected
    before = told.run.having("m_before_")
    assert set(before["user"]) == set(before["database"]) == {"postgres"}
    assert "secret" not in str(told.run.text_of)


def test_what_stays_unknown_is_a_row_of_its_own(on_postgres: dict[str, Told]) -> None:
    """The unnamed statement is not in a backend's table."""
    told = on_postgres["socket"]
    words = "(prepared before tracing began: the unnamed statement of session "
    unknown = {text: n for text, n in told.run.executions().items() if text.startswith(words)}
    assert list(unknown.values()) == [1]
    rows = attribute(told.directory)["rows"]
    assert [row["calls"] for row in rows if row["shape"] in unknown] == [1]


def test_copy_is_one_query_to_its_end(told: Told) -> None:
    copies = told.run.having("m_filled").sort_values("begin_ns").to_dict("records")
    coming, going, after = copies
    assert coming["text"].startswith("copy") and going["text"].startswith("copy")
    assert coming["end_ns"] <= going["begin_ns"] < going["end_ns"] <= after["begin_ns"]
    # Its data follows the statement and takes nearly all of the time, so it belongs to it.
    assert going["begin_ns"] - coming["end_ns"] < coming["end_ns"] - coming["begin_ns"]


def test_parallel_workers_work_for_their_leaders_query(told: Told) -> None:
    assert told.story.parallel_workers > 0
    queries = set(told.run.having("m_parallel")["query"])
    segments = told.run.trace.pandas("segments")
    owners = told.run.trace.pandas("owners").set_index("owner")
    mine = segments[segments["query"].isin(queries)]
    by_process = (mine["t1_ns"] - mine["t0_ns"]).groupby(mine["owner"].map(owners["tgid"])).sum()
    workers = by_process.drop(told.story.parallel_leader)
    assert len(workers) >= told.story.parallel_workers
    # They scan together with the leader: a large part of the work, unless they were missed.
    assert workers.sum() > 0.2 * by_process.sum()


def test_cpu_time_has_owners_with_names(told: Told) -> None:
    segments = check_owners(told.run, ROLES)
    background = segments[segments["kind"] == "server"]
    assert {"backend", "walwriter"} <= set(background["role"]) <= ROLES
    unresolved = background[background["role"] == "postgres"]["ns"].sum()
    assert unresolved < 0.1 * segments["ns"].sum()


def test_a_query_that_outlives_the_recording(told: Told) -> None:
    assert list(told.run.having("m_outlives")["status"]) == ["unfinished"]


def test_long_statements_are_marked(told: Told) -> None:
    lengths = told.run.having("m_length_")
    for text, flags in zip(lengths["text"], lengths["flags"], strict=True):
        sent = int(text.split("m_length_")[1].split(",")[0])
        assert bool(flags & QueryFlag.TRUNCATED) == (sent > 4096)
