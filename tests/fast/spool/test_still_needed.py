# SPDX-License-Identifier: Apache-2.0
"""What a flight recorder remembers of names, and that it does not grow."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from fake_tracer import records
from qjoule.contract import Block, QueryFlag, Rung, SessionEvent, TaskEvent
from qjoule.servers.startup import Startup
from qjoule.spool import still_needed
from qjoule.spool.names import News, Untraced
from qjoule.spool.still_needed import StillNeeded
from qjoule.stream.client_tags import Tagged
from qjoule.stream.named import Named
from qjoule.stream.session_news import SessionNews


def _shape(number: int, *, single: bool = False) -> Named:
    return Named(number, f"f{number}", f"select {number}", 1, single=single)


def _session(
    number: int,
    event: SessionEvent,
    t_ns: int = 0,
    *,
    user: str | None = None,
    database: str | None = None,
) -> SessionNews:
    whose = Startup(user=user, database=database)
    return SessionNews(number, t_ns, event, 1, 5, 5, None, None, whose)


def _tasks(*rows: dict[str, Any]) -> Any:
    return records(Block.TASK, [{"tgid": row["pid"], **row} for row in rows])


def _learnt(news: Iterable[News]) -> StillNeeded:
    needed = StillNeeded()
    for line in news:
        needed.learn(line)
    return needed


def _lines(needed: StillNeeded, kind: type) -> list[Any]:
    return [line for line in needed.lines() if isinstance(line, kind)]


def test_shapes_in_use_outlive_a_flood_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(still_needed, "MAX_SHAPES", 100)
    needed = _learnt(_shape(number) for number in range(1, 60))
    assert needed.crowded
    for number in range(1000, 3000):
        needed.learn(_shape(number))
        needed.use(records(Block.QUERY, [{"shape": 7}, {"shape": 8}]))
    kept = {named.shape for named in _lines(needed, Named)}
    assert len(kept) == 100
    assert {7, 8} <= kept
    assert set(range(2902, 3000)) <= kept


def test_texts_of_single_queries_live_for_two_segments() -> None:
    needed = _learnt([_shape(1), _shape(2, single=True), Tagged(3, (("a", "b"),), True)])
    needed.turn()
    needed.learn(_shape(4, single=True))
    assert {named.shape for named in _lines(needed, Named)} == {1, 2, 4}
    assert len(_lines(needed, Tagged)) == 1
    needed.turn()
    assert {named.shape for named in _lines(needed, Named)} == {1, 4}
    needed.turn()
    assert {named.shape for named in _lines(needed, Named)} == {1}


def test_a_session_is_how_it_began_and_its_last_changes() -> None:
    opened = _session(9, SessionEvent.OPEN, 1, user="ann", database="shop")
    changes = [_session(9, SessionEvent.DATABASE, t, database=f"d{t}") for t in range(2, 50)]
    needed = _learnt([opened, *changes])
    assert _lines(needed, SessionNews) == [opened, changes[-1]]
    refused = _session(9, SessionEvent.USER, 60, user="bob")
    needed.learn(refused)
    needed.learn(_session(9, SessionEvent.KEPT, 61))
    assert _lines(needed, SessionNews) == [opened, changes[-1]]
    again = _session(9, SessionEvent.OPEN, 70, user="eve")  # another connection of that number
    needed.learn(again)
    assert _lines(needed, SessionNews) == [again]


@pytest.mark.parametrize(
    ("flags", "expected"), [(QueryFlag.OK, "books"), (0, None), (QueryFlag.ERROR, "shop")]
)
def test_a_statement_that_changes_the_database_is_followed(
    flags: int, expected: str | None
) -> None:
    opened = _session(9, SessionEvent.OPEN, 1, user="ann", database="shop")
    needed = _learnt([opened])
    use = {"session": 9, "shape": 5, "end_ns": 80, "flags": flags, "rung": Rung.SOCKET}
    needed.follow(records(Block.QUERY, [use]), {5: "books"})
    last = _lines(needed, SessionNews)[-1]
    assert last.startup.database == expected
    assert last.t_ns == (1 if flags == QueryFlag.ERROR else 81)


def test_threads_that_live_and_their_last_names() -> None:
    alive = {"pid": 1, "event": TaskEvent.ALIVE, "comm": b"a"}
    renamed = [{"pid": 1, "event": TaskEvent.RENAME, "comm": b"%d" % n} for n in range(9)]
    gone = [{"pid": 2, "event": TaskEvent.FORK}, {"pid": 2, "event": TaskEvent.EXIT}]
    needed = _learnt([_tasks(alive, *renamed, *gone), Untraced("mysqld", (1, 2))])
    (tasks,) = _lines(needed, np.ndarray)
    assert [(int(task["event"]), bytes(task["comm"])) for task in tasks] == [
        (TaskEvent.ALIVE, b"a"),
        (TaskEvent.RENAME, b"8"),
    ]
    needed.learn(_tasks({"pid": 1, "event": TaskEvent.EXIT}))
    assert _lines(needed, np.ndarray) == []
    assert _lines(needed, Untraced) == [Untraced("mysqld", (2,))]  # not met again: its exit is lost


def test_a_year_of_news_takes_no_more_than_the_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MAX_SHAPES", "MAX_TAGS", "MAX_SESSIONS", "MAX_THREADS", "MAX_SINGLES"):
        monkeypatch.setattr(still_needed, name, 50)
    needed = StillNeeded()
    for number in range(1, 2000):
        needed.learn(_shape(number))
        needed.learn(_shape(number, single=True))
        needed.learn(Tagged(number, (("a", "b"),), False))
        needed.learn(_session(number, SessionEvent.OPEN))
        needed.learn(_tasks({"pid": number, "event": TaskEvent.FORK}))
    needed.turn()
    assert len(_lines(needed, Named)) == 100
    assert len(_lines(needed, Tagged)) == len(_lines(needed, SessionNews)) == 50
    assert sum(map(len, _lines(needed, np.ndarray))) == 50
