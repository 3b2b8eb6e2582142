# SPDX-License-Identifier: Apache-2.0
"""A real MariaDB and MySQL: what the clients sent, and what the servers count, is in the trace."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from qjoule.contract import QueryFlag
from qjoule.engine.attribute import attribute
from qjoule_studies.servers.process import DatabaseServer
from tracing import mysql_story as day
from tracing.cpu_time import check_owners
from tracing.mysql_client import CHUNK
from tracing.recording import Run, both_attach_modes, check_waits, qjoule, recording

pytestmark = [pytest.mark.beside, pytest.mark.root, pytest.mark.server]

#: Of a session's life: marker, user, database.
NAMES = {
    ("m_nowhere", "root", None),
    ("m_first_one", "root", "m_one"),
    ("m_then_mysql", "root", "mysql"),
    ("m_in_one", "root", "m_one"),
    ("m_in_two", "root", "m_two"),
    ("m_still_two", "root", "m_two"),
    ("m_again_one", "root", "m_one"),
    ("m_again_two", "root", "m_two"),
    ("m_reset_two", "root", "m_two"),
    ("m_user_one", "m_user", "m_one"),
    ("m_rows", "root", "m_one"),
    ("m_after_file", "root", "m_one"),
    *((f"m_before_{number}", "root", "m_one") for number in range(day.STATEMENTS)),
}
BEGAN_BEFORE = "(began before tracing)"
#: By text and outcome.
TRANSACTIONS = {
    ("begin; insert into tx values (?+); select count(*) from tx; commit", "committed"): (
        day.COMMITTED
    ),
    ("start transaction; update tx_undone set a = a + ?; rollback", "rolled back"): (
        day.ROLLED_BACK
    ),
    ("begin; insert into tx values (?+)", "committed"): 1,  # another BEGIN follows
    ("begin; insert into tx values (?+); create table tx_ddl(a int)", "committed"): 1,
    ("begin; insert into tx values (?+)", "rolled back"): 1,  # its client disconnects
    ("insert into tx values (?+); commit", "committed"): 3,  # without autocommit
    ("begin; insert into tx_missing values (?+); rollback", "rolled back"): 1,
    ("begin; insert into tx values (?+)", "unfinished"): 1,  # open as the recording ends
    (f"{BEGAN_BEFORE}; insert into tx values (?+); commit", "committed"): 1,
    (f"{BEGAN_BEFORE}; rollback", "rolled back"): 1,
    ("begin; insert into tx values (?+); commit", "committed"): 3,  # in sessions from before
}
#: What one outer_one() executes. The call of inner_one() is one child, including all that it does.
CHILDREN = Counter(
    {
        "insert into t values (n, ?)": 1,
        "update t set b = b + ? where a = n": day.LOOPS,
        "call inner_one()": 1,
        "select count(*) from t where a = n": 1,
    }
)


@dataclass
class Trial:
    story: day.Story
    run: Run
    attach_mode: str
    name: str
    directory: Path

    @property
    def on_sockets(self) -> bool:
        return self.attach_mode == "socket"


def _record_story(server: DatabaseServer, name: str, directory: Path) -> dict[str, Trial]:
    day.prepare_server(server)
    with closing(day.Before(server)) as before:
        if name == "pool":  # its threads serve any client: only symbols can follow
            options = ("--pid", str(server.pid), "--children", "--ring-mb", "64")
            with recording(directory / "symbol", *options):
                story = day.tell(server, before)
        else:
            with both_attach_modes(directory, server.pid, options=("--children",)):
                story = day.tell(server, before)
    attach_modes = ("symbol",) if name == "pool" else ("socket", "symbol")
    return {
        attach_mode: Trial(
            story, Run(directory / attach_mode), attach_mode, name, directory / attach_mode
        )
        for attach_mode in attach_modes
    }


@pytest.fixture(scope="module")
def on_mariadb(
    mariadb: DatabaseServer, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Trial]:
    return _record_story(mariadb, "mariadb", tmp_path_factory.mktemp("mariadb"))


@pytest.fixture(scope="module")
def on_mysql80(
    mysql80: DatabaseServer, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Trial]:
    return _record_story(mysql80, "mysql80", tmp_path_factory.mktemp("mysql"))


@pytest.fixture(scope="module")
def on_pool(
    mariadb_pool: DatabaseServer, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Trial]:
    return _record_story(mariadb_pool, "pool", tmp_path_factory.mktemp("pool"))


@pytest.fixture(
    params=[
        ("on_mariadb", "socket"),
        ("on_mariadb", "symbol"),
        ("on_mysql80", "socket"),
        ("on_mysql80", "symbol"),
        ("on_pool", "symbol"),
    ],
    ids="-".join,
)
def trial(request: pytest.FixtureRequest) -> Trial:
    server, attach_mode = request.param
    result: Trial = request.getfixturevalue(server)[attach_mode]
    return result


def test_hidden_sessions_alone_are_lost_and_on_sockets_only(trial: Trial) -> None:
    hidden = {"opaque_session": trial.story.hidden_sessions} if trial.on_sockets else {}
    assert trial.run.loss == hidden
    check_waits(trial.run.trace)
    assert trial.run.trace.complete
    assert set(trial.run.queries["attach_mode"]) == {trial.attach_mode}


def test_every_statement_counts_under_its_own_shape(trial: Trial) -> None:
    expected = trial.story.sent if trial.on_sockets else trial.story.sent + trial.story.hidden
    assert day.marker_counts(trial.run.queries) == expected
    assert "secret" not in str(trial.run.text_of)


def test_no_text_is_in_anothers_session(trial: Trial) -> None:
    queries = trial.run.having("m_client_")
    marks = queries["text"].str.extract(r"(m_client_\d+)")[0]
    assert (marks.groupby(queries["session"]).nunique() == 1).all()


def test_counts_equal_the_servers_own(trial: Trial) -> None:
    """Com_select and so on over sysbench's part, prepared and text together."""
    executions: Counter[str] = Counter()
    for text, count in trial.run.executions().items():
        if "sbtest1" in text:
            executions[text.split()[0]] += count
    names = ("select", "insert", "update", "delete")
    counted = {name: trial.story.mass[f"Com_{name}"] for name in names}
    assert {name: executions[name] for name in counted} == counted
    assert sum(counted.values()) > 25_000


