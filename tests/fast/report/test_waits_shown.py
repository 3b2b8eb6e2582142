# SPDX-License-Identifier: Apache-2.0
"""What queries waited for, from the columns of a trace to every output of `attribute`."""

from __future__ import annotations

import csv
import io
import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import attribute_trace as hand
from fake_attribution import query_row, typical
from qjoule.commands.attribute import command
from qjoule.contract import QueryFlag
from qjoule.engine.attribute import attribute
from qjoule.model.assemble import with_waiting
from qjoule.model.call_outcomes import Waits
from qjoule.model.result import Attribution
from qjoule.model.row_sums import added
from qjoule.reporters.json_report import to_arrow, to_json
from qjoule.reporters.result_columns import to_csv
from qjoule.reporters.table import render
from qjoule.trace.reader import Trace
from qjoule.trace.vocabulary import WAITS

DAY_NS = 86_400 * 10**9
WAITED = Waits(1000, run_queue=100, lock=600, io=50, network=0, sleep=0, other=1)


def waited(latency_ms: int, **waits_ms: int) -> dict[str, Any]:
    """Columns of a query that began at 0 and whose waits are recorded."""
    waits = {name: waits_ms.get(name[5:-3], 0) * hand.MS for name in WAITS}
    return waits | {
        "end_ns": hand.at(latency_ms),
        "flags": int(QueryFlag.WAITS),
        "begin_ns": hand.at(0),
    }


def document(directory: Path, *options: str) -> Any:
    done = CliRunner().invoke(command, [str(directory), "--format", "json", *options])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_a_statements_waits_are_the_sums_of_its_queries(tmp_path: Path) -> None:
    queries = [hand.query(*row) for row in hand.QUERIES]
    queries[0] |= waited(12, lock=4, run_queue=1)
    more = hand.query(0, 20, 9, "aaaa", "query", waited(20, lock=5, sleep=2))
    unfinished = hand.query(0, 20, 10, "aaaa", "query", waited(20, io=7) | {"status": "unfinished"})
    trace = hand.write(tmp_path / "t", queries=[*queries, more, unfinished])
    rows = {row["fingerprint"]: row for row in document(trace)["rows"] if "fingerprint" in row}
    row = rows["aaaa"]
    assert row["waits_latency_ns"] == 32 * hand.MS
    assert row["wait_lock_ns"] == 9 * hand.MS
    assert row["wait_run_queue_ns"] == hand.MS
    assert row["wait_sleep_ns"] == 2 * hand.MS
    assert row["wait_io_ns"] == 0, "of queries that ended"
    assert row["ran_ns"] == 20 * hand.MS
    assert "ran_ns" not in rows["bbbb"], "not recorded is not 0"


