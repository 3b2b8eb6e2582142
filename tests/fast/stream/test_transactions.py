# SPDX-License-Identifier: Apache-2.0
"""Transactions, from the status in replies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from qjoule.contract import QUERY, Command, QueryFlag, Rung, SessionEvent
from qjoule.stream import transactions
from qjoule.stream.transactions import BEFORE, Transactions

IN, NO, OK, ERROR = (
    QueryFlag.IN_TRANSACTION | QueryFlag.OK,
    QueryFlag.NO_TRANSACTION | QueryFlag.OK,
    QueryFlag.OK,
    QueryFlag.ERROR,
)
TEXTS = {1: "begin", 2: "insert into t values (?+)", 3: "commit", 4: "rollback", 5: "select ?"}
TEXTS |= {6: "rollback to s", 7: "x" * 200}


def named(shape: int) -> tuple[str, str]:
    return (f"f{shape}", TEXTS[shape]) if shape in TEXTS else ("?", "(text not seen)")


def follow(*said: tuple[int, int], session: int = 1, command: int = Command.QUERY) -> Any:
    """Queries 1, 2, ... with (shape, flags) each; returns their transactions and the rows."""
    told = Transactions(named)
    found = told.assign(queries(*said, session=session, command=command))
    told.finish()
    return found.tolist(), told.take_rows().to_pylist()


def queries(*said: tuple[int, int], session: int = 1, command: int = Command.QUERY) -> Any:
    rows = np.zeros(len(said), QUERY)
    for at, (shape, flags) in enumerate(said):
        rows[at]["query"], rows[at]["begin_ns"], rows[at]["end_ns"] = at + 1, at * 10, at * 10 + 5
        rows[at]["shape"], rows[at]["flags"] = shape, flags
    rows["session"], rows["command"] = session, command
    return rows


def test_statements_that_commit_themselves_are_in_none() -> None:
    assert follow((2, NO), (5, 0), (2, NO)) == ([0, 0, 0], [])


def test_from_begin_to_commit() -> None:
    found, (row,) = follow((5, 0), (1, IN), (2, IN), (2, IN), (5, 0), (3, NO), (2, NO))
    assert found == [0, 2, 2, 2, 2, 2, 0]
    assert (row["transaction"], row["begin_ns"], row["end_ns"]) == (2, 10, 55)
    assert (row["statements"], row["last"], row["commit_ns"]) == (5, 6, 5)
    assert row["text"] == "begin; insert into t values (?+); select ?; commit"
    assert row["outcome"] == "committed"


@pytest.mark.parametrize(
    ("last", "outcome", "commit_ns"),
    [
        ((4, NO), "rolled back", 5),
        ((2, NO), "committed", None),  # it commits by itself, as DDL does
        ((2, ERROR | QueryFlag.NO_TRANSACTION), "rolled back", None),  # a deadlock
        ((3, 0), "committed", 5),  # its reply was not seen
    ],
)
def test_how_it_ends(last: tuple[int, int], outcome: str, commit_ns: int | None) -> None:
    found, (row,) = follow((1, IN), last, (2, NO))
    assert found == [1, 1, 0]
    assert (row["outcome"], row["commit_ns"]) == (outcome, commit_ns)


def test_errors_and_savepoints_end_none() -> None:
    assert follow((1, IN), (2, ERROR), (6, IN), (3, ERROR), (3, NO))[0] == [1] * 5


def test_a_begin_within_one_commits_it() -> None:
    found, rows = follow((1, IN), (2, IN), (1, IN), (3, NO))
    assert found == [1, 1, 3, 3]
    assert [(row["outcome"], row["last"]) for row in rows] == [
        ("committed", None),
        ("committed", 4),
    ]


def test_a_commit_that_chains_begins_the_next() -> None:
    found, rows = follow((1, IN), (3, IN), (2, IN), (3, NO))
    assert found == [1, 1, 3, 3]
    assert len(rows) == 2


def test_what_is_open_at_the_end_is_unfinished() -> None:
    _, (row,) = follow((1, IN), (2, IN))
    assert (row["outcome"], row["last"], row["end_ns"]) == ("unfinished", None, 15)


def test_sessions_are_apart_and_batches_are_not() -> None:
    told = Transactions(named)
    one = queries((1, IN), (2, IN))
    other = queries((2, NO), (2, NO), session=2)
    assert told.assign(np.concatenate([one, other])).tolist() == [1, 1, 0, 0]
    assert told.of_running(np.array([1, 2], np.uint64)).tolist() == [1, 0]
    late = queries((3, NO))
    late["query"] = 9
    assert told.assign(late).tolist() == [1]
    assert told.take_rows().to_pylist()[0]["last"] == 9


def test_a_client_that_quits_rolls_back() -> None:
    told = Transactions(named)
    rows = queries((1, IN), (0, NO))
    rows["command"][1] = Command.OTHER
    assert told.assign(rows).tolist() == [1, 1]
    (row,) = told.take_rows().to_pylist()
    assert (row["outcome"], row["statements"], row["text"]) == ("rolled back", 1, "begin")


def test_what_is_held_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "MAX_OPEN", 3)
    monkeypatch.setattr(transactions, "MAX_KINDS", 2)
    told = Transactions(named)
    for session in range(1, 11):
        told.assign(queries((1, IN), ((2, 5, 7)[session % 3], IN), session=session))
    told.finish()
    rows = told.take_rows().to_pylist()
    assert len(rows) == 10
    assert {row["outcome"] for row in rows} == {"unfinished"}
    assert len({row["text"] for row in rows}) == 3
    assert transactions.OTHER in {row["text"] for row in rows}


def test_a_long_one_is_cut_and_still_its_own() -> None:
    texts = set()
    for last in (2, 5):
        _, (row,) = follow((1, IN), *[(2, IN), (5, IN)] * 900, (last, IN), (7, IN), (3, NO))
        texts.add(row["text"])
        assert len(row["text"]) < transactions.MAX_SHOWN * transactions.STATEMENT_CHARACTERS
        assert row["statements"] == 1804
    assert len(texts) == 1, "the same up to where they are looked at"
    short = follow((1, IN), (7, IN), (3, NO))[1][0]["text"]
    assert short.startswith("begin; xxx")
    assert len(short) < 120


def met_before(rung: Rung, met_ns: int, *said: tuple[int, int]) -> list[str]:
    """Texts of the transactions of a session whose first event came at this time."""
    told = Transactions(named)
    told.met(1, SessionEvent.MET, met_ns)
    some = queries(*said)
    some["rung"] = rung
    told.assign(some)
    told.finish()
    return [row["text"] for row in told.take_rows().to_pylist()]


def test_a_transaction_that_was_open_before_tracing() -> None:
    insert = TEXTS[2]
    assert met_before(Rung.SOCKET, 0, (5, 0), (2, IN), (3, NO)) == [f"{BEFORE}; {insert}; commit"]
    assert met_before(Rung.SOCKET, 0, (5, 0), (4, NO)) == [f"{BEFORE}; rollback"]
    assert met_before(Rung.SOCKET, 0, (1, IN), (3, NO)) == ["begin; commit"]
    assert met_before(Rung.SOCKET, 0, (2, NO), (2, IN), (3, NO)) == [f"{insert}; commit"]


def test_by_symbols_a_session_from_before_is_met_in_its_first_query() -> None:
    insert = TEXTS[2]
    assert met_before(Rung.SYMBOL, 1, (5, 0), (2, IN), (3, NO)) == [f"{BEFORE}; {insert}; commit"]
    late = [(5, 0), (2, IN), (3, NO)]
    told = Transactions(named)
    told.met(1, SessionEvent.MET, 0)
    some = queries(*late)
    some["begin_ns"] += 1
    some["rung"] = Rung.SYMBOL
    told.assign(some)
    assert [row["text"] for row in told.take_rows().to_pylist()] == [f"{insert}; commit"]


def test_a_session_that_logs_in_was_not_open_before() -> None:
    told = Transactions(named)
    told.met(1, SessionEvent.MET, 0)
    told.met(1, SessionEvent.OPEN, 1)
    told.assign(queries((2, IN), (3, NO)))
    assert [row["text"] for row in told.take_rows().to_pylist()] == [f"{TEXTS[2]}; commit"]
