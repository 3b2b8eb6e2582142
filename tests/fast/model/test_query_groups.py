# SPDX-License-Identifier: Apache-2.0
"""Streaming over query records gives the same as holding them all, in any order, cut and times."""

from __future__ import annotations

import math
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
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
from qjoule.engine.query_groups import CallsByEnd, QueryGroups
from qjoule.model.charge import Ids
from qjoule.model.energy import I64, Bool
from qjoule.model.id_runs import U64
from qjoule.model.labels import PREPARED_BEFORE, SESSION_OVERHEAD, GroupLabel, LabelIndex
from qjoule.model.latency import DIGITS, EXACT, QUANTILES, Latencies
from qjoule.reporters.json_report import to_json
from qjoule.trace.reader import Trace
from qjoule.trace.schema import empty

Record = dict[str, Any]
IDS = [*range(1, 30), 2**44 + 1, 2**44 + 2, 2**64 - 1]


class Part:
    """A row group in memory that counts how often it is read."""

    def __init__(self, table: pa.Table | None) -> None:
        self.table = table
        self.reads = 0

    def read(self, columns: Sequence[str]) -> pa.Table | None:
        self.reads += 1
        return None if self.table is None else self.table.select(list(dict.fromkeys(columns)))


@st.composite
def records(draw: st.DrawFn) -> list[Record]:
    """Query records in any order, with repeated ids and inconsistent times."""
    return draw(
        st.lists(
            st.builds(
                lambda number, begin, lasts, other: (
                    {"query": number, "begin_ns": begin, "end_ns": begin + lasts} | other
                ),
                st.sampled_from(IDS),
                st.integers(0, 1000),
                st.integers(-5, 500),
                st.fixed_dictionaries(
                    {
                        "server": st.sampled_from([None, 1, 2, 3]),
                        "fingerprint": st.sampled_from([None, "aaaa", "bbbb"]),
                        "shape": st.sampled_from([None, 0, 1, 0xFF]),
                        "command": st.sampled_from([None, "query", "execute", "prepare", "other"]),
                        "status": st.sampled_from([None, "ok", "unfinished"]),
                        "executions": st.sampled_from([None, 0, 1, 3]),
                        "flags": st.integers(0, 31),
                        "rung": st.sampled_from([None, "socket", "symbol"]),
                        "user": st.sampled_from([None, "ann"]),
                        "session": st.sampled_from([None, 7, 8]),
                    }
                ),
            ),
            max_size=30,
        )
    )


def server_name(server: int | None) -> str:
    return {None: "(unknown server)", 3: "two"}.get(server, f"server {server}")