def test_what_helpers_waited_for_is_thread_time_of_their_queries_row(tmp_path: Path) -> None:
    """One helped after its query's end; one helped a query that nobody knows."""
    queries = [hand.query(*row) for row in hand.QUERIES]
    queries[0] |= waited(12, other=12)
    helpers = [helper(1, 0, 12, run_queue=5, io=4), helper(1, 2, 40, lock=30), helper(99, 0, 9)]
    trace = hand.write(tmp_path / "t", queries=queries, helpers=helpers)
    rows = {row["fingerprint"]: row for row in document(trace)["rows"] if "fingerprint" in row}
    row = rows["aaaa"]
    assert row["helpers_ns"] == 50 * hand.MS
    assert row["helpers_ran_ns"] == 11 * hand.MS
    parts_ms = {name: row[f"helpers_{name}"] // hand.MS for name in WAITS}
    assert [*parts_ms.values()] == [5, 30, 4, 0, 0, 0]
    assert row["ran_ns"] + sum(row[name] for name in WAITS) == row["waits_latency_ns"]
    assert "helpers_ns" not in rows["bbbb"], "its own waits are not recorded"
    text = CliRunner().invoke(command, [str(trace), "--columns", "waits"]).stdout
    assert "helpers" in text and "325.0 %" in text and "not recorded: " not in text


def helper(query: int, begin_ms: int, end_ms: int, **waits_ms: int) -> dict[str, Any]:
    waits = {name: waits_ms.get(name[5:-3], 0) * hand.MS for name in WAITS}
    times = {"begin_ns": hand.at(begin_ms), "end_ns": hand.at(end_ms)}
    return {"query": query, "pid": 12, "tgid": 10} | times | waits


def test_of_a_trace_without_the_table_helpers_are_not_recorded(tmp_path: Path) -> None:
    queries = [hand.query(*hand.QUERIES[0]) | waited(12)]
    trace = hand.write(tmp_path / "t", queries=queries)
    (row,) = (row for row in document(trace)["rows"] if row["calls"])
    assert row["helpers_ns"] == 0 and "helpers_ran_ns" not in row
    meta = json.loads((trace / "meta.json").read_text())
    del meta["rows"]["helpers"]
    (trace / "meta.json").write_text(json.dumps(meta))
    (row,) = (row for row in document(trace)["rows"] if row["calls"])
    assert "helpers_ns" not in row
    text = CliRunner().invoke(command, [str(trace), "--columns", "waits"]).stdout
    assert any(line.split() == ["helpers", "not", "recorded"] for line in text.splitlines())


def test_a_transactions_waits_are_the_sums_of_its_queries(tmp_path: Path) -> None:
    """Queries 1 and 2, and a helper of the first. The transaction lasts longer than both."""
    queries = [hand.query(*row) for row in hand.QUERIES]
    for query in queries[:2]:
        query["transaction"] = 1
    queries[0] |= waited(6, lock=4)
    queries[1] |= waited(5, io=3, run_queue=1) | {"begin_ns": hand.at(15), "end_ns": hand.at(20)}
    transaction = {
        "transaction": 1,
        "begin_ns": hand.at(0),
        "end_ns": hand.at(20),
        "session": 7,
    } | {
        **{"outcome": "committed", "statements": 2, "text": "begin; commit", "last": 2},
    }
    helpers = [helper(1, 0, 12, run_queue=5, io=4)]
    trace = hand.write(tmp_path / "t", queries=queries, transactions=[transaction], helpers=helpers)
    plain, by = (
        [row for row in document(trace, "--by", key)["rows"] if row.get(key)]
        for key in ("query", "transaction")
    )
    row, other = sorted(by, key=lambda summed: summed["transaction"] == "(none)")
    assert (row["calls"], row["latency_ns_mean"]) == (1, 20 * hand.MS), "the transaction's"
    assert row["waits_latency_ns"] == 11 * hand.MS == row["ran_ns"] + sum(row[k] for k in WAITS)
    names = ("waits_latency_ns", *WAITS, "helpers_ns", *(f"helpers_{name}" for name in WAITS))
    assert row["helpers_ns"] == 12 * hand.MS and row["wait_lock_ns"] == 4 * hand.MS
    for name in names:
        assert row[name] == sum(by_query.get(name, 0) for by_query in plain), name
    assert other["calls"] == 0 and "ran_ns" not in other


@st.composite
def in_transactions(draw: st.DrawFn) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Queries, some of them in transactions, of which some have not ended."""
    queries, members = [], dict[str, list[int]]()
    for number in range(1, draw(st.integers(1, 8)) + 1):
        command = draw(st.sampled_from(("query", "execute", "prepare", "connect")))
        latency = draw(st.integers(0, 30))
        extra = waited(latency, lock=draw(st.integers(0, latency)))
        extra["flags"] = draw(st.sampled_from((0, int(QueryFlag.WAITS))))
        extra["status"] = draw(st.sampled_from(("ok", "error", "unfinished")))
        if name := draw(st.sampled_from(("", "a", "b"))):
            members.setdefault(name, []).append(number)
            extra["transaction"] = members[name][0]
        extra["executions"] = draw(st.integers(1 if name else 0, 3))
        queries.append(hand.query(0, latency, number, "aaaa", command, extra))
    rows = [
        {"transaction": ids[0], "begin_ns": hand.at(0), "end_ns": hand.at(30), "session": 1}
        | {"outcome": "committed", "statements": len(ids), "text": name}
        | {"last": ids[-1] if draw(st.booleans()) else None}
        for name, ids in members.items()
    ]
    return queries, rows


@settings(max_examples=30)
@given(in_transactions())
def test_waits_by_transaction_add_up_to_those_by_query(
    tables: tuple[list[dict[str, Any]], list[dict[str, Any]]],
) -> None:
    queries, transactions = tables
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "t"
        ran = [hand.segment(at, at + 1, 0, 1, at + 1) for at in range(len(queries))]
        trace = hand.write(path, queries=queries, transactions=transactions, segments=ran)
        sums = [
            Waits.added(row.waits for row in attribute(Trace(trace), [key]).rows)
            for key in ("query", "transaction")
        ]
    assert sums[0] == sums[1]


def test_a_query_may_span_days(tmp_path: Path) -> None:
    long = {
        **waited(1, lock=0),
        "end_ns": hand.BEGIN_NS + 40 * DAY_NS,
        "wait_lock_ns": 39 * DAY_NS,
    }
    trace = hand.write(tmp_path / "t", queries=[hand.query(0, 1, 1, "aaaa", "query", long)])
    (row,) = [row for row in document(trace)["rows"] if row.get("fingerprint") == "aaaa"]
    assert (row["wait_lock_ns"], row["ran_ns"]) == (39 * DAY_NS, DAY_NS)


def test_an_older_trace_says_not_recorded(tmp_path: Path) -> None:
    trace = hand.write(tmp_path / "t")
    assert not any("ran_ns" in row for row in document(trace)["rows"])
    done = CliRunner().invoke(command, [str(trace), "--columns", "waits"])
    assert "waits" in done.stdout and "not recorded" in done.stdout


def shown(*waits: Waits | None) -> Attribution:
    result = typical()
    rows = (
        replace(row, waits=row_waits) for row, row_waits in zip(result.rows, waits, strict=False)
    )
    return replace(result, rows=tuple(rows))


def test_the_table_shows_shares_of_the_latency() -> None:
    text = render(shown(WAITED, None), width=160, waits=True)
    assert "on CPU" in text and "run queue" in text
    line = next(text_line for text_line in text.splitlines() if "users.location" in text_line)
    assert "24.9 %" in line and "60.0 %" in line and "10.0 %" in line
    assert "not recorded for 1 of 2 rows" in text
    assert "on CPU" not in render(shown(WAITED, None), width=160)


def test_every_format_has_the_parts_and_they_add_up() -> None:
    result = shown(WAITED, None)
    row = json.loads(to_json(result))["rows"][0]
    assert row["waits_latency_ns"] == row["ran_ns"] + sum(row[name] for name in WAITS)
    first = next(csv.DictReader(io.StringIO(to_csv(result))))
    assert {name: int(first[name]) for name in WAITS} == {name: row[name] for name in WAITS}
    assert to_arrow(result).column("wait_lock_ns").to_pylist()[:2] == [600, None]
    assert "wait_lock_ns" not in to_csv(shown(None, None)).splitlines()[0]


WAIT = st.builds(Waits, *[st.integers(0, 2**50)] * 7)


@given(st.lists(WAIT | st.none(), min_size=1, max_size=6))
def test_waits_of_several_rows_add_up(waits: list[Waits | None]) -> None:
    total = added([query_row(10**6, waits=row_waits) for row_waits in waits], {}, apart=False).waits
    recorded = [row_waits for row_waits in waits if row_waits is not None]
    assert total == (Waits(*map(sum, zip(*recorded, strict=True))) if recorded else None)


@pytest.mark.parametrize(
    ("idle", "latency_s", "waiting_j"),
    [("separate", 1, None), ("even", 1, 3.0), ("even", 25, 37.5)],
)
def test_the_energy_at_rest_while_a_query_waited(
    idle: str, latency_s: int, waiting_j: float | None
) -> None:
    """4 W at rest for 12.5 s, and three quarters of the latency were waits. When two queries are in
    progress on average, each has half of it.
    """
    ns = latency_s * 10**9
    result = shown(Waits(ns, 0, ns * 3 // 4, 0, 0, 0, 0))
    model = replace(result.model, coefficients={"idle_w.package.0": 4.0, "idle_w.dram.0": 9.0})
    rows = with_waiting([*result.rows], model, "package", idle=idle, duration_s=12.5)
    assert rows[0].waiting_nj == (None if waiting_j is None else waiting_j * 1e9)
    result = replace(result, rows=tuple(rows))
    assert json.loads(to_json(result))["rows"][0].get("waiting_j") == waiting_j
