# SPDX-License-Identifier: Apache-2.0
"""Names of a capture are read as written, nothing hostile gets through; a ring's are bounded."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh3_64_hexdigest

from fake_tracer import records
from qjoule.contract import Block, SessionEvent, TaskEvent
from qjoule.servers.decoding_types import Startup
from qjoule.shapes.shape import OtherId
from qjoule.spool import ring_names
from qjoule.spool.names import (
    CaptureEvent,
    Counted,
    Ended,
    Metered,
    MeterReading,
    NamesReader,
    NamesWriter,
    Spooled,
    Untraced,
)
from qjoule.spool.ring_names import LiveNameTable
from qjoule.stream.client_tags import Tagged
from qjoule.stream.names import ReportedQueryId, StatementShape
from qjoule.stream.session_updates import SessionUpdate
from qjoule.tags.kept_calls import KeptCall
from qjoule.tags.reported_calls import Call

OTHER_ID = OtherId("pt_checksum", None, "pt-query-digest 3", "it is cut")
TAGS = (("endpoint", "checkout"), ("tenant", "4\u00e9\u0002"))
EVERY: list[CaptureEvent] = [
    StatementShape((1 << 64) - 1, "f", "select ?", 1, 2, True, True, 5, b"\xff'", 9, (OTHER_ID,)),
    StatementShape(7, "f", "\U0001f600", 1),
    ReportedQueryId(7, OTHER_ID._replace(id="12", why="")),
    SessionUpdate(1, 2, 1, 3, 4, 5, "192.0.2.7", "a > b", Startup("u", None, "app", TAGS)),
    SessionUpdate(1, 2, 2, 3, 4, 5, None, None, None, sets=True, resets=True),
    Tagged(9, TAGS, True),
    KeptCall("unix 7", 3, 10, 20, TAGS, "ab", "cd"),
    Call(1, "cache", 10, 20, 1, TAGS),
    Spooled(12),
    Ended(99),
    Untraced("mysqld (untraced, pid 7)", (7, 8)),
    Counted(1, 2, 3),
    Metered((MeterReading(5, None, 7), MeterReading(6, 8, (1 << 64) - 1))),
]


def _line(document: Any) -> bytes:
    text = document if isinstance(document, bytes) else json.dumps(document).encode()
    return xxh3_64_hexdigest(text).encode() + b" " + text + b"\n"


def _written(news: CaptureEvent) -> bytes:
    file = io.BytesIO()
    writer = NamesWriter(file)
    writer.add(news)
    writer.flush()
    return file.getvalue()


def _read(data: bytes) -> tuple[list[CaptureEvent], int]:
    reader = NamesReader(io.BytesIO(data))
    return list(reader), reader.damaged


@pytest.mark.parametrize("news", EVERY, ids=lambda news: type(news).__name__)
def test_what_is_written_is_read_again(news: CaptureEvent) -> None:
    assert _read(_written(news)) == ([news], 0)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda values: st.lists(values, max_size=4) | st.dictionaries(st.text(), values, max_size=4),
    max_leaves=8,
)


@given(news=st.sampled_from(EVERY), data=st.data())
def test_a_line_with_any_value_in_a_field_is_read_or_counted(
    news: CaptureEvent, data: st.DataObject
) -> None:
    """What gets through has values of the same types."""
    ((name, fields),) = json.loads(_written(news)[17:]).items()
    field = data.draw(st.sampled_from(sorted(fields)))
    fields[field] = data.draw(_JSON)
    lines, damaged = _read(_line({name: fields}))
    assert len(lines) + damaged == 1
    assert all(type(line) is type(news) for line in lines)


@pytest.mark.parametrize(
    "document",
    [
        {"shape": {"shape": -1, "fingerprint": "f", "text": "t", "dialect": 1}},
        {"shape": {"shape": 1, "fingerprint": "f", "text": "\ud800", "dialect": 1}},
        {"shape": {"shape": 1, "fingerprint": "f", "text": "t", "dialect": 10_000}},
        {"end": {"t_ns": 1 << 63}},
        {"meter": {"rows": [{"t_ns": 1, "stamp_ns": None, "raw": -5}]}},
        {"tasks": "AAAA"},
        {"unheard of": {}},
        {"end": {"t_ns": 1}, "frames": {"frames": 1}},
        b"[" * 100_000,
    ],
)
def test_what_no_trace_can_hold_is_counted(document: Any) -> None:
    assert _read(_line(document)) == ([], 1)


# ---- names that a flight recorder remembers ------------------------------------------------------


def _shape(number: int, *, single: bool = False) -> StatementShape:
    return StatementShape(number, f"f{number}", f"select {number}", 1, single=single)


def _session(
    number: int,
    event: SessionEvent,
    t_ns: int = 0,
    *,
    user: str | None = None,
    database: str | None = None,
) -> SessionUpdate:
    whose = Startup(user=user, database=database)
    return SessionUpdate(number, t_ns, event, 1, 5, 5, None, None, whose)


def _tasks(*rows: dict[str, Any]) -> Any:
    return records(Block.TASK, [{"tgid": row["pid"], **row} for row in rows])


def _learnt(news: Iterable[CaptureEvent]) -> LiveNameTable:
    needed = LiveNameTable()
    for line in news:
        needed.learn(line)
    return needed


def _lines(needed: LiveNameTable, kind: type) -> list[Any]:
    return [line for line in needed.lines() if isinstance(line, kind)]


def test_shapes_in_use_outlive_a_flood_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ring_names, "MAX_SHAPES", 100)
    needed = _learnt(_shape(number) for number in range(1, 60))
    assert needed.crowded
    for number in range(1000, 3000):
        needed.learn(_shape(number))
        needed.use(records(Block.QUERY, [{"shape": 7}, {"shape": 8}]))
    remaining = {named.shape for named in _lines(needed, StatementShape)}
    assert len(remaining) == 100
    assert {7, 8} <= remaining
    assert set(range(2902, 3000)) <= remaining


def test_a_session_is_how_it_began_and_its_last_changes() -> None:
    opened = _session(9, SessionEvent.OPEN, 1, user="ann", database="shop")
    changes = [_session(9, SessionEvent.DATABASE, t, database=f"d{t}") for t in range(2, 50)]
    needed = _learnt([opened, *changes])
    assert _lines(needed, SessionUpdate) == [opened, changes[-1]]
    refused = _session(9, SessionEvent.USER, 60, user="bob")
    needed.learn(refused)
    needed.learn(_session(9, SessionEvent.KEPT, 61))
    assert _lines(needed, SessionUpdate) == [opened, changes[-1]]
    again = _session(9, SessionEvent.OPEN, 70, user="eve")  # another connection of that number
    needed.learn(again)
    assert _lines(needed, SessionUpdate) == [again]


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
        monkeypatch.setattr(ring_names, name, 50)
    needed = LiveNameTable()
    for number in range(1, 2000):
        needed.learn(_shape(number))
        needed.learn(_shape(number, single=True))
        needed.learn(Tagged(number, (("a", "b"),), False))
        needed.learn(_session(number, SessionEvent.OPEN))
        needed.learn(_tasks({"pid": number, "event": TaskEvent.FORK}))
    needed.begin_segment()
    assert len(_lines(needed, StatementShape)) == 100
    assert len(_lines(needed, Tagged)) == len(_lines(needed, SessionUpdate)) == 50
    assert sum(map(len, _lines(needed, np.ndarray))) == 50
