# SPDX-License-Identifier: Apache-2.0
"""Streaming over query records gives the same as holding them all, in any order, cut and times."""

from __future__ import annotations

import math
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import attribute_trace as hand
from qjoule.engine import query_groups
from qjoule.engine.attribute import attribute
from qjoule.engine.keys import LabelIndex
from qjoule.engine.query_groups import CallsByEnd, QueryGroups
from qjoule.engine.query_labels import QueryLabels
from qjoule.model.charge import U64, Ids
from qjoule.model.labels import SESSION_OVERHEAD, TEXT_LOST
from qjoule.model.latency import DIGITS, EXACT, QUANTILES, Latencies
from qjoule.reporters.json_report import to_json
from qjoule.trace.reader import Trace
from qjoule.trace.schema import empty

Record = dict[str, Any]
Key = tuple[str, tuple[tuple[str, str], ...]]  #: kind and keys of a label
IDS = [*range(1, 30), 2**44 + 1, 2**44 + 2, 2**64 - 1]
FOREVER = 2**63 - 1


@dataclass
class Part:
    """A row group in memory."""

    table: pa.Table

    def read(self, columns: Sequence[str]) -> pa.Table:
        return self.table.select(list(dict.fromkeys(columns)))


@st.composite
def records(draw: st.DrawFn) -> list[Record]:
    """Query records in any order, with repeated ids and inconsistent times."""
    columns = {
        "query": st.sampled_from(IDS),
        "begin_ns": st.integers(0, 1000),
        "end_ns": st.integers(-5, 500),
        "server": st.sampled_from([None, 1, 2, 3]),
        "fingerprint": st.sampled_from([None, "aaaa", "bbbb"]),
        "shape": st.sampled_from([None, 0, 1, 0xFF]),
        "command": st.sampled_from([None, "query", "execute", "prepare", "other"]),
        "status": st.sampled_from([None, "ok", "unfinished"]),
        "executions": st.sampled_from([None, 0, 1, 3]),
        "flags": st.integers(0, 31),
        "attach_mode": st.sampled_from([None, "socket", "symbol"]),
        "user": st.sampled_from([None, "ann"]),
        "session": st.sampled_from([None, 7, 8]),
    }
    rows = draw(st.lists(st.fixed_dictionaries(columns), max_size=30))
    return [row | {"end_ns": row["begin_ns"] + row["end_ns"]} for row in rows]


def server_name(server: int | None) -> str:
    return {None: "(unknown server)", 3: "two"}.get(server, f"server {server}")


def key_of(record: Record, by: Sequence[str]) -> Key:
    """The key of a record, as the format document defines labels."""
    server = server_name(record["server"])
    if record["command"] == "other":
        return "background", (("server", server), ("role", SESSION_OVERHEAD))
    hashed = f"{record['shape']:016x}" if record["shape"] else TEXT_LOST
    values = {
        "fingerprint": record["fingerprint"] or hashed,
        "server": server,
        "query": str(record["query"]),
        "user": record["user"] or "(none)",
        "session": str(record["session"] or "(none)"),
    }
    return "queries", tuple((key, values[key]) for key in by)


def is_call(record: Record) -> bool:
    called = record["command"] not in ("prepare", "other") and record["status"] != "unfinished"
    return called and record["end_ns"] >= record["begin_ns"] and record["executions"] != 0


def cut(rows: list[Record], places: list[int]) -> list[list[Record]]:
    edges = [0, *sorted(min(place, len(rows)) for place in places), len(rows)]
    return [rows[a:b] for a, b in pairwise(edges)]


def table_of(rows: list[Record]) -> pa.Table:
    """With the whole schema, as a reader returns it."""
    if not rows:
        return empty("queries")
    table = hand.rows("queries", rows)
    for field in empty("queries").schema:
        if field.name not in table.column_names:
            table = table.append_column(field, pa.nulls(len(rows), field.type))
    return table


@pytest.fixture(autouse=True)
def few_rows_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_groups, "HELD_ROWS", 7)


BY = st.sampled_from(
    [("fingerprint",), ("server",), ("query",), ("session", "user"), ("user", "fingerprint")]
)
CUTS = st.lists(st.integers(0, 30), max_size=8)
ASKED = st.lists(st.lists(st.sampled_from([*IDS, 31, 2**44]), max_size=12), max_size=6)


def lookup(groups: QueryGroups, ids: U64) -> list[tuple[int, bool]]:
    """The group of each id, -1 if it has none, and whether it is marked."""
    query, table = groups.numbered(Ids(ids))
    place = np.minimum(query.ids - np.uint64(table.first), np.uint64(len(table.group)))
    group, marked = np.append(table.group, -1), np.append(table.marked, False)
    return list(zip(group[place].tolist(), marked[place].tolist(), strict=True))