def test_commands_are_told_apart(trial: Trial) -> None:
    counted = trial.story.counted
    unseen = day.HIDDEN if trial.on_sockets else 0
    prepared = counted["Com_stmt_prepare"] - counted["Com_prepare_sql"] - 2 * unseen
    assert trial.run.commands()["prepare"] == prepared
    executed = trial.run.executions(command="execute")
    expected = counted["Com_stmt_execute"] - counted["Com_execute_sql"] - 4 * unseen
    assert executed.total() == expected
    assert executed["select c from sbtest1 where id = ?"] == day.POINT_SELECTS
    assert not executed.keys() & trial.run.executions(command="prepare").keys()


def test_statements_prepared_before_have_their_text(trial: Trial) -> None:
    nameless = trial.run.flagged(QueryFlag.NO_TEXT)
    assert not nameless["executions"].any()  # only the one that is closed
    executed = trial.run.executions(command="execute")
    for number in range(day.STATEMENTS):
        assert executed[day.before_shape(number)] == day.BEFORE * day.TURNS
    truncated = trial.run.flagged(QueryFlag.TRUNCATED)
    assert set(trial.run.having("m_long")["query"]) <= set(truncated["query"])


def test_users_and_databases_follow_the_session(trial: Trial) -> None:
    queries = trial.run.queries
    marks = queries["text"].str.extract(r" as (m_\w+)")[0]
    rows = zip(marks, queries["user"], queries["database"], strict=True)
    names = {
        (mark, *(None if pd.isna(name) else name for name in columns)) for mark, *columns in rows
    }
    marked = {mark for mark, _, _ in NAMES}
    assert {name for name in names if name[0] in marked} == NAMES


