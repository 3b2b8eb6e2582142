# SPDX-License-Identifier: Apache-2.0
"""Joules as kWh, money and carbon: known answers, laws, outputs, and refused input."""

from __future__ import annotations

import csv
import io
import json
import math
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

import attribute_trace as hand
from qjoule.commands.attribute import command
from qjoule.errors import QjouleError, UsageError
from qjoule.model.impact import Embodied, Factor, Factors, Impact, Steps, impact, mean_factor
from qjoule.model.impact_series import CARBON, PRICE, parse_series
from qjoule.reporters import format as fmt

HOUR_NS = 3_600 * 10**9
ALL = ("--price", "0.30/kWh:EUR", "--carbon", "380", "--pue", "1.3", "--embodied", "36/h")


def run(*arguments: object) -> Result:
    return CliRunner().invoke(command, [str(argument) for argument in arguments])


def error(*arguments: object) -> str:
    found = run(*arguments).exception
    assert isinstance(found, (QjouleError, UsageError))
    assert "\n" not in str(found)
    return str(found)


def test_a_kilowatt_hour_by_hand() -> None:
    factors = Factors(1.5, Factor(0.2, ""), "EUR", Factor(400, ""), Embodied(100, ""))
    found = impact(3.6e15, (1.8e15, 7.2e15), 1000, int(7.2e15), factors)
    assert found.kwh.value == pytest.approx(1.5)
    assert found.cost is not None
    assert found.gco2e is not None
    assert found.cost.value == pytest.approx(0.3)
    assert found.cost.ci95 == pytest.approx((0.15, 0.6))
    assert (found.operational_gco2e, found.embodied_gco2e) == pytest.approx((600, 50))
    assert found.gco2e.per_call == pytest.approx(0.65), "SCI = (1.5 * 400 + 50) / 1000"
    assert found.gco2e.per_call_ci95 == pytest.approx((0.325, 1.3))


def test_every_output_has_it_and_its_factors(tmp_path: Path) -> None:
    trace = hand.write(tmp_path / "t")
    found = json.loads(run(trace, *ALL, "--format", "json").output)
    factors = found["impact"]["factors"]
    assert factors["price_per_kwh"] == 0.3
    assert (factors["currency"], factors["pue"], factors["r"]) == ("EUR", 1.3, "1 call")
    assert (factors["i_gco2e_per_kwh"], factors["m_gco2e"]) == (380, pytest.approx(0.0004))
    row = found["rows"][0]
    kwh = row["energy_j"] / 3.6e6 * 1.3
    assert row["impact"]["kwh"] == pytest.approx(kwh)
    assert row["impact"]["cost_per_call"] == pytest.approx(kwh * 0.3 / row["calls"])
    assert row["impact"]["cost_ci95"] == pytest.approx(
        [end / 3.6e6 * 1.3 * 0.3 for end in row["energy_j_ci95"]]
    )
    records = list(csv.DictReader(io.StringIO(run(trace, *ALL, "--format", "csv").output)))
    assert float(records[0]["cost"]) == pytest.approx(row["impact"]["cost"])
    assert {one["currency"] for one in records} == {"EUR"}
    path = tmp_path / "t.parquet"
    assert run(trace, *ALL, "--format", "parquet", "-o", path).exit_code == 0
    table = pq.read_table(path)
    assert table.column("gco2e")[0].as_py() == pytest.approx(row["impact"]["gco2e"])
    assert str(table.schema.field("i_gco2e_per_kwh").type) == "double"
    plain = run(trace, "--format", "json").output
    assert "impact" not in plain
    assert "kwh" not in run(trace, "--format", "csv").output


def series(tmp_path: Path, values: list[Any], column: str = CARBON, minutes: int = 60) -> Path:
    """From 1970 on, in a time zone other than ours."""
    start = datetime(1970, 1, 1, tzinfo=UTC).astimezone(tz=None)
    lines = [
        f"{(start + timedelta(minutes=minutes * i)).isoformat()},{value}"
        for i, value in enumerate(values)
    ]
    path = tmp_path / f"{column}.csv"
    path.write_text("\n".join([f"time,{column}", *lines]) + "\n")
    return path


