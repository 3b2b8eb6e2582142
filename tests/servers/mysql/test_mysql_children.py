# SPDX-License-Identifier: Apache-2.0
"""Statements that a CALL executes are recorded as children: counted, timed, never counted twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pymysql
import pytest

from qjoule.engine.attribute import attribute
from servers.process import DatabaseServer
from tracing.mysql_client import mysql_client
from tracing.recording import Run, recording

pytestmark = [pytest.mark.beside, pytest.mark.root, pytest.mark.server]

CALLS = 20
LOOPS = 30
DEEP = 200  #: nested calls: more than a thread's stack allows, so they fail

SCHEMA = (
    "drop database if exists m_children",
    "create database m_children",
    "use m_children",
    "create table t (a int, b int)",
    "create table log (a int)",
    "create procedure inner_one() begin insert into log values (7); end",
    f"""create procedure outer_one(in n int) begin
        declare i int default 0;
        declare c cursor for select a from t limit 1;
        insert into t values (n, 1);
        while i < {LOOPS} do
            update t set b = b + 1 where a = n;
            set i = i + 1;
        end while;
        open c; close c;
        call inner_one();
        select count(*) from t where a = n;
    end""",
    "create procedure failing() begin insert into t values (0, 0); select * from missing; end",
    """create procedure deep(in n int) begin
        do n; if n > 0 then call deep(n - 1); end if; do -1;
    end""",
    "create trigger on_log after insert on log for each row update t set b = 0 where a = new.a",
)
#: What one outer_one() executes. The call of inner_one() is one child, including all that it does.
OUTER = Counter(
    {
        "insert into t values (n, ?)": 1,
        "update t set b = b + ? where a = n": LOOPS,
        "call inner_one()": 1,
        "select count(*) from t where a = n": 1,
    }
)


@dataclass
class Told:
    run: Run

    @property
    def children(self) -> pd.DataFrame:
        """Rows of children. `text` is that of their query, `executed` the child's own."""
        shapes = self.run.trace.pandas("shapes")
        text_of = dict(zip(shapes["fingerprint"], shapes["text"], strict=True))
        rows = self.run.queries[self.run.queries["command"] == "child"].copy()
        rows["executed"] = [text_of.get(one) for one in rows["child"]]
        return rows

    def of(self, call: str) -> Counter[Any]:
        rows = self.children
        return Counter(rows[rows["text"] == call]["executed"])


def _set_up(server: DatabaseServer) -> None:
    with closing(server.connect(ssl_disabled=True)) as connection, connection.cursor() as cursor:
        for statement in SCHEMA:
            cursor.execute(statement)


def _tell(server: DatabaseServer) -> None:
    with (
        closing(server.connect(ssl_disabled=True, database="m_children")) as connection,
        connection.cursor() as cursor,
    ):
        for number in range(CALLS):
            cursor.execute(f"call outer_one({number})")
            while cursor.nextset():
                pass
            cursor.execute("select 1 as m_between")
        for _ in range(3):
            with pytest.raises(Exception, match="missing"):
                cursor.execute("call failing()")
        cursor.execute("insert into log values (1)")
        cursor.execute("set max_sp_recursion_depth = 255")
        for depth in (5, DEEP):
            with suppress(pymysql.Error):
                cursor.execute(f"call deep({depth})")
    with mysql_client(server.socket, database="m_children") as client:
        statement = client.prepare(b"call inner_one()")
        for _ in range(5):
            client.execute(statement)


def _told(server: DatabaseServer, directory: Path) -> dict[str, Told]:
    _set_up(server)
    rungs = ("socket", "symbol")
    with ExitStack() as stack:
        for rung in rungs:
            options = ("--pid", str(server.pid), "--rung", rung, "--children", "--ring-mb", "32")
            stack.enter_context(recording(directory / rung, *options))
        _tell(server)
    return {rung: Told(Run(directory / rung)) for rung in rungs}


@pytest.fixture(scope="module", params=["mariadb", "mysql80"])
def both(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Told]]:
    server: DatabaseServer = request.getfixturevalue(request.param)
    yield _told(server, tmp_path_factory.mktemp(request.param))


@pytest.fixture(params=["socket", "symbol"])
def told(request: pytest.FixtureRequest, both: dict[str, Told]) -> Told:
    return both[request.param]


def test_children_of_a_call_are_counted(told: Told) -> None:
    assert told.run.loss == {}
    assert told.of("call outer_one(?)") == Counter({t: n * CALLS for t, n in OUTER.items()})
    assert told.of("call inner_one()") == {"insert into log values (?+)": 5}
    assert told.of("insert into log values (?+)") == {"update t set b = ? where a = new.a": 1}
    failing = {"insert into t values (?+)": 3, "select * from missing": 3}
    assert told.of("call failing()") == failing
    assert told.of("select ? as m_between") == {}


def test_what_a_child_executes_is_the_childs(told: Told) -> None:
    """Even if it fails deep within: the statement after the failing call is not executed."""
    assert told.of("call deep(?)") == {"do n": 2, "call deep(n - ?)": 2, "do - ?": 1}


def test_no_child_is_an_execution(told: Told) -> None:
    queries = told.run.queries
    assert told.run.executions()["call outer_one(?)"] == CALLS
    assert told.run.executions()["call inner_one()"] == 5
    assert queries[queries["command"] == "child"]["executions"].sum() == 0


def test_children_lie_within_their_query(told: Told) -> None:
    parents = told.run.queries.set_index("query")
    children = told.children
    theirs = parents.loc[children["parent"]]
    assert (theirs["begin_ns"].to_numpy() <= children["begin_ns"].to_numpy()).all()
    assert (theirs["end_ns"].to_numpy() >= children["end_ns"].to_numpy()).all()
    assert (theirs["session"].to_numpy() == children["session"].to_numpy()).all()
    assert (theirs["fingerprint"].to_numpy() == children["fingerprint"].to_numpy()).all()
    for _, siblings in children.sort_values("begin_ns").groupby("parent"):
        assert (siblings["begin_ns"][1:].to_numpy() >= siblings["end_ns"][:-1].to_numpy()).all()


def test_a_calls_time_is_its_own_and_its_childrens(told: Told) -> None:
    """Every nanosecond counts once: by query, and by child."""
    segments = told.run.trace.pandas("segments")
    cpu_ns = (segments["t1_ns"] - segments["t0_ns"]).groupby(segments["query"]).sum()
    queries = told.run.queries
    family = queries[queries["text"] == "call outer_one(?)"]  # the calls and their children
    by_query = attribute(told.run.trace, ["fingerprint"]).rows
    by_child = attribute(told.run.trace, ["fingerprint", "child"]).rows
    (whole,) = [row for row in by_query if row.shape == "call outer_one(?)"]
    parts = {row.keys["child"]: row for row in by_child if row.shape == "call outer_one(?)"}
    assert whole.cpu_ns == sum(part.cpu_ns for part in parts.values())
    assert whole.cpu_ns == sum(cpu_ns.get(one, 0) for one in family["query"])
    assert whole.calls == CALLS == parts["(none)"].calls
    counts = {child: part.calls for child, part in parts.items() if child != "(none)"}
    assert counts == {text: n * CALLS for text, n in OUTER.items()}
    assert all(part.cpu_ns > 0 for part in parts.values())
