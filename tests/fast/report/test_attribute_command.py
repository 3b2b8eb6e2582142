# SPDX-License-Identifier: Apache-2.0
"""`qjoule attribute` and its exports."""

from __future__ import annotations

import csv
import io
import json
from decimal import Decimal
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import attribute_trace as hand
from qjoule.commands.attribute import command
from qjoule.errors import QjouleError
from qjoule.trace.arrow import pq


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return hand.write(tmp_path / "t")


def run(*arguments: object) -> Result:
    return CliRunner().invoke(command, [str(argument) for argument in arguments])


def test_json_follows_its_schema_and_adds_up_to_the_last_digit(trace: Path) -> None:
    text = run(trace, "--format", "json").output
    found = json.loads(text, parse_float=Decimal)
    assert found["schema"] == "qjoule.attribution/1"
    assert set(found) >= {"trace", "energy_source", "policy", "model", "totals_j", "rows"}
    totals = {name: Decimal(value) for name, value in found["totals_j"].items()}
    assert sum(value for name, value in totals.items() if name != "measured") == totals["measured"]
    row = found["rows"][0]
    assert row["fingerprint"] == "aaaa"
    wanted = "shape server calls energy_j energy_j_ci95 j_per_call j_per_call_ci95 share cpu_ns "
    wanted += "latency_ns_mean latency_ns_p50 latency_ns_p95 latency_ns_p99 rung flags"
    assert set(wanted.split()) <= set(row)
    everything = [*found["rows"], *found["fixed"]]
    assert sum(Decimal(row["energy_j"]) for row in everything) == totals["measured"]


def test_csv_has_every_row_and_the_grade_on_each(trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    assert run(trace, "--format", "csv", "-o", out).exit_code == 0
    records = list(csv.DictReader(io.StringIO(out.read_text())))
    assert sum(Decimal(record["energy_j"]) for record in records) == 3
    assert {(record["grade"], record["idle_policy"]) for record in records} == {
        ("simulated", "separate")
    }


def test_csv_carries_no_escape_sequence(tmp_path: Path) -> None:
    shapes = [{"shape": 1, "fingerprint": "aaaa", "text": "select \x1b[31m\n?\x00"}]
    trace = hand.write(tmp_path / "t", shapes=shapes)
    text = run(trace, "--format", "csv").output
    assert "\x1b" not in text
    assert "\x00" not in text


def test_parquet_holds_rows_and_the_head(trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.parquet"
    assert run(trace, "--format", "parquet", "-o", out).exit_code == 0
    table = pq.read_table(out)
    assert sum(table.column("energy_j").to_pylist()) == pytest.approx(3)
    head = json.loads(table.schema.metadata[b"qjoule.attribution/1"])
    assert head["policy"] == {"idle": "separate", "by": "fingerprint"}


def test_top_folds_the_others_into_one_row_that_adds_up(trace: Path) -> None:
    found = json.loads(run(trace, "--by", "query", "--top", 1, "--format", "json").output)
    assert len(found["rows"]) == 2
    assert found["rows"][1]["query"] == "(2 others)"
    energy = sum(row["energy_j"] for row in found["rows"])
    assert energy == pytest.approx(found["totals_j"]["queries"])


def test_the_table_shows_queries_and_the_total(trace: Path) -> None:
    result = run(trace)
    assert result.exit_code == 0, result.output
    assert "select a" in result.output
    assert "simulated" in result.output


def test_parquet_needs_a_file_and_errors_are_one_line(trace: Path, tmp_path: Path) -> None:
    for arguments in (
        [trace, "--format", "parquet"],
        [tmp_path / "nowhere"],
        [trace, "--by", "colour"],
        [trace, "--format", "csv", "-o", tmp_path / "no" / "dir"],
    ):
        error = run(*arguments).exception
        assert isinstance(error, QjouleError)
        assert "\n" not in str(error)


def test_help_has_examples() -> None:
    assert "qjoule attribute shop.qjoule" in run("--help").output
