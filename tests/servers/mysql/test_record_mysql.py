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
class Told:
    story: day.Story
    run: Run
    attach_mode: str
    name: str
    directory: Path

    @property
    def on_sockets(self) -> bool:
        return self.attach_mode == "socket"


def _tell(server: DatabaseServer, name: str, directory: Path) -> dict[str, Told]:
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
        attach_mode: Told(
            story, Run(directory / attach_mode), attach_mode, name, directory / attach_mode
        )
        for attach_mode in attach_modes
    }


@pytest.fixture(scope="module")
def on_mariadb(
    mariadb: DatabaseServer, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Told]:
    return _tell(mariadb, "mariadb", tmp_path_factory.mktemp("mariadb"))


@pytest.fixture(scope="module")
def on_mysql80(
    mysql80: DatabaseServer, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Told]:
    return _tell(mysql80, "mysql80", tmp_path_factory.mktemp("mysql"))


@pytest.fixture(scope="module")
def on_pool(
    mariadb_pool: DatabaseServer, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Told]:
    return _tell(mariadb_pool, "pool", tmp_path_factory.mktemp("pool"))


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
def told(request: pytest.FixtureRequest) -> Told:
    server, attach_mode = request.param
    result: Told = request.getfixturevalue(server)[attach_mode]
    return result


def test_hidden_sessions_alone_are_lost_and_on_sockets_only(told: Told) -> None:
    hidden = {"opaque_session": told.story.hidden_sessions} if told.on_sockets else {}
    assert told.run.loss == hidden
    check_waits(told.run.trace)
    assert told.run.trace.complete
    assert set(told.run.queries["attach_mode"]) == {told.attach_mode}


def test_every_statement_counts_under_its_own_shape(told: Told) -> None:
    seen = told.story.sent if told.on_sockets else told.story.sent + told.story.hidden
    assert day.marker_counts(told.run.queries) == seen
    assert "secret" not in str(told.run.text_of)


def test_no_text_is_in_anothers_session(told: Told) -> None:
    queries = told.run.having("m_client_")
    marks = queries["text"].str.extract(r"(m_client_\d+)")[0]
    assert (marks.groupby(queries["session"]).nunique() == 1).all()


def test_counts_equal_the_servers_own(told: Told) -> None:
    """Com_select and so on over sysbench's part, prepared and text together."""
    executions: Counter[str] = Counter()
    for text, count in told.run.executions().items():
        if "sbtest1" in text:
            executions[text.split()[0]] += count
    names = ("select", "insert", "update", "delete")
    counted = {name: told.story.mass[f"Com_{name}"] for name in names}
    assert {name: executions[name] for name in counted} == counted
    assert sum(counted.values()) > 25_000


def test_commands_are_told_apart(told: Told) -> None:
    counted = told.story.counted
    unseen = day.HIDDEN if told.on_sockets else 0
    prepared = counted["Com_stmt_prepare"] - counted["Com_prepare_sql"] - 2 * unseen
    assert told.run.commands()["prepare"] == prepared
    executed = told.run.executions(command="execute")
    expected = counted["Com_stmt_execute"] - counted["Com_execute_sql"] - 4 * unseen
    assert executed.total() == expected
    assert executed["select c from sbtest1 where id = ?"] == day.POINT_SELECTS
    assert not executed.keys() & told.run.executions(command="prepare").keys()


def test_statements_prepared_before_have_their_text(told: Told) -> None:
    nameless = told.run.flagged(QueryFlag.NO_TEXT)
    assert not nameless["executions"].any()  # only the one that is closed
    executed = told.run.executions(command="execute")
    for number in range(day.STATEMENTS):
        assert executed[day.before_shape(number)] == day.BEFORE * day.TURNS
    truncated = told.run.flagged(QueryFlag.TRUNCATED)
    assert set(told.run.having("m_long")["query"]) <= set(truncated["query"])