def test_addresses_and_programs_are_those_of_the_clients(trial: Trial) -> None:
    sessions = trial.run.trace.pandas("sessions")
    if not trial.on_sockets:
        assert set(sessions["event"]) == {"met", "user", "database", "kept"}
        connections = set(sessions["connection"].dropna())
        assert any(connection.startswith("unix ") for connection in connections)
        assert any(connection.startswith("127.0.0.1 ") for connection in connections)
        return
    openings = sessions[sessions["event"] == "open"]
    assert set(openings["address"].dropna()) == {"127.0.0.1"}
    assert openings["address"].isna().any(), "unix sockets have none"
    assert "m_wire_py" in set(sessions["application"])


def _statuses(trial: Trial, shape: str) -> list[str | None]:
    """The statuses in order, None where not known."""
    queries = trial.run.queries
    queries = queries[(queries["text"] == shape) & (queries["executions"] > 0)].sort_values(
        "begin_ns"
    )
    return [None if pd.isna(status) else status for status in queries["status"]]


def test_outcomes_are_told_where_the_reply_says(trial: Trial) -> None:
    assert _statuses(trial, "insert into k values (?+)") == ["ok"]
    assert _statuses(trial, "insert into k(a) values (?+)") == ["error"]
    assert _statuses(trial, "select * from m_absent") == ["error"]
    assert _statuses(trial, "select ? as m_rows") == [None], "rows may yet end in an error"
    # MySQL passes executions on without the location of the connection's buffer.
    has_status = trial.on_sockets or trial.name != "mysql80"
    expected = ["ok", "error"] if has_status else [None, None]
    assert _statuses(trial, "insert into k(k.a) values (?+)") == expected


def test_files_are_part_of_their_statement(trial: Trial) -> None:
    """This holds also if a file has more than 255 packets, is sent early, or a comment precedes
    LOAD."""
    assert trial.run.having("m_fake").empty
    loads = trial.run.having("into table t ").sort_values("begin_ns")
    after = trial.run.having("m_after_file").sort_values("begin_ns")
    assert list(loads["status"]) == ["ok", "ok"]
    assert (loads["end_ns"].to_numpy() <= after["begin_ns"].to_numpy()).all()


def test_what_serves_a_statement_is_its_work_and_no_execution(trial: Trial) -> None:
    rows = trial.run.having("insert into t(b)")
    assert rows["executions"].sum() == 3
    executed = rows[rows["command"] == "execute"]
    assert len(executed) == 3 + 6 + 2, "executions, long data, RESET and CLOSE"
    bulk = trial.run.having("insert into t(a)")["executions"].sum()
    assert bulk == (0 if trial.name == "mysql80" else 2), "as the server counts"


def test_long_statements_are_marked(trial: Trial) -> None:
    lengths = trial.run.having("m_length_")
    for text, size, flags in zip(
        lengths["text"], lengths["statement_bytes"], lengths["flags"], strict=True
    ):
        sent = int(text.split("m_length_")[1].split(",")[0])
        # The socket mode knows only the length of the first packet: 16 MB, less its command byte.
        assert size == (min(sent, CHUNK - 1) if trial.on_sockets else sent)
        assert bool(flags & QueryFlag.TRUNCATED) == (sent > 4096)


def test_a_query_that_was_killed_ends(trial: Trial) -> None:
    assert len(trial.run.having("m_kill_query")) == 1
    assert trial.run.having("m_kill_query")["status"].isna().all()
    (killed,) = trial.run.having("m_kill_session").to_dict("records")
    assert killed["end_ns"] > killed["begin_ns"]


