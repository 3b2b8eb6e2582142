# SPDX-License-Identifier: Apache-2.0
"""Ratios of counters, their laws and intervals, and `qjoule characterise` on known traces."""

from __future__ import annotations

import csv
import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import attribute_trace as hand
import counter_traces
from cli_runner import invoke, printed_json
from qjoule.errors import QjouleError
from qjoule_studies.characterise import Event, MetricSums, metrics_of
from qjoule_studies.commands.characterise import command

run = partial(invoke, command)
document = partial(printed_json, command, "--json")


def values(row: dict[str, Any]) -> dict[str, float]:
    return {name: metric["value"] for name, metric in row["metrics"].items()}


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return counter_traces.write(tmp_path / "shop.qjoule")


def test_each_shape_has_the_figures_that_its_counts_say(trace: Path) -> None:
    printed = document(trace)
    rows = {row["fingerprint"]: row for row in printed["rows"]}
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
    assert printed["rows"][0]["metrics"]["ipc"] == counted_throughout


def test_traces_that_have_no_figures_say_why(tmp_path: Path) -> None:
    plain = hand.write(tmp_path / "plain")
    trace = counter_traces.write(tmp_path / "t", {})
    for path, message in (
        (plain, "plain has no hardware counters: record it with --count"),
        (trace, "no CPU time of queries: try --by server"),
    ):
        with pytest.raises(QjouleError, match=message):
            CliRunner().invoke(command, [str(path)], catch_exceptions=False)
    (row,) = document(trace, "--by", "server")["rows"]
    assert values(row)["ipc"] == pytest.approx(0.1), "of background work"
    assert row["calls"] is None


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


NAN = float("nan")


def event(*counts: float, share: float = 1.0) -> Event:
    """One count per segment, NaN where it did not count."""
    values = np.array(counts, np.float64)
    valid = np.isfinite(values)
    return Event(np.nan_to_num(values), valid, np.where(valid, share, 0.0))


def sums(events: dict[str, Event], lengths: list[float] | np.ndarray) -> MetricSums:
    total = MetricSums(metrics_of(events), 1)
    total.add(np.zeros(len(lengths), np.int64), np.array(lengths, np.float64), events)
    return total


def test_the_interval_is_that_of_a_ratio_in_a_sample_of_a_finite_population() -> None:
    """Cochran, equation 6.13: two of four segments were counted, so 1 - f is one half."""
    events = {"instructions": event(1000, 3000, NAN, NAN), "branch-misses": event(10, 20, 1, 1)}
    estimate = sums(events, [1e6] * 4).estimates(0)["branch_mpki"]
    residuals = np.array([10.0, 20]) - 0.0075 * np.array([1000, 3000])
    half = 12.706204736 * math.sqrt(0.5 * 2 * (residuals**2).sum()) / 4000
    assert (estimate.low, estimate.high) == pytest.approx((0, 7.5 + 1000 * half))


EVENTS = ("cycles", "instructions", "branch-misses", "instructions:u", "r01c2")
GROUPS = 3


@st.composite
def segments(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, dict[str, Event]]:
    """Group and length of up to 20 segments, and what was counted in them."""
    count = draw(st.integers(1, 20))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    events = {}
    for name in EVENTS:
        valid = rng.random(count) < draw(st.sampled_from([0, 0.5, 1]))
        share = np.where(valid, rng.choice([1.0, 0.3], count), 0.0)
        events[name] = Event(rng.integers(0, 10**6, count).astype(float), valid, share)
    return rng.integers(0, GROUPS, count), rng.integers(1, 10**7, count).astype(float), events


@given(segments())
def test_a_figure_lies_within_its_interval_and_between_its_segments(
    case: tuple[np.ndarray, np.ndarray, dict[str, Event]],
) -> None:
    group, lengths, events = case
    sums = MetricSums(metrics_of(EVENTS), GROUPS)
    sums.add(group, lengths, events)
    for number in range(GROUPS):
        for estimate in sums.estimates(number).values():
            assert 0 <= estimate.counted <= 1
            assert np.isfinite(estimate.value)
            if estimate.low is not None and estimate.high is not None:
                assert estimate.low <= estimate.value <= estimate.high
        ipc = sums.estimates(number).get("ipc")
        both = events["cycles"].valid & events["instructions"].valid & (group == number)
        if ipc is not None and (events["cycles"].count[both] > 0).all():
            each = events["instructions"].count[both] / events["cycles"].count[both]
            assert each.min() * (1 - 1e-9) <= ipc.value <= each.max() * (1 + 1e-9)