def test_users_and_databases_follow_the_session(told: Told) -> None:
    queries = told.run.queries
    marks = queries["text"].str.extract(r" as (m_\w+)")[0]
    rows = zip(marks, queries["user"], queries["database"], strict=True)
    names = {(mark, *(None if pd.isna(name) else name for name in of)) for mark, *of in rows}
    marked = {mark for mark, _, _ in NAMES}
    assert {one for one in names if one[0] in marked} == NAMES


def test_addresses_and_programs_are_those_of_the_clients(told: Told) -> None:
    sessions = told.run.trace.pandas("sessions")
    if not told.on_sockets:
        assert set(sessions["event"]) == {"met", "user", "database", "kept"}
        connections = set(sessions["connection"].dropna())
        assert any(one.startswith("unix ") for one in connections)
        assert any(one.startswith("127.0.0.1 ") for one in connections)
        return
    opened = sessions[sessions["event"] == "open"]
    assert set(opened["address"].dropna()) == {"127.0.0.1"}
    assert opened["address"].isna().any(), "unix sockets have none"
    assert "m_wire_py" in set(sessions["application"])


def _statuses(told: Told, shape: str) -> list[str | None]:
    """The statuses in order, None where not known."""
    found = told.run.queries
    found = found[(found["text"] == shape) & (found["executions"] > 0)].sort_values("begin_ns")
    return [None if pd.isna(status) else status for status in found["status"]]


def test_outcomes_are_told_where_the_reply_says(told: Told) -> None:
    assert _statuses(told, "insert into k values (?+)") == ["ok"]
    assert _statuses(told, "insert into k(a) values (?+)") == ["error"]
    assert _statuses(told, "select * from m_absent") == ["error"]
    assert _statuses(told, "select ? as m_rows") == [None], "rows may yet end in an error"
    # MySQL passes executions on without the location of the connection's buffer.
    seen = told.on_sockets or told.name != "mysql80"
    expected = ["ok", "error"] if seen else [None, None]
    assert _statuses(told, "insert into k(k.a) values (?+)") == expected


def test_files_are_part_of_their_statement(told: Told) -> None:
    """Also if it has more than 255 packets, is sent early, or a comment precedes LOAD."""
    assert told.run.having("m_fake").empty
    loads = told.run.having("into table t ").sort_values("begin_ns")
    after = told.run.having("m_after_file").sort_values("begin_ns")
    assert list(loads["status"]) == ["ok", "ok"]
    assert (loads["end_ns"].to_numpy() <= after["begin_ns"].to_numpy()).all()


def test_what_serves_a_statement_is_its_work_and_no_execution(told: Told) -> None:
    rows = told.run.having("insert into t(b)")
    assert rows["executions"].sum() == 3
    executed = rows[rows["command"] == "execute"]
    assert len(executed) == 3 + 6 + 2, "executions, long data, RESET and CLOSE"
    bulk = told.run.having("insert into t(a)")["executions"].sum()
    assert bulk == (0 if told.name == "mysql80" else 2), "as the server counts"


def test_long_statements_are_marked(told: Told) -> None:
    lengths = told.run.having("m_length_")
    for text, size, flags in zip(
        lengths["text"], lengths["statement_bytes"], lengths["flags"], strict=True
    ):
        sent = int(text.split("m_length_")[1].split(",")[0])
        # The socket mode knows only the length of the first packet: 16 MB, less its command byte.
        assert size == (min(sent, CHUNK - 1) if told.on_sockets else sent)
        assert bool(flags & QueryFlag.TRUNCATED) == (sent > 4096)


def test_a_query_that_was_killed_ends(told: Told) -> None:
    assert len(told.run.having("m_kill_query")) == 1
    assert told.run.having("m_kill_query")["status"].isna().all()
    (killed,) = told.run.having("m_kill_session").to_dict("records")
    assert killed["end_ns"] > killed["begin_ns"]