def keys_of(record: Record, by: Sequence[str]) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Kind and keys of a record's label, as the format document defines them."""
    server = server_name(record["server"])
    if record["command"] == "other":
        return "background", (("server", server), ("role", SESSION_OVERHEAD))
    hashed = f"{record['shape']:016x}" if record["shape"] else PREPARED_BEFORE
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
def few_rows_are_held(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(query_groups, "HELD_ROWS", 7)
    yield


BY = st.sampled_from(
    [("fingerprint",), ("server",), ("query",), ("session", "user"), ("user", "fingerprint")]
)
CUTS = st.lists(st.integers(0, 30), max_size=8)


@given(
    records(),
    CUTS,
    st.lists(st.booleans(), min_size=9, max_size=9),
    BY,
    st.lists(st.lists(st.sampled_from([*IDS, 31, 2**44]), max_size=12), max_size=6),
)
def test_lookups_and_calls_are_those_of_all_records_at_once(
    rows: list[Record],
    places: list[int],
    missing: list[bool],
    by: tuple[str, ...],
    asked: list[list[int]],
) -> None:
    pieces = cut(rows, places)
    parts = [Part(None if gone else table_of(p)) for p, gone in zip(pieces, missing, strict=False)]
    kept = [row for p, gone in zip(pieces, missing, strict=False) if not gone for row in p]
    index = LabelIndex()
    groups = QueryGroups(parts, empty("shapes"), server_name, by, index)
    first: dict[int, Record] = {}
    for row in kept:
        first.setdefault(row["query"], row)
    largest = max((len(p) for p in pieces), default=0)
    for ids in asked:
        group, named = found(groups, np.array(ids, np.uint64))
        for number, g, known in zip(ids, group.tolist(), named.tolist(), strict=True):
            if number not in first:
                assert (g, known) == (-1, False)
                continue
            row = first[number]
            assert (index.labels[g].kind, index.labels[g].keys) == keys_of(row, by)
            assert known == (row["command"] != "other" and row["fingerprint"] is not None)
        assert groups.held_rows <= max(query_groups.HELD_ROWS, largest)
    check_labels(index.labels, kept, by)
    check_calls(groups, index.labels, kept, by)


def found(groups: QueryGroups, ids: U64) -> tuple[I64, Bool]:
    """The group of each id, -1 if it has none, and whether it is marked."""
    query, table = groups.numbered(Ids(ids))
    place = np.minimum(query.ids - np.uint64(table.first), np.uint64(len(table.group)))
    group, marked = np.append(table.group, -1), np.append(table.marked, False)
    return group[place], marked[place]


def check_labels(labels: list[GroupLabel], rows: list[Record], by: tuple[str, ...]) -> None:
    """Each label that occurs is there once, and holds what its records have in common."""
    by_keys = defaultdict(list)
    for row in rows:
        by_keys[keys_of(row, by)].append(row)
    assert {(label.kind, label.keys) for label in labels} == by_keys.keys()
    assert len(labels) == len(by_keys)
    for label in labels:
        rungs = {row["rung"] or "" for row in by_keys[label.kind, label.keys]}
        if label.kind == "queries":
            assert label.rung == (rungs.pop() if len(rungs) == 1 else "")


def check_calls(
    groups: QueryGroups, labels: list[GroupLabel], rows: list[Record], by: tuple[str, ...]
) -> None:
    latencies: dict[Any, list[int]] = defaultdict(list)
    calls: dict[Any, int] = defaultdict(int)
    for row in filter(is_call, rows):
        latencies[keys_of(row, by)].append(row["end_ns"] - row["begin_ns"])
        calls[keys_of(row, by)] += row["executions"] or 1
    stats = groups.stats(len(labels))
    for g, label in enumerate(labels):
        key = (label.kind, label.keys)
        assert stats.calls[g] == calls[key]
        if not latencies[key]:
            assert np.isnan(stats.latency_ns_mean[g])
            continue
        assert stats.latency_ns_mean[g] == sum(latencies[key]) / len(latencies[key])
        assert stats.latency_ns_quantiles[g].tolist() == quantiles(latencies[key])


def quantiles(latencies: list[int]) -> list[int]:
    ordered = sorted(latencies)
    return [ordered[max(math.ceil(q * len(ordered)) - 1, 0)] for q in QUANTILES]


@given(records(), CUTS, st.lists(st.integers(-10, 1600), max_size=5))
def test_each_call_is_taken_once_when_it_has_ended(
    rows: list[Record], places: list[int], times: list[int]
) -> None:
    parts = [Part(table_of(p)) for p in cut(rows, places)]
    groups = QueryGroups(parts, empty("shapes"), server_name, ("server",), LabelIndex())
    ended = CallsByEnd(groups)
    after = -(2**63)
    for until in [*sorted(times), 2**63 - 1]:
        taken = [t for calls in ended.until(until) for t in calls.end_ns.tolist()]
        expected = [r["end_ns"] for r in rows if is_call(r) and after < r["end_ns"] <= until]
        assert sorted(taken) == sorted(expected)
        after = until


SEGMENT = st.tuples(
    st.integers(0, 35), st.integers(1, 5), st.integers(0, 1), st.sampled_from([None, *IDS])
)


@given(records(), CUTS, st.integers(1, 6), BY, st.lists(SEGMENT, max_size=40))
def test_a_result_does_not_know_how_its_trace_was_cut(
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
        whole = hand.write(Path(folder) / "whole", queries=[], segments=ran)
        parted = hand.write(Path(folder) / "parted", queries=[], segments=ran)
        pq.write_table(table_of(rows), whole / "queries.parquet")
        (parted / "queries").mkdir()
        for number, piece in enumerate(cut(rows, places)):
            path = parted / "queries" / f"part-{number:06}.parquet"
            pq.write_table(table_of(piece), path, row_group_size=group_rows)
        texts = [to_json(attribute(Trace(path), by)) for path in (whole, parted)]
    assert texts[0] == texts[1]


def test_a_long_trace_is_read_twice_and_never_held() -> None:
    """In order of time, with a query that lasts for many row groups and a thread woken early."""
    size, parts = 5, []
    for number in range(40):
        ids = [2**44 * (1 + i % 2) + number * size + i for i in range(size)]
        rows = [{"query": q, "begin_ns": q, "end_ns": q, "fingerprint": "aaaa"} for q in ids]
        parts.append(Part(table_of(rows)))
    groups = QueryGroups(parts, empty("shapes"), server_name, ("fingerprint",), LabelIndex())
    held = []
    for part in parts:
        assert part.table is not None
        group, _ = found(groups, part.table.column("query").to_numpy())
        assert (group == 0).all()
        held.append(groups.held_rows)
    assert max(held) <= query_groups.HELD_ROWS
    assert [part.reads for part in parts] == [1] + [2] * 39


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2**62)), max_size=60),
    st.integers(1, 60),
    st.booleans(),
)
def test_quantiles_are_near_and_do_not_know_the_order(
    calls: list[tuple[int, int]], at: int, many: bool
) -> None:
    if many:  # longer than what is kept unabridged
        calls = [(group, ns // 3 + i) for group, ns in calls for i in range(2 * EXACT // 5)]
    one, other = Latencies(), Latencies()
    one.add(*columns(calls))
    for part in (calls[at:], calls[:at]):
        other.add(*columns(part))
        other.stats(4)
    stats, same = one.stats(4), other.stats(4)
    assert np.array_equal(stats.latency_ns_quantiles, same.latency_ns_quantiles, equal_nan=True)
    for group in range(4):
        mine = [ns for g, ns in calls if g == group]
        assert stats.calls[group] == len(mine)
        if mine:
            near = 0 if len(set(mine)) <= EXACT else 2.0**-DIGITS
            found = stats.latency_ns_quantiles[group].tolist()
            assert found == pytest.approx(quantiles(mine), rel=max(near, 1e-12))


def columns(calls: list[tuple[int, int]]) -> tuple[Any, Any, Any]:
    group, latency_ns = np.array(calls, np.int64).reshape(-1, 2).T
    return group, latency_ns, np.ones(len(calls), np.int64)