def test_series_of_both_kinds(tmp_path: Path) -> None:
    trace = hand.write(tmp_path / "t")
    prices, carbon = series(tmp_path, [0.5, 0.1], PRICE), series(tmp_path, [250, 900])
    arguments = ("--price", f"{prices}:SEK", "--carbon", carbon, "--format", "json")
    factors = json.loads(run(trace, *arguments).output)["impact"]["factors"]
    assert (factors["price_per_kwh"], factors["currency"]) == (0.5, "SEK")
    assert factors["i_gco2e_per_kwh"] == 250
    assert factors["i_source"] == f"mean of {carbon.name} over the trace, weighted by its energy"


def test_a_series_that_does_not_cover_the_trace(tmp_path: Path) -> None:
    later = hand.write(tmp_path / "t", meta={"realtime_offset_ns": 7_200 * 10**9})
    assert "does not cover" in error(later, "--carbon", series(tmp_path, [1, 2]))
    never = hand.write(tmp_path / "u", meta={"realtime_offset_ns": None})
    assert "when it was recorded" in error(never, "--carbon", series(tmp_path, [1, 2]))


LINE = "2026-01-01T0{}:00:00Z,{}\n"
GOOD = f"time,{CARBON}\n" + "".join(LINE.format(hour, 300) for hour in range(3))


@pytest.mark.parametrize("width", [60, 120])
def test_the_table_fits_its_width_and_adds_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    lines = run(hand.write(tmp_path / "t"), *ALL).output.splitlines()
    assert max(map(cell_len, lines)) <= width
    words = " ".join(" ".join(lines).split())
    assert "325 nEUR in all: 0.3000 EUR/kWh (constant)" in words
    assert "SCI = (E·I + M) per R, R = 1 call: I = 380.0 g/kWh (constant), M =" in words
    assert "PUE 1.3" in words
    if width >= 120:
        end = next(line.index("cost nEUR") for line in lines if "cost nEUR" in line) + 9
        rules = [i for i, line in enumerate(lines) if line.startswith("────")]
        figures = [line[:end].split()[-1] for line in lines[rules[0] + 1 : rules[-1] + 2]]
        known = [float(one) for one in figures if one.replace(".", "").isdigit()]
        assert math.fsum(known[:-1]) == pytest.approx(known[-1], abs=1e-9)


def test_without_energy_calls_or_factors_there_are_unknowns(tmp_path: Path) -> None:
    trace = hand.write(tmp_path / "t", energy=[])
    rows = json.loads(run(trace, *ALL, "--format", "json").output)["rows"]
    assert rows[0]["impact"]["cost"] is None
    assert run(trace, *ALL, "--format", "csv").exit_code == 0
    assert f"{fmt.UNKNOWN} in all" in run(trace, *ALL).output
    nothing = impact(0, (0, 0), 0, 0, Factors(embodied=Embodied(5, "")))
    assert (nothing.cost, nothing.kwh.per_call, nothing.embodied_gco2e) == (None, None, 0.0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1: the header"),
        (GOOD.replace(CARBON, PRICE), "line 1: the header"),
        (f"time,{CARBON}\n" + LINE.format(0, 1), "fewer than two"),
        (GOOD + LINE.format(5, 1), "line 5: a gap of 10,800 s"),
        (GOOD + LINE.format(2, 1), "line 5: its time is not after"),
        (GOOD + LINE.format(3, -1), "line 5: gco2e_per_kwh is negative"),
        (GOOD + LINE.format(3, 1e5), "line 5: gco2e_per_kwh is absurd"),
        (GOOD + LINE.format(3, "nan"), "line 5: 'nan' is no number"),
        (GOOD + LINE.format(3, ""), "line 5: '' is no number"),
        (GOOD + LINE.format(3, "1,2"), "line 5: it must have two"),
        (GOOD + "2026-01-01T03:00:00,1\n", "line 5: '2026-01-01T03:00:00' has no"),
        (GOOD + "yesterday,1\n", "line 5: 'yesterday' is no time"),
        (GOOD + '"2026', "line 5: unexpected end"),
    ],
)
def test_a_bad_series_is_refused_by_its_line(text: str, message: str) -> None:
    with pytest.raises(QjouleError) as error:
        parse_series(text, CARBON, "grid.csv")
    assert str(error.value).startswith("grid.csv")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "arguments",
    [
        ("--price", "0.30"), ("--price", "-1/kWh"), ("--price", "nan/kWh"), ("--price", "1e9/kWh"),
        ("--price", "x/kWh"), ("--carbon", "-5"), ("--carbon", "1e9"), ("--carbon", "1x"),
        ("--carbon", "/no/such/file"), ("--price", "/no/such/file:EUR"), ("--carbon", ""),
        ("--embodied", "x"), ("--embodied", "-1"), ("--embodied", "1/d"), ("--embodied", "1e3"),
        ("--embodied", "99999999999"), ("--pue", "nan"), ("--price", "/"), ("--price", "٣/kWh"),
    ],
)  # fmt: skip
def test_invalid_factors_are_refused_in_one_line(
    tmp_path: Path, arguments: tuple[str, str]
) -> None:
    assert error(hand.write(tmp_path / "t"), *arguments)
    assert run(tmp_path / "t", "--pue", "0.9").exit_code == 2