def test_control_characters_do_not_reach_the_table(on_mysql80: dict[str, Told]) -> None:
    directory = str(on_mysql80["socket"].directory)
    table = qjoule("attribute", directory, "--top", "1000").stdout
    assert "m_escape" in table
    assert not {c for c in table if (ord(c) < 32 and c != "\n") or 127 <= ord(c) < 160}


def _transactions(told: Told) -> pd.DataFrame:
    found = told.run.trace.pandas("transactions")
    return found[found["text"].astype("string").str.contains(r" tx|began before", regex=True)]


def test_transactions_have_their_statements_and_outcome(told: Told) -> None:
    found = _transactions(told).groupby(["text", "outcome"], observed=True).size()
    assert found.to_dict() == TRANSACTIONS


def test_queries_of_a_transaction_are_its_sessions_in_its_time(told: Told) -> None:
    queries = told.run.queries
    for one in _transactions(told).itertuples():
        mine = queries[queries["transaction"] == one.transaction].sort_values("begin_ns")
        assert set(mine["session"]) == {one.session}
        assert mine["begin_ns"].iloc[0] == one.begin_ns
        assert mine["query"].iloc[0] == one.transaction
        assert mine["end_ns"].iloc[-1] == one.end_ns
        assert (mine["command"] != "other").sum() == one.statements
    alone = queries[queries["text"] == "insert into tx values (?+)"]["transaction"].isna()
    assert alone.sum() == day.COMMITTED + 2, "those that commit themselves"


def test_cpu_time_has_owners_with_names(told: Told) -> None:
    check_owners(told.run)


def _children(told: Told) -> pd.DataFrame:
    """Rows of children. `text` is that of their query, `executed` the child's own."""
    shapes = told.run.trace.pandas("shapes")
    text_of = dict(zip(shapes["fingerprint"], shapes["text"], strict=True))
    rows = told.run.queries[told.run.queries["command"] == "child"].copy()
    rows["executed"] = [text_of.get(one) for one in rows["child"]]
    return rows


def test_children_of_a_call_are_counted(told: Told) -> None:
    children = _children(told)
    assert children["executions"].sum() == 0

    def of(call: str) -> Counter[Any]:
        return Counter(children[children["text"] == call]["executed"])

    assert of("call outer_one(?)") == {text: n * day.CALLS for text, n in CHILDREN.items()}
    assert of("call inner_one()") == {"insert into log values (?+)": 5}
    assert of("insert into log values (?+)") == {"update t set b = ? where a = new.a": 1}
    assert of("call failing()") == {"insert into t values (?+)": 3, "select * from missing": 3}
    executions = told.run.executions()
    assert (executions["call outer_one(?)"], executions["call inner_one()"]) == (day.CALLS, 5)


def test_a_calls_time_is_its_own_and_its_childrens(told: Told) -> None:
    """Every nanosecond counts once: by query, and by child."""
    call = "call outer_one(?)"
    segments = told.run.trace.pandas("segments")
    cpu_ns = (segments["t1_ns"] - segments["t0_ns"]).groupby(segments["query"]).sum()
    family = told.run.queries[told.run.queries["text"] == call]  # the calls and their children
    (whole,) = [r for r in attribute(told.run.trace, ["fingerprint"]).rows if r.shape == call]
    by_child = attribute(told.run.trace, ["fingerprint", "child"]).rows
    parts = {row.keys["child"]: row for row in by_child if row.shape == call}
    assert whole.cpu_ns == sum(part.cpu_ns for part in parts.values())
    assert whole.cpu_ns == sum(cpu_ns.get(one, 0) for one in family["query"])
    assert whole.calls == day.CALLS == parts.pop("(none)").calls
    counts = {child: part.calls for child, part in parts.items()}
    assert counts == {text: n * day.CALLS for text, n in CHILDREN.items()}
    assert all(part.cpu_ns > 0 for part in parts.values())