@given(records(), CUTS, BY, ASKED, st.integers(-10, 1600))
def test_lookups_and_calls_are_those_of_all_records_at_once(
    rows: list[Record], places: list[int], by: tuple[str, ...], lookups: list[list[int]], until: int
) -> None:
    pieces, index = cut(rows, places), LabelIndex()
    parts = [Part(table_of(piece)) for piece in pieces]
    groups = QueryGroups(parts, QueryLabels({}, server_name, by), index)
    first = {row["query"]: row for row in reversed(rows)}
    for ids in lookups:
        for number, (group, marked) in zip(
            ids, lookup(groups, np.array(ids, np.uint64)), strict=True
        ):
            if (row := first.get(number)) is None:
                assert (group, marked) == (-1, False)
                continue
            assert (index.labels[group].kind, index.labels[group].keys) == key_of(row, by)
            assert marked == (row["command"] != "other" and row["fingerprint"] is not None)
        assert groups.held_rows <= max(query_groups.HELD_ROWS, *map(len, pieces))
    by_key: dict[Key, list[Record]] = defaultdict(list)
    for row in rows:
        by_key[key_of(row, by)].append(row)
    assert sorted(by_key) == sorted((label.kind, label.keys) for label in index.labels)
    stats = groups.stats(len(index.labels))
    for group, label in enumerate(index.labels):
        mine = by_key[label.kind, label.keys]
        attach_modes = {row["attach_mode"] or "" for row in mine}
        assert label.kind != "queries" or label.attach_mode == (
            attach_modes.pop() if len(attach_modes) == 1 else ""
        )
        calls = [row for row in mine if is_call(row)]
        assert stats.calls[group] == sum(row["executions"] or 1 for row in calls)
        latencies = [row["end_ns"] - row["begin_ns"] for row in calls]
        if not latencies:
            assert np.isnan(stats.latency_ns_mean[group])
            continue
        assert stats.latency_ns_mean[group] == sum(latencies) / len(latencies)
        assert stats.latency_ns_quantiles[group].tolist() == quantiles(latencies)
    ended, after = CallsByEnd(groups), -(2**63)
    for end in (until, FOREVER):
        taken = [t for calls in ended.until(end) for t in calls.end_ns.tolist()]
        expected = [r["end_ns"] for r in rows if is_call(r) and after < r["end_ns"] <= end]
        assert sorted(taken) == sorted(expected)
        after = end


def quantiles(latencies: list[int]) -> list[int]:
    ordered = sorted(latencies)
    return [ordered[max(math.ceil(q * len(ordered)) - 1, 0)] for q in QUANTILES]


SEGMENT = st.tuples(
    st.integers(0, 35), st.integers(1, 5), st.integers(0, 1), st.sampled_from([None, *IDS])
)


@given(records(), CUTS, st.integers(1, 6), BY, st.lists(SEGMENT, max_size=40))
def test_a_result_does_not_depend_on_how_its_trace_was_cut(
    rows: list[Record],
    places: list[int],
    group_rows: int,
    by: tuple[str, ...],
    segments: list[tuple[int, int, int, int | None]],
) -> None:
    """A handwritten single file, and parts of small row groups: the same result, to the byte."""
    rows = [row | {"end_ns": max(row["begin_ns"], row["end_ns"])} for row in rows]
    ran = [hand.segment(t, t + ms, cpu, 1, query) for t, ms, cpu, query in segments]
    with tempfile.TemporaryDirectory() as folder:
        single = hand.write(Path(folder) / "whole", queries=[], segments=ran)
        parted = hand.write(Path(folder) / "parted", queries=[], segments=ran)
        pq.write_table(table_of(rows), single / "queries.parquet")
        (parted / "queries").mkdir()
        for number, piece in enumerate(cut(rows, places)):
            path = parted / "queries" / f"part-{number:06}.parquet"
            pq.write_table(table_of(piece), path, row_group_size=group_rows)
        of_single, of_parted = (to_json(attribute(Trace(path), by)) for path in (single, parted))
    assert of_single == of_parted


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2**62)), max_size=60),
    st.integers(1, 60),
    st.booleans(),
)
def test_quantiles_are_near_and_do_not_depend_on_the_order(
    calls: list[tuple[int, int]], at: int, many: bool
) -> None:
    if many:  # longer than what is kept unabridged
        calls = [(group, ns // 3 + i) for group, ns in calls for i in range(2 * EXACT // 5)]
    in_order, in_parts = Latencies(), Latencies()
    in_order.add(*columns(calls))
    for part in (calls[at:], calls[:at]):
        in_parts.add(*columns(part))
        in_parts.stats(4)
    stats, same = in_order.stats(4), in_parts.stats(4)
    assert np.array_equal(stats.latency_ns_quantiles, same.latency_ns_quantiles, equal_nan=True)
    for group in range(4):
        mine = [ns for g, ns in calls if g == group]
        assert stats.calls[group] == len(mine)
        if mine:
            near = 0 if len(set(mine)) <= EXACT else 2.0**-DIGITS
            expected = pytest.approx(quantiles(mine), rel=max(near, 1e-12))
            assert stats.latency_ns_quantiles[group].tolist() == expected


def columns(calls: list[tuple[int, int]]) -> tuple[Any, Any, Any]:
    group, latency_ns = np.array(calls, np.int64).reshape(-1, 2).T
    return group, latency_ns, np.ones(len(calls), np.int64)
