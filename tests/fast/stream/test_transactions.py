# SPDX-License-Identifier: Apache-2.0
"""Transactions, from the status in replies. Also: which queries get which statements' texts and
tags.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from fuzz.mongodb_library import compressed, kernel_report, op_msg
from qjoule.contract import (
    QUERY,
    SHAPE_OTHER,
    TEXT,
    AttachMode,
    Block,
    Command,
    QueryFlag,
    SessionEvent,
)
from qjoule.servers import registry
from qjoule.servers.decoding import fingerprint
from qjoule.stream import client_tags, transactions
from qjoule.stream import statements as module
from qjoule.stream.blocks import Frame
from qjoule.stream.client_tags import ClientTags
from qjoule.stream.statements import Statements
from qjoule.stream.transactions import BEFORE, Transactions
from qjoule.tags.definitions import Tags
from qjoule.trace.columns import Array
from qjoule_drivers import comments as carrier

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
        of_queries = [number for batch in batches for number in follower.assign(batch).tolist()]
        follower.finish()
        results.append((of_queries, follower.take_rows().sort_by("transaction").to_pylist()))
    assert results[0] == results[1] == results[2]


# ---- which queries get which texts of statements, and which tags that clients send ---------------


def ids(*numbers: int) -> NDArray[np.uint64]:
    return np.array(numbers, np.uint64)


# ---- texts of single queries ---------------------------------------------------------------------


def single(shape: int, key: str) -> Frame:
    """The text of one query: each has a hash of its own."""
    command = op_msg({"find": "orders", "filter": {key: shape}, "$db": "shop"})
    text = kernel_report(compressed(command))
    rows = np.zeros(1, TEXT)
    rows["shape"], rows["dialect"], rows["single"] = shape, registry.dialect("mongodb"), True
    rows["text_bytes"] = rows["statement_bytes"] = len(text)
    return Frame(Block.TEXT, 0, rows, text)


def test_single_queries_of_one_shape_share_the_hash_of_the_first() -> None:
    statements = Statements(fingerprint)
    for shape in range(1, 9):
        statements.add(single(shape, "ab"[shape % 2]))
    ended = ids(8, 3, 1, 2, 77, 4)
    settled = statements.settled(ended)
    assert settled.tolist() == [2, 1, 1, 2, 77, 2]
    assert statements.fingerprints(settled).null_count == 1
    shapes = statements.take_shapes()
    assert shapes["shape"].to_pylist() == [1, 2]
    assert shapes["text"].to_pylist() == ["shop.orders find {b: ?}", "shop.orders find {a: ?}"]
    assert statements.settled(ids(5, 6, 7)).tolist() == [1, 2, 1]
    assert statements.settled(ended) is ended  # nothing is left to settle


def test_single_queries_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SINGLES", 5)
    never_ended, ever_new = Statements(fingerprint), Statements(fingerprint, max_shapes=3)
    for shape in range(1, 20):
        never_ended.add(single(shape, "a"))
        ever_new.add(single(shape, f"key{shape}"))
    assert never_ended.settled(ids(2, 15, 19)).tolist() == [2, 1, 1]
    settled = ever_new.settled(ids(1, 2, 18, 19))
    assert settled.tolist() == [1, 2, SHAPE_OTHER, SHAPE_OTHER]
    assert ever_new.fingerprints(settled).null_count == 0


# ---- tags that clients send to servers -----------------------------------------------------------

TAGS = pa.map_(pa.string(), pa.string())
SQL_TAGS = registry.dialect("tags")
A, B = ("n", "a"), ("n", "b")


def filled(column: pa.Array | None) -> list[list[tuple[str, str]] | None]:
    assert column is not None and column.type == TAGS
    rows: list[list[tuple[str, str]] | None] = column.to_pylist()
    return rows


def test_tags_of_calls_take_precedence_over_those_of_single_queries() -> None:
    client = ClientTags()
    for query in (1, 2, 3, 5):
        client.add(query, f"n='{query}'".encode(), SQL_TAGS, single=True)
    client.add(4, b"no tags", SQL_TAGS, single=True)
    called = pa.array([None, [("call", "x")], None, None, []], TAGS)
    both = client.fill(called, ids(1, 2, 4, 9, 5), ids(0, 0, 0, 0, 0))
    assert filled(both) == [[("n", "1")], [("call", "x")], None, None, [("n", "5")]]
    assert filled(client.fill(None, ids(1, 3), ids(0, 0))) == [None, [("n", "3")]]
    assert client.fill(None, ids(3), ids(0)) is None


def test_tags_of_many_queries_are_told_once() -> None:
    client = ClientTags()
    client.add(7, b"n='a'", SQL_TAGS, single=False)
    block = carrier._encoded((("n", "b"),), "utf-8")
    client.add(8, block, registry.dialect("attributes"), single=False)
    client.add(9, block, SQL_TAGS, single=False)
    client.add(10, b"\0\x08qjoule.n\0\0\0\1b", registry.dialect("payload"), single=False)
    for _ in range(2):
        column = client.fill(None, ids(1, 2, 3, 4, 5, 6), ids(7, 0, 8, 9, 2**64 - 1, 10))
        assert filled(column) == [[A], None, [B], None, None, [B]]
    called = pa.array([[], None, [("call", "x")]], TAGS)
    assert filled(client.fill(called, ids(1, 2, 3), ids(7, 7, 7))) == [[A], [A], [("call", "x")]]
    assert client.fill(called, ids(1, 2, 3), ids(0, 0, 0)) is called


def test_a_statements_tags_take_precedence_over_its_connections() -> None:
    client = ClientTags()
    client.add(7, b"n='a'", SQL_TAGS, single=False)
    tags: list[Tags] = [(("n", "c"), ("r", "1")), (("r", "2"),)]
    connections = np.array([0, 0, 1, -1, -1]), tags
    assert filled(client.fill(None, ids(1, 2, 3, 4, 5), ids(7, 0, 7, 7, 0), connections)) == [
        [A, ("r", "1")],
        [("n", "c"), ("r", "1")],
        [A, ("r", "2")],
        [A],
        None,
    ]
    assert client.fill(None, ids(1, 2), ids(0, 0), (np.array([-1, -1]), [])) is None
    assert client.fill(None, ids(), ids()) is None


@pytest.mark.parametrize("is_single", [True, False])
def test_remembered_tags_are_bounded(is_single: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_tags, "MAX_QUERIES", 3)
    monkeypatch.setattr(client_tags, "MAX_HASHES", 3)
    client, used = ClientTags(), ClientTags()
    for number in range(1, 11):
        client.add(number, b"n='a'", SQL_TAGS, single=is_single)
        used.add(number, b"n='a'", SQL_TAGS, single=False)
        assert filled(used.fill(None, ids(1), ids(1))) == [[A]], "tags in use are kept"
    every = np.arange(1, 11, dtype=np.uint64)
    column = client.fill(None, every, np.zeros(10, np.uint64) if is_single else every)
    assert filled(column) == [None] * 7 + [[A]] * 3
