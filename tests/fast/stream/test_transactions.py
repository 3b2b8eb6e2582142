# SPDX-License-Identifier: Apache-2.0
"""Transactions, from the status in replies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qjoule.contract import QUERY, AttachMode, Command, QueryFlag, SessionEvent
from qjoule.stream import transactions
from qjoule.stream.transactions import BEFORE, Transactions
from qjoule.trace.columns import Array

IN, NO, OK, ERROR = (
    QueryFlag.IN_TRANSACTION | QueryFlag.OK,
    QueryFlag.NO_TRANSACTION | QueryFlag.OK,
    QueryFlag.OK,
    QueryFlag.ERROR,
)
BEGIN, INSERT, COMMIT, ROLLBACK, SELECT, SAVEPOINT, LONG = range(1, 8)
TEXTS = {BEGIN: "begin", INSERT: "insert into t values (?+)", COMMIT: "commit"}
TEXTS |= {ROLLBACK: "rollback", SELECT: "select ?", SAVEPOINT: "rollback to s", LONG: "x" * 200}
Statement = tuple[int, int]  #: shape and flags


def named(shape: int) -> tuple[str, str]:
    return (f"f{shape}", TEXTS[shape]) if shape in TEXTS else ("?", "(text not seen)")


def queries(*statements: Statement, **columns: Any) -> Array:
    """Queries 1, 2, ... of session 1, one after another."""
    rows = np.zeros(len(statements), QUERY)
    at = np.arange(len(statements))
    rows["query"], rows["begin_ns"], rows["end_ns"] = at + 1, at * 10, at * 10 + 5
    rows["shape"], rows["flags"] = np.array(statements).T
    for name, values in ({"session": 1, "command": Command.QUERY} | columns).items():
        rows[name] = values
    return rows


def assigned(*statements: Statement) -> tuple[list[int], list[dict[str, Any]]]:
    """The transaction of each statement, and the rows."""
    follower = Transactions(named)
    of_queries = follower.assign(queries(*statements)).tolist()
    follower.finish()
    return of_queries, follower.take_rows().to_pylist()


@pytest.mark.parametrize(
    ("statements", "expected"),
    [
        ([(INSERT, NO), (SELECT, 0), (INSERT, NO)], [0, 0, 0]),  # they commit themselves
        ([(BEGIN, IN), (INSERT, ERROR), (SAVEPOINT, IN), (COMMIT, ERROR), (COMMIT, NO)], [1] * 5),
        ([(BEGIN, IN), (INSERT, IN), (BEGIN, IN), (COMMIT, NO)], [1, 1, 3, 3]),
        ([(BEGIN, IN), (COMMIT, IN), (INSERT, IN), (COMMIT, NO)], [1, 1, 3, 3]),  # AND CHAIN
    ],
)
def test_statements_belong_to_transactions(
    statements: list[Statement], expected: list[int]
) -> None:
    of_queries, rows = assigned(*statements)
    assert of_queries == expected
    assert len(rows) == len(set(expected) - {0})
    assert {row["outcome"] for row in rows} <= {"committed"}


def test_a_row_describes_its_transaction() -> None:
    statements = [(SELECT, 0), (BEGIN, IN), (INSERT, IN), (INSERT, IN), (SELECT, 0), (COMMIT, NO)]
    of_queries, (row,) = assigned(*statements, (INSERT, NO))
    assert of_queries == [0, 2, 2, 2, 2, 2, 0]
    assert (row["transaction"], row["begin_ns"], row["end_ns"]) == (2, 10, 55)
    assert (row["statements"], row["last"], row["commit_ns"]) == (5, 6, 5)
    assert row["text"] == "begin; insert into t values (?+); select ?; commit"


@pytest.mark.parametrize(
    ("last", "outcome", "commit_ns"),
    [
        ((ROLLBACK, NO), "rolled back", 5),
        ((INSERT, NO), "committed", None),  # it commits by itself, as DDL does
        ((INSERT, ERROR | QueryFlag.NO_TRANSACTION), "rolled back", None),  # a deadlock
        ((COMMIT, 0), "committed", 5),  # its reply was not seen
    ],
)
def test_the_last_statement_decides_the_outcome(
    last: Statement, outcome: str, commit_ns: int | None
) -> None:
    of_queries, (row,) = assigned((BEGIN, IN), last, (INSERT, NO))
    assert of_queries == [1, 1, 0]
    assert (row["outcome"], row["commit_ns"]) == (outcome, commit_ns)


def test_sessions_are_apart_and_batches_are_not() -> None:
    follower = Transactions(named)
    first = queries((BEGIN, IN), (INSERT, IN))
    second = queries((INSERT, NO), (INSERT, NO), session=2)
    assert follower.assign(np.concatenate([first, second])).tolist() == [1, 1, 0, 0]
    assert follower.of_running(np.array([1, 2], np.uint64)).tolist() == [1, 0]
    assert follower.assign(queries((COMMIT, NO), query=9)).tolist() == [1]
    assert follower.take_rows().to_pylist()[0]["last"] == 9


def test_open_transactions_and_kinds_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "MAX_OPEN", 3)
    monkeypatch.setattr(transactions, "MAX_KINDS", 2)
    follower = Transactions(named)
    for session in range(1, 11):
        second = (INSERT, SELECT, LONG)[session % 3]
        follower.assign(queries((BEGIN, IN), (second, IN), session=session))
    follower.finish()
    rows = follower.take_rows().to_pylist()
    assert len(rows) == 10
    assert {row["outcome"] for row in rows} == {"unfinished"}
    assert len({row["text"] for row in rows}) == 3
    assert transactions.OTHER in {row["text"] for row in rows}


@pytest.mark.parametrize(
    ("attach_mode", "met_ns", "statements", "text"),
    [
        (
            AttachMode.SOCKET,
            0,
            [(SELECT, 0), (INSERT, IN), (COMMIT, NO)],
            "{before}; {insert}; commit",
        ),
        (AttachMode.SOCKET, 0, [(BEGIN, IN), (COMMIT, NO)], "begin; commit"),
        # By symbols, a session from before has its first event in its first query, at 1 ns.
        (
            AttachMode.SYMBOL,
            1,
            [(SELECT, 0), (INSERT, IN), (COMMIT, NO)],
            "{before}; {insert}; commit",
        ),
        (AttachMode.SYMBOL, 0, [(SELECT, 0), (INSERT, IN), (COMMIT, NO)], "{insert}; commit"),
    ],
)
def test_a_transaction_may_have_begun_before_tracing(
    attach_mode: AttachMode, met_ns: int, statements: list[Statement], text: str
) -> None:
    follower = Transactions(named)
    follower.met(1, SessionEvent.MET, met_ns)
    rows = queries(*statements, attach_mode=attach_mode)
    rows["begin_ns"] += 1
    follower.assign(rows)
    (row,) = follower.take_rows().to_pylist()
    assert row["text"] == text.format(before=BEFORE, insert=TEXTS[INSERT])


ANY_QUERY = st.tuples(
    st.integers(1, 3),
    st.integers(0, SAVEPOINT + 1),
    st.sampled_from((0, QueryFlag.IN_TRANSACTION, QueryFlag.NO_TRANSACTION)),
    st.sampled_from([0, QueryFlag.OK, QueryFlag.ERROR]),
    st.sampled_from([Command.QUERY, Command.QUERY, Command.EXECUTE, Command.OTHER]),
)
ANY_MET = st.tuples(st.integers(1, 3), st.sampled_from([SessionEvent.OPEN, SessionEvent.MET]))


@given(
    st.lists(ANY_QUERY, min_size=1, max_size=40), st.lists(ANY_MET, max_size=4), st.integers(1, 40)
)
def test_transactions_do_not_depend_on_batches(
    drawn: list[tuple[int, int, int, int, int]], met: list[tuple[int, SessionEvent]], cut: int
) -> None:
    sessions, shapes, reports, outcomes, commands = np.array(drawn).T
    statements = zip(shapes.tolist(), (reports | outcomes).tolist(), strict=True)
    rows = queries(*statements, session=sessions, command=commands, attach_mode=AttachMode.SOCKET)
    results = []
    for size in (1, cut, 40):
        follower = Transactions(named)
        for session, event in met:
            follower.met(session, event, 0)
        batches = [rows[at : at + size] for at in range(0, len(rows), size)]
        of_queries = [one for batch in batches for one in follower.assign(batch).tolist()]
        follower.finish()
        results.append((of_queries, follower.take_rows().sort_by("transaction").to_pylist()))
    assert results[0] == results[1] == results[2]
