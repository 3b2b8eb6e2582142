# SPDX-License-Identifier: Apache-2.0
"""Statements executed by a procedure belong to their query, and are separated only on request."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import attribute_trace as hand
import fake_tracer as ft
from attribute_trace import MS
from qjoule.contract import Block, Command, QueryFlag, Rung
from qjoule.engine.attribute import attribute
from qjoule.model.result import Row
from qjoule.servers import registry
from qjoule.stream.blocks import Stream
from qjoule.stream.ingest import Ingest, Tables
from qjoule.trace.reader import Trace

T0 = ft.BEGIN_NS
#: Children of query 1, which ran from 0 to 10 ms: an insert from 2 to 6, one without a text to 7.
CHILDREN = [
    hand.query(2, 6, 101, "aaaa", "child", {"parent": 1, "child": "bbbb", "executions": 0}),
    hand.query(6, 7, 102, "aaaa", "child", {"parent": 1, "child": None, "executions": 0}),
]
SEGMENTS = [
    (0, 2, 0, 1, 1),
    (2, 6, 0, 1, 101),
    (6, 7, 0, 1, 102),
    (7, 10, 0, 1, 1),
    *hand.SEGMENTS[1:],
]


def write(directory: Path) -> Trace:
    queries = [*(hand.query(*row) for row in hand.QUERIES), *CHILDREN]
    queries[0]["tags"] = None
    segments = [hand.segment(*row) for row in sorted(SEGMENTS)]
    return Trace(hand.write(directory, queries=queries, segments=segments))


def test_a_query_keeps_its_calls_time_and_energy(tmp_path: Path) -> None:
    whole = attribute(Trace(hand.write(tmp_path / "whole")))
    parts = attribute(write(tmp_path / "parts"))
    for one, other in zip(whole.rows, parts.rows, strict=True):
        assert (one.keys, one.calls, one.cpu_ns) == (other.keys, other.calls, other.cpu_ns)
        assert one.energy_nj == other.energy_nj
        assert one.latency_ns_mean == other.latency_ns_mean
    assert parts.coverage == whole.coverage


def test_children_are_rows_of_their_own_if_asked_for(tmp_path: Path) -> None:
    result = attribute(write(tmp_path / "t"), ["fingerprint", "child"])
    by: dict[Any, Row] = {tuple(row.keys.values()): row for row in result.rows}
    assert set(by) == {
        ("aaaa", "(none)"),
        ("aaaa", "select b"),
        ("aaaa", "(no text)"),
        ("bbbb", "(none)"),
    }
    assert by["aaaa", "select b"].cpu_ns == 4 * MS
    assert by["aaaa", "select b"].calls == 1
    assert by["aaaa", "select b"].latency_ns_mean == 4 * MS
    assert by["aaaa", "(no text)"].cpu_ns == MS
    assert by["aaaa", "(none)"].calls == 1
    assert by["aaaa", "(none)"].cpu_ns == (5 + 10) * MS
    assert by["bbbb", "(none)"].calls == 3
    whole = attribute(Trace(hand.write(tmp_path / "whole")))
    assert sum(row.energy_nj for row in result.rows) == sum(row.energy_nj for row in whole.rows)


def query_rows(**changed: Any) -> list[dict[str, Any]]:
    """Rows of `queries` for one query and one child of it."""
    call = {"query": 9, "begin_ns": T0 + 1, "end_ns": T0 + 90, "session": 4, "shape": 5}
    call |= {"executions": 1, "server": 1, "rung": Rung.SOCKET, "command": Command.QUERY}
    child = {"child": 10, "query": 9, "begin_ns": T0 + 2, "end_ns": T0 + 3, "session": 4}
    child |= {"shape": 6, "query_shape": 5, "server": 1, "rung": Rung.SOCKET, "pid": 11}
    child |= {"statement_bytes": 8, "command": Command.CHILD} | changed
    stream = ft.head() + ft.text(5, b"call p(1)") + ft.text(6, b"select 2")
    stream += ft.block(Block.CHILD, child) + ft.block(Block.QUERY, call) + ft.end(T0 + 100)
    batches: list[Tables] = []
    ingest = Ingest(batches.append, ft.fingerprint)
    for frame in Stream(io.BytesIO(stream)):
        ingest.add(frame)
    ingest.finish(complete=True)
    rows: list[dict[str, Any]] = pa.concat_tables([b["queries"] for b in batches]).to_pylist()
    return rows


def name(statement: bytes) -> str:
    return ft.fingerprint(statement, registry.dialect("mysql"), False).fingerprint


def test_a_child_has_its_querys_labels_and_its_own_statement() -> None:
    call, child = query_rows()
    assert (call["parent"], call["child"]) == (None, None)
    assert call["fingerprint"] == child["fingerprint"] == name(b"call p(1)")
    assert child["child"] == name(b"select 2")
    assert (child["query"], child["parent"], child["session"]) == (10, 9, 4)
    assert (child["command"], child["executions"], child["shape"]) == ("child", 0, 5)
    assert (child["begin_ns"], child["end_ns"], child["pid"]) == (T0 + 2, T0 + 3, 11)


def test_a_child_without_text_has_no_fingerprint_of_its_own() -> None:
    _, child = query_rows(shape=0, flags=QueryFlag.NO_TEXT)
    assert child["child"] is None
    assert child["statement_bytes"] is None


@pytest.mark.parametrize("begin_ns", [T0 + 4, np.uint64(2**63)])
def test_a_child_that_ends_before_it_begins_is_left_out(begin_ns: int) -> None:
    assert [row["query"] for row in query_rows(begin_ns=begin_ns)] == [9]
