# SPDX-License-Identifier: Apache-2.0
"""Queries grouped by their transactions, with COMMIT as a separate row."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import attribute_trace as hand
from attribute_trace import MS
from qjoule.engine.attribute import attribute
from qjoule.model.result import Row
from qjoule.reporters.csv_report import flat_rows
from qjoule.reporters.json_report import to_json
from qjoule.reporters.table import render
from qjoule.trace.reader import Trace

#: Queries 1 and 2 form a transaction; 2 is the COMMIT. 3 is in none.
TOLD = [
    {
        "transaction": 1,
        "begin_ns": hand.at(0),
        "end_ns": hand.at(20),
        "session": 7,
        "outcome": "committed",
        "statements": 2,
        "text": "begin; commit",
        "last": 2,
        "commit_ns": 10 * MS,
    }
]


@pytest.fixture
def trace(tmp_path: Path) -> Trace:
    rows = [hand.query(*row) for row in hand.QUERIES]
    rows[0]["transaction"] = rows[1]["transaction"] = 1
    return Trace(hand.write(tmp_path / "t", queries=rows, transactions=TOLD))


def test_a_transaction_is_one_call_and_says_what_its_commit_was(trace: Trace) -> None:
    found = attribute(trace, ["transaction"])
    by: dict[str, Row] = {row.keys["transaction"]: row for row in found.rows}
    assert set(by) == {"begin; commit", "(none)"}
    whole = by["begin; commit"]
    # 10 ms of each, in a window of 25 ms and 1 J.
    assert whole.energy_nj == 800_000_000
    assert (whole.calls, whole.cpu_ns, whole.latency_ns_mean) == (1, 20 * MS, 20 * MS)
    assert (whole.commit_nj, whole.commit_ns_mean) == (400_000_000, 10 * MS)
    assert by["(none)"].commit_nj is None
    assert by["(none)"].calls == 0, "a PREPARE"
    assert found.policy["by"] == "transaction"
    plain = attribute(trace)
    assert sum(row.energy_nj for row in found.rows) == sum(row.energy_nj for row in plain.rows)
    low, high = whole.energy_nj_ci95
    assert low <= whole.energy_nj <= high


def test_by_transaction_and_statement(trace: Trace) -> None:
    by = {
        tuple(row.keys.values()): row
        for row in attribute(trace, ["transaction", "fingerprint"]).rows
    }
    assert by["begin; commit", "bbbb"].commit_nj == 400_000_000
    assert by["begin; commit", "aaaa"].commit_nj is None
    assert by["begin; commit", "aaaa"].cpu_ns == 10 * MS


def test_reports_say_it(trace: Trace) -> None:
    found = attribute(trace, ["transaction"])
    document = json.loads(to_json(found))["rows"][0]
    assert (document["commit_j"], document["commit_ns_mean"]) == (0.4, 10 * MS)
    assert flat_rows(found)[0]["commit_j"] == 0.4
    table = render(found, width=140)
    assert "begin; commit" in table
    assert "commit" in table.splitlines()[0] or "50" in table
    assert "commit_j" not in flat_rows(attribute(trace))[0]


def test_a_transaction_that_the_table_lacks(tmp_path: Path) -> None:
    rows = [hand.query(*row) for row in hand.QUERIES]
    rows[0]["transaction"] = 77
    found = attribute(Trace(hand.write(tmp_path / "t", queries=rows)), ["transaction"])
    assert {row.keys["transaction"] for row in found.rows} == {"(not told)", "(none)"}
