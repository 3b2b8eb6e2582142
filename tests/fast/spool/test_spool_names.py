# SPDX-License-Identifier: Apache-2.0
"""Names of a capture: all that is written is read again, and nothing hostile gets through."""

from __future__ import annotations

import io
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh3_64_hexdigest

from qjoule.contract import TASK
from qjoule.servers.startup import Startup
from qjoule.shapes.other_id import OtherId
from qjoule.spool.names import (
    Counted,
    Ended,
    Metered,
    MeterReading,
    NamesReader,
    NamesWriter,
    News,
    Spooled,
    Untraced,
)
from qjoule.stream.client_tags import Tagged
from qjoule.stream.named import Named, ToldId
from qjoule.stream.session_news import SessionNews
from qjoule.tags.kept_calls import KeptCall
from qjoule.tags.reported_calls import Call

OTHER_ID = OtherId("pt_checksum", None, "pt-query-digest 3", "it is cut")
TAGS = (("endpoint", "checkout"), ("tenant", "4\u00e9\u0002"))
EVERY: list[News] = [
    Named((1 << 64) - 1, "f", "select ?", 1, 2, True, True, 5, b"\xff'", 9, (OTHER_ID,)),
    Named(7, "f", "\U0001f600", 1),
    ToldId(7, OTHER_ID._replace(id="12", why="")),
    SessionNews(1, 2, 1, 3, 4, 5, "192.0.2.7", "a > b", Startup("u", None, "app", TAGS)),
    SessionNews(1, 2, 2, 3, 4, 5, None, None, None, sets=True, resets=True),
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


def _written(news: News) -> bytes:
    file = io.BytesIO()
    writer = NamesWriter(file)
    writer.add(news)
    writer.flush()
    return file.getvalue()


def _read(data: bytes) -> tuple[list[News], int]:
    reader = NamesReader(io.BytesIO(data))
    return list(reader), reader.damaged


@pytest.mark.parametrize("news", EVERY, ids=lambda news: type(news).__name__)
def test_what_is_written_is_read_again(news: News) -> None:
    assert _read(_written(news)) == ([news], 0)


def test_task_records_are_read_again() -> None:
    tasks = np.zeros(3, TASK)
    tasks["pid"], tasks["comm"] = [1, 2, 3], b"mysqld"
    (read,), damaged = _read(_written(tasks))
    assert isinstance(read, np.ndarray) and (read == tasks).all() and not damaged


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda values: st.lists(values, max_size=4) | st.dictionaries(st.text(), values, max_size=4),
    max_leaves=8,
)


@given(news=st.sampled_from(EVERY), data=st.data())
def test_a_line_with_any_value_in_a_field_is_read_or_counted(
    news: News, data: st.DataObject
) -> None:
    """What gets through has values of the same types."""
    ((name, fields),) = json.loads(_written(news)[17:]).items()
    field = data.draw(st.sampled_from(sorted(fields)))
    fields[field] = data.draw(_JSON)
    lines, damaged = _read(_line({name: fields}))
    assert len(lines) + damaged == 1
    assert all(type(line) is type(news) for line in lines)


@given(document=_JSON)
def test_a_line_that_says_anything_is_read_or_counted(document: Any) -> None:
    lines, damaged = _read(_line(document))
    assert len(lines) + damaged == 1


@pytest.mark.parametrize(
    "document",
    [
        {"shape": {"shape": -1, "fingerprint": "f", "text": "t", "dialect": 1}},
        {"shape": {"shape": 1 << 64, "fingerprint": "f", "text": "t", "dialect": 1}},
        {"shape": {"shape": 1, "fingerprint": "f", "text": "\ud800", "dialect": 1}},
        {"shape": {"shape": 1, "fingerprint": "f", "text": "t", "dialect": 10_000}},
        {"end": {"t_ns": 1 << 63}},
        {"end": {"t_ns": True}},
        {"untraced": {"process": "p", "tgids": [1 << 40]}},
        {"meter": {"rows": [{"t_ns": 1, "stamp_ns": None, "raw": -5}]}},
        {"tasks": "AAAA"},
        {"tasks": 5},
        {"unheard of": {}},
        {"end": {"t_ns": 1}, "frames": {"frames": 1}},
        b"[" * 100_000,
    ],
)
def test_what_no_trace_can_hold_is_counted(document: Any) -> None:
    assert _read(_line(document)) == ([], 1)
