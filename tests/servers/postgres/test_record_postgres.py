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
class Trial:
    story: day.Story
    run: Run
    attach_mode: str
    directory: Path


@pytest.fixture(scope="module")
def on_postgres(
    postgres: DatabaseServer, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Trial]:
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
        attach_mode: Trial(
            story, Run(directory / attach_mode), attach_mode, directory / attach_mode
        )
        for attach_mode in ATTACH_MODES
    }


@pytest.fixture(params=ATTACH_MODES)
def trial(request: pytest.FixtureRequest, on_postgres: dict[str, Trial]) -> Trial:
    return on_postgres[request.param]


def test_postgres_nothing_is_lost(trial: Trial) -> None:
    assert trial.run.loss == {}
    check_waits(trial.run.trace)
    assert trial.run.trace.complete
    assert set(trial.run.queries["attach_mode"]) == {trial.attach_mode}


def test_executions_are_those_of_pg_stat_statements(trial: Trial) -> None:
    """pg_stat_statements counts what was executed to its end: here everything that did not fail."""
    expected = trial.story.tables.copy()
    executed = marker_counts(trial.run.queries[~trial.run.queries["status"].isin(["error"])])
    executed = Counter({marker: executed[marker] for marker in expected})
    executed["do"] = trial.run.executions()["do ?"]
    # It counts each statement of a text, which is one query to us. It does not count PREPARE.
    assert expected.pop("m_multi") == 3 * executed.pop("m_multi") == 3
    executed["m_by_name"] -= 1
    for marker in MIXED if trial.attach_mode == "socket" else ():
        del expected[marker]
        executed.pop(marker, None)
    assert executed == expected
    assert trial.story.tables["m_portal"] == 4 * day.TURNS
    assert trial.story.tables["m_same"] == 7 * (day.TURNS // 4) * 2


def test_no_text_is_in_anothers_session(trial: Trial) -> None:
    queries = trial.run.having("m_client_")
    marks = queries["text"].str.extract(r"(m_client_\d+)")[0]
    assert (marks.groupby(queries["session"]).nunique() == 1).all()


def test_what_failed_is_told(trial: Trial) -> None:
    failed = trial.run.queries[trial.run.queries["status"].isin(["error"])]
    texts = failed["text"].dropna()
    counts = Counter(match[0] for text in texts if (match := MARKER.search(text)))
    expected = {"m_fails": 5, "m_failing": 3, "m_aborted": 1, "m_cancelled": 1}
    assert {marker: counts[marker] for marker in expected} == expected
    assert counts.keys() <= {*expected, "m_terminated", "m_failing_pipe", REFUSED}
    assert "m_gone" not in str(trial.run.text_of), "a name that no longer exists"


def test_every_other_statement_counts_under_its_own_shape(trial: Trial) -> None:
    sent, counted = trial.story.sent.copy(), marker_counts(trial.run.queries)
    if trial.attach_mode == "symbol":
        del sent[REFUSED]
    assert {marker: counted[marker] for marker in sent} == sent
    assert len(trial.run.having("m_fetched")) == 4, "one for each part of its rows"


def test_simple_extended_and_prepared_protocols_count_the_same(trial: Trial) -> None:
    executions = trial.run.executions()
    reads, writes = (day.CLIENTS * n for n in (day.SELECTS_EACH, day.TRANSACTIONS_EACH))
    assert executions["select abalance from pgbench_accounts where aid = ?"] == 3 * (reads + writes)
    for text, count in executions.items():
        if text.startswith(("update pgbench", "insert into pgbench", "end")):
            assert count == 3 * writes, text


def test_statements_prepared_before_have_their_text(trial: Trial) -> None:
    executed = trial.run.executions()
    expected = Counter({day.before_shape(n): day.BEFORE for n in range(day.STATEMENTS)})
    expected += day.BEFORE_EXTRA
    if trial.attach_mode == "symbol":  # it shows each statement of a request
        expected.update((day.before_shape(4), day.before_shape(5)))
    assert {text: executed[text] for text in expected} == expected
    before = trial.run.having("m_before_")
    assert set(before["user"]) == set(before["database"]) == {"postgres"}
    assert "secret" not in str(trial.run.text_of)


def test_what_stays_unknown_is_a_row_of_its_own(on_postgres: dict[str, Trial]) -> None:
    """The unnamed statement is not in a backend's table."""
    trial = on_postgres["socket"]
    prefix = "(prepared before tracing began: the unnamed statement of session "
    unknown = {text: n for text, n in trial.run.executions().items() if text.startswith(prefix)}
    assert list(unknown.values()) == [1]
    rows = attribute(trial.directory)["rows"]
    assert [row["calls"] for row in rows if row["shape"] in unknown] == [1]


def test_copy_is_one_query_to_its_end(trial: Trial) -> None:
    copies = trial.run.having("m_filled").sort_values("begin_ns").to_dict("records")
    coming, going, after = copies
    assert coming["text"].startswith("copy") and going["text"].startswith("copy")
    assert coming["end_ns"] <= going["begin_ns"] < going["end_ns"] <= after["begin_ns"]
    # Its data follows the statement and takes nearly all of the time, so it belongs to it.
    assert going["begin_ns"] - coming["end_ns"] < coming["end_ns"] - coming["begin_ns"]


def test_parallel_workers_work_for_their_leaders_query(trial: Trial) -> None:
    assert trial.story.parallel_workers > 0
    queries = set(trial.run.having("m_parallel")["query"])
    segments = trial.run.trace.pandas("segments")
    owners = trial.run.trace.pandas("owners").set_index("owner")
    own = segments[segments["query"].isin(queries)]
    by_process = (own["t1_ns"] - own["t0_ns"]).groupby(own["owner"].map(owners["tgid"])).sum()
    workers = by_process.drop(trial.story.parallel_leader)
    assert len(workers) >= trial.story.parallel_workers
    # They scan together with the leader: a large part of the work, unless they were missed.
    assert workers.sum() > 0.2 * by_process.sum()


def test_cpu_time_has_owners_with_names(trial: Trial) -> None:
    segments = check_owners(trial.run, ROLES)
    background = segments[segments["kind"] == "server"]
    assert {"backend", "walwriter"} <= set(background["role"]) <= ROLES
    unresolved = background[background["role"] == "postgres"]["ns"].sum()
    assert unresolved < 0.1 * segments["ns"].sum()


def test_a_query_that_outlives_the_recording(trial: Trial) -> None:
    assert list(trial.run.having("m_outlives")["status"]) == ["unfinished"]


def test_long_statements_are_marked(trial: Trial) -> None:
    lengths = trial.run.having("m_length_")
    for text, flags in zip(lengths["text"], lengths["flags"], strict=True):
        sent = int(text.split("m_length_")[1].split(",")[0])
        assert bool(flags & QueryFlag.TRUNCATED) == (sent > 4096)