def test_a_factor_that_changes_is_weighted_by_energy(tmp_path: Path) -> None:
    steps = Steps(np.array([0, HOUR_NS]), np.array([100.0, 500.0]), HOUR_NS)
    bounds = np.array([0, HOUR_NS, 2 * HOUR_NS])
    assert mean_factor(steps, bounds, np.array([3.0, 1.0])) == pytest.approx(200)
    assert mean_factor(steps, bounds, np.array([0.0, 0.0])) == pytest.approx(300)
    assert steps.at(np.array([HOUR_NS - 1, HOUR_NS])).tolist() == [100.0, 500.0]
    traces = [
        hand.write(tmp_path / name, meta={"host": name, "realtime_offset_ns": i * HOUR_NS})
        for i, name in enumerate("ab")
    ]
    arguments = ("--carbon", series(tmp_path, [100, 300]), "--embodied", "36/h", "--format", "json")
    factors = json.loads(run(*traces, *arguments).output)["impact"]["factors"]
    assert factors["i_gco2e_per_kwh"] == pytest.approx(200)
    assert factors["m_gco2e"] == pytest.approx(0.0008)


energies = st.integers(0, 10**18)
rates = st.floats(0, 1e4)


def _factors(pue: float, price: float, carbon: float, grams: float) -> Factors:
    return Factors(pue, Factor(price, ""), "EUR", Factor(carbon, ""), Embodied(grams, ""))


def _values(found: Impact) -> list[float]:
    assert found.cost is not None
    assert found.gco2e is not None
    return [found.kwh.value, found.cost.value, found.gco2e.value, *found.cost.ci95]


factors = st.builds(_factors, st.floats(1, 10), rates, rates, rates)


@given(st.lists(energies, min_size=1, max_size=20), factors)
def test_rows_add_up(parts: list[int], given_factors: Factors) -> None:
    whole = sum(parts)
    rows = [impact(part, (part / 2, part), 1, whole, given_factors) for part in parts]
    total = impact(whole, (whole / 2, whole), 1, whole, given_factors)
    for column, value in zip(zip(*map(_values, rows), strict=True), _values(total), strict=True):
        assert math.fsum(column) == pytest.approx(value, rel=1e-9, abs=1e-300)


@given(energies, st.integers(1, 1000), factors, st.floats(0.1, 10))
def test_twice_the_energy_or_the_factor_is_twice_the_impact(
    energy: int, calls: int, given_factors: Factors, times: float
) -> None:
    assert given_factors.price
    assert given_factors.carbon
    assert given_factors.embodied
    plain = impact(energy, (0, 2.0 * energy), calls, 10**18, given_factors)
    more = impact(energy * times, (0, 2.0 * energy * times), calls, 10**18, given_factors)
    dearer = _factors(
        given_factors.pue,
        given_factors.price.per_kwh * times,
        given_factors.carbon.per_kwh * times,
        given_factors.embodied.grams * times,
    )
    scaled = impact(energy, (0, 2.0 * energy), calls, 10**18, dearer)
    assert plain.cost and more.cost and scaled.cost and plain.gco2e and scaled.gco2e
    assert more.cost.value == pytest.approx(plain.cost.value * times)
    assert scaled.cost.value == pytest.approx(plain.cost.value * times)
    assert scaled.gco2e.value == pytest.approx(plain.gco2e.value * times)
    assert plain.gco2e.per_call == pytest.approx(plain.gco2e.value / calls)
