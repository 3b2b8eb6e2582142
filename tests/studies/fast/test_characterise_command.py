# SPDX-License-Identifier: Apache-2.0
"""`qjoule characterise` on traces with known results."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

import attribute_trace as hand
import counter_traces
from qjoule.commands.characterise import command
from qjoule.errors import QjouleError, UsageError


def run(*arguments: object) -> Result:
    return CliRunner().invoke(command, [str(argument) for argument in arguments])


def document(*arguments: object) -> dict[str, Any]:
    shown = run(*arguments, "--json")
    assert shown.exit_code == 0, shown.output
    found: dict[str, Any] = json.loads(shown.stdout)
    return found


def values(row: dict[str, Any]) -> dict[str, float]:
    return {name: one["value"] for name, one in row["metrics"].items()}


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return counter_traces.write(tmp_path / "shop.qjoule")


def test_each_shape_has_the_figures_that_its_counts_say(trace: Path) -> None:
    found = document(trace)
    rows = {row["fingerprint"]: row for row in found["rows"]}
    assert list(rows) == ["scan", "join", "sort", "point"], "most CPU time first"
    for name, (ms, cycles, instructions, misses) in counter_traces.SHAPES.items():
        shown = values(rows[name])
        assert shown["ipc"] == pytest.approx(instructions / cycles)
        assert shown["frequency_ghz"] == pytest.approx(cycles / (ms * 1e6))
        assert shown["llc_mpki"] == pytest.approx(1000 * misses / instructions)
        assert shown["memory_mb_s"] == pytest.approx(misses * 64 / (ms * 1e-3) / 1e6)
        assert rows[name]["calls"] == 2
        assert rows[name]["cpu_ns"] == 2 * ms * 1_000_000
        assert rows[name]["server"] == "shop-db"
    counted_throughout = {"value": 0.5, "ci95": [0.5, 0.5], "counted_share": 1.0}
    assert found["rows"][0]["metrics"]["ipc"] == counted_throughout


def test_what_was_not_recorded_is_named_with_its_event(trace: Path) -> None:
    missing = {one["metric"]: one["event"] for one in document(trace)["missing"]}
    assert missing["l1d_mpki"] == "L1-dcache-load-misses"
    assert missing["stall_backend_share"] == "stalled-cycles-backend"
    words = " ".join(run(trace).output.split())
    assert "Not recorded: L1-dcache-load-misses," in words
    assert "record --counters" in words
    assert "memory MB/s: an estimate: LLC misses x 64 bytes" in words


def test_others_than_the_top_are_one_row(tmp_path: Path) -> None:
    counts = {f"f{i:06d}": (1 + i % 2, 10_000 + i, 20_000, 7) for i in range(500)}
    found = document(counter_traces.write(tmp_path / "many", counts, 1))
    assert len(found["rows"]) == 31
    assert found["rows"][-1]["folded"] == 470
    assert sum(row["calls"] for row in found["rows"]) == 500


def test_traces_that_have_no_figures_say_why(tmp_path: Path) -> None:
    plain = hand.write(tmp_path / "plain")
    counters = {"counters": ("cycles", "instructions")}
    never = hand.write(tmp_path / "never", segments=[hand.segment(0, 10, 0, 1, 1)], meta=counters)
    trace = counter_traces.write(tmp_path / "t", {})
    for path, words in (
        (plain, "plain has no hardware counters: record it with --count"),
        (never, "its counters never counted while a server ran"),
        (trace, "no CPU time of queries: try --by server"),
    ):
        with pytest.raises(QjouleError, match=words):
            CliRunner().invoke(command, [str(path)], catch_exceptions=False)
    (row,) = document(trace, "--by", "server")["rows"]
    assert values(row)["ipc"] == pytest.approx(0.1), "of background work"
    assert row["calls"] is None


def test_further_counters_that_took_turns_have_intervals(tmp_path: Path) -> None:
    """Branch misses were counted in one of two calls; instructions:u throughout both."""
    segments = [
        segment | {"more": [misses, segment["instructions"] // 4], "more_counted": [share, 1.0]}
        for call, segment in enumerate(counter_traces.segments())
        for misses, share in ([(1000 + 10 * call, 0.5)] if call % 2 else [(None, 0.0)])
    ]
    meta = {"more_counters": ("branch-misses", "instructions:u")}
    trace = counter_traces.write(tmp_path / "trace", segments=segments, meta=meta)
    (row,) = document(trace, "--by", "server")["rows"]
    kernel, misses = (row["metrics"][n] for n in ("kernel_instruction_share", "branch_mpki"))
    assert kernel == {"value": 0.75, "ci95": [0.75, 0.75], "counted_share": 1.0}
    seen = [s for s in segments if s["more"][0] is not None]
    total = sum(s["more"][0] for s in seen) / sum(s["instructions"] for s in seen)
    assert misses["value"] == pytest.approx(1000 * total)
    low, high = misses["ci95"]
    assert low < misses["value"] < high
    lengths = [s["t1_ns"] - s["t0_ns"] for s in segments]
    half = sum(s["t1_ns"] - s["t0_ns"] for s in seen) / 2 / sum(lengths)
    assert misses["counted_share"] == pytest.approx(half)


def test_traces_of_different_machines_are_flagged(tmp_path: Path) -> None:
    machines = {"host": "b", "cpu": "Other CPU", "begin_ns": hand.BEGIN_NS + 1}
    a = counter_traces.write(tmp_path / "a.qjoule")
    b = counter_traces.write(tmp_path / "b.qjoule", meta=machines)
    (flag,) = document(a, b)["flags"]
    assert flag.startswith("different machines: b (Other CPU), box (CPU);")
    assert "Mind: different machines" in run(a, b).output
    same = counter_traces.write(
        tmp_path / "c.qjoule",
        meta={"begin_ns": hand.BEGIN_NS - 10**12, "end_ns": hand.BEGIN_NS - 10**11},
    )
    assert document(a, same)["flags"] == []


def test_csv_and_parquet_have_a_row_for_each(trace: Path, tmp_path: Path) -> None:
    shown = run(trace, "--csv")
    rows = list(csv.DictReader(io.StringIO(shown.stdout)))
    assert [row["fingerprint"] for row in rows] == ["scan", "join", "sort", "point"]
    assert float(rows[0]["ipc"]) == 0.5
    target = tmp_path / "rows.parquet"
    assert run(trace, "--parquet", "-o", target).exit_code == 0
    table = pq.read_table(target)
    assert table.column("llc_mpki").to_pylist()[0] == pytest.approx(10)
    assert json.loads(table.schema.metadata[b"qjoule.characterisation/1"])["by"] == "fingerprint"
    with pytest.raises(UsageError, match="add -o FILE"):
        CliRunner().invoke(command, [str(trace), "--parquet"], catch_exceptions=False)


def test_figures_are_drawn_also_of_hostile_texts(tmp_path: Path) -> None:
    texts = ["$\\frac{$", "<script>alert(1)</script>", "=cmd|' /C'!A0", "\x1b[31mred\u202e" * 9]
    shapes = [
        {"shape": i, "fingerprint": name, "text": text}
        for i, (name, text) in enumerate(zip(counter_traces.SHAPES, texts, strict=True), 1)
    ]
    trace = counter_traces.write(tmp_path / "trace", shapes=shapes)
    shown = run(trace, "--plots", tmp_path / "figures")
    assert shown.exit_code == 0, shown.output
    assert not set(shown.stdout) & {"\x1b", "\u202e"}
    names = {path.name for path in (tmp_path / "figures").iterdir()}
    figures = ("principal", "dendrogram", "kiviat")
    assert {f"{figure}.{kind}" for figure in figures for kind in ("svg", "png")} <= names
    tables = {"rows.csv", "loadings.csv", "scores.csv", "variance.csv", "linkage.csv"}
    assert tables | {"characterisation.json"} <= names
    drawn = (tmp_path / "figures" / "dendrogram.svg").read_text()
    assert "<script" not in drawn
    first = next(csv.reader((tmp_path / "figures" / "scores.csv").read_text().splitlines()[3:]))
    assert first[3].startswith("'=cmd")