def test_control_characters_do_not_reach_the_table(on_mysql80: dict[str, Trial]) -> None:
    directory = str(on_mysql80["socket"].directory)
    table = qjoule("attribute", directory, "--top", "1000").stdout
    assert "m_escape" in table
    assert not {c for c in table if (ord(c) < 32 and c != "\n") or 127 <= ord(c) < 160}


def _transactions(trial: Trial) -> pd.DataFrame:
    transactions = trial.run.trace.pandas("transactions")
    return transactions[
        transactions["text"].astype("string").str.contains(r" tx|began before", regex=True)
    ]


def test_transactions_have_their_statements_and_outcome(trial: Trial) -> None:
    counts = _transactions(trial).groupby(["text", "outcome"], observed=True).size()
    assert counts.to_dict() == TRANSACTIONS


def test_queries_of_a_transaction_are_its_sessions_in_its_time(trial: Trial) -> None:
    queries = trial.run.queries
    for transaction in _transactions(trial).itertuples():
        statements = queries[queries["transaction"] == transaction.transaction].sort_values(
            "begin_ns"
        )
        assert set(statements["session"]) == {transaction.session}
        assert statements["begin_ns"].iloc[0] == transaction.begin_ns
        assert statements["query"].iloc[0] == transaction.transaction
        assert statements["end_ns"].iloc[-1] == transaction.end_ns
        assert (statements["command"] != "other").sum() == transaction.statements
    alone = queries[queries["text"] == "insert into tx values (?+)"]["transaction"].isna()
    assert alone.sum() == day.COMMITTED + 2, "those that commit themselves"


def test_cpu_time_has_owners_with_names(trial: Trial) -> None:
    check_owners(trial.run)


def _children(trial: Trial) -> pd.DataFrame:
    """Rows of children. `text` is that of their query, `executed` the child's own."""
    shapes = trial.run.trace.pandas("shapes")
    text_of = dict(zip(shapes["fingerprint"], shapes["text"], strict=True))
    rows = trial.run.queries[trial.run.queries["command"] == "child"].copy()
    rows["executed"] = [text_of.get(shape) for shape in rows["child"]]
    return rows


def test_children_of_a_call_are_counted(trial: Trial) -> None:
    children = _children(trial)
    assert children["executions"].sum() == 0

    def children_of(call: str) -> Counter[Any]:
        return Counter(children[children["text"] == call]["executed"])

    assert children_of("call outer_one(?)") == {text: n * day.CALLS for text, n in CHILDREN.items()}
    assert children_of("call inner_one()") == {"insert into log values (?+)": 5}
    assert children_of("insert into log values (?+)") == {"update t set b = ? where a = new.a": 1}
    assert children_of("call failing()") == {
        "insert into t values (?+)": 3,
        "select * from missing": 3,
    }
    executions = trial.run.executions()
    assert (executions["call outer_one(?)"], executions["call inner_one()"]) == (day.CALLS, 5)


def test_a_calls_time_is_its_own_and_its_childrens(trial: Trial) -> None:
    """Every nanosecond counts once: by query, and by child."""
    call = "call outer_one(?)"
    segments = trial.run.trace.pandas("segments")
    cpu_ns = (segments["t1_ns"] - segments["t0_ns"]).groupby(segments["query"]).sum()
    family = trial.run.queries[trial.run.queries["text"] == call]  # the calls and their children
    (call_row,) = [r for r in attribute(trial.run.trace, ["fingerprint"]).rows if r.shape == call]
    by_child = attribute(trial.run.trace, ["fingerprint", "child"]).rows
    parts = {row.keys["child"]: row for row in by_child if row.shape == call}
    assert call_row.cpu_ns == sum(part.cpu_ns for part in parts.values())
    assert call_row.cpu_ns == sum(cpu_ns.get(query, 0) for query in family["query"])
    assert call_row.calls == day.CALLS == parts.pop("(none)").calls
    counts = {child: part.calls for child, part in parts.items()}
    assert counts == {text: n * day.CALLS for text, n in CHILDREN.items()}
    assert all(part.cpu_ns > 0 for part in parts.values())
