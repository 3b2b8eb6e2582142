# SPDX-License-Identifier: Apache-2.0
"""Joules as kWh, money and carbon: known answers, laws, outputs, and refused input."""

from __future__ import annotations

import csv
import io
import math
import os
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import attribute_trace as hand
from cli_runner import invoke, printed_json
from qjoule.commands.attribute import command
from qjoule.errors import QjouleError, UsageError
from qjoule.model.impact import (
    CARBON,
    PRICE,
    Embodied,
    Factor,
    Factors,
    Impact,
    Steps,
    impact,
    mean_factor,
    parse_series,
)

HOUR_NS = 3_600 * 10**9
ALL = ("--price", "0.30/kWh:EUR", "--carbon", "380", "--pue", "1.3", "--embodied", "36/h")


run = partial(invoke, command)
document = partial(printed_json, command, "--format", "json")


def error(*arguments: object) -> str:
    exception = run(*arguments).exception
    assert isinstance(exception, (QjouleError, UsageError))
    assert "\n" not in str(exception)
    return str(exception)


def factors_of(pue: float, price: float, carbon: float, grams: float) -> Factors:
    return Factors(pue, Factor(price, ""), "EUR", Factor(carbon, ""), Embodied(grams, ""))


def test_a_kilowatt_hour_by_hand() -> None:
    factors = factors_of(1.5, 0.2, 400, 100)
    of_row = impact(3.6e15, (1.8e15, 7.2e15), 1000, int(7.2e15), factors)
    assert of_row.kwh.value == pytest.approx(1.5)
    assert of_row.cost is not None
    assert of_row.gco2e is not None
    assert (of_row.cost.value, *of_row.cost.ci95) == pytest.approx((0.3, 0.15, 0.6))
    assert (of_row.operational_gco2e, of_row.embodied_gco2e) == pytest.approx((600, 50))
    assert of_row.gco2e.per_call == pytest.approx(0.65), "SCI = (1.5 * 400 + 50) / 1000"
    assert of_row.gco2e.per_call_ci95 == pytest.approx((0.325, 1.3))


def values(of: Impact) -> list[float]:
    assert of.cost is not None
    assert of.gco2e is not None
    return [of.kwh.value, of.cost.value, of.gco2e.value, *of.cost.ci95]


ENERGY, RATE = st.integers(0, 10**18), st.floats(0, 1e4)


@given(
    st.lists(ENERGY, min_size=1, max_size=20),
    st.tuples(st.floats(1, 10), RATE, RATE, RATE),
    st.floats(0.1, 9),
)
def test_impacts_of_rows_add_up_and_scale_with_energy_and_factors(
    parts: list[int], rates: tuple[float, float, float, float], times: float
) -> None:
    total_nj, (pue, price, carbon, grams) = sum(parts), rates
    factors = factors_of(pue, price, carbon, grams)
    rows = [values(impact(part, (part / 2, part), 1, total_nj, factors)) for part in parts]
    total = impact(total_nj, (total_nj / 2, total_nj), 1, total_nj, factors)
    sums = [math.fsum(column) for column in zip(*rows, strict=True)]
    assert sums == pytest.approx(values(total), rel=1e-9, abs=1e-300)
    dearer = factors_of(pue, price * times, carbon * times, grams * times)
    scaled = values(impact(total_nj, (total_nj / 2, total_nj), 1, total_nj, dearer))
    assert scaled[1:] == pytest.approx([value * times for value in values(total)[1:]])
    ends = (times * total_nj / 2, times * total_nj)
    more = values(impact(times * total_nj, ends, 1, 2**63, factors_of(pue, price, carbon, 0)))
    once = values(
        impact(total_nj, (total_nj / 2, total_nj), 1, 2**63, factors_of(pue, price, carbon, 0))
    )
    assert more == pytest.approx([value * times for value in once])


def test_every_output_has_the_impact_and_its_factors(tmp_path: Path) -> None:
    trace = hand.write(tmp_path / "t")
    printed = document(trace, *ALL)
    factors = printed["impact"]["factors"]
    assert (factors["price_per_kwh"], factors["currency"], factors["pue"]) == (0.3, "EUR", 1.3)
    assert (factors["i_gco2e_per_kwh"], factors["r"]) == (380, "1 call")
    assert factors["m_gco2e"] == pytest.approx(0.0004)
    row = printed["rows"][0]
    kwh = row["energy_j"] / 3.6e6 * 1.3
    assert row["impact"]["kwh"] == pytest.approx(kwh)
    assert row["impact"]["cost_per_call"] == pytest.approx(kwh * 0.3 / row["calls"])
    ends = [end / 3.6e6 * 1.3 * 0.3 for end in row["energy_j_ci95"]]
    assert row["impact"]["cost_ci95"] == pytest.approx(ends)
    record, *_ = csv.DictReader(io.StringIO(run(trace, *ALL, "--format", "csv").output))
    assert float(record["cost"]) == pytest.approx(row["impact"]["cost"])
    assert record["currency"] == "EUR"
    path = tmp_path / "t.parquet"
    assert run(trace, *ALL, "--format", "parquet", "-o", path).exit_code == 0
    table = pq.read_table(path)
    assert table.column("gco2e")[0].as_py() == pytest.approx(row["impact"]["gco2e"])
    assert str(table.schema.field("i_gco2e_per_kwh").type) == "double"
    assert "impact" not in document(trace)
    assert "kwh" not in run(trace, "--format", "csv").output


def series(tmp_path: Path, rates: list[float]) -> Path:
    """One rate for each hour from 1970 on, in a time zone other than ours."""
    start = datetime(1970, 1, 1, tzinfo=UTC).astimezone(tz=None)
    lines = [f"{(start + timedelta(hours=i)).isoformat()},{rate}" for i, rate in enumerate(rates)]
    path = tmp_path / "carbon.csv"
    path.write_text("\n".join([f"time,{CARBON}", *lines]) + "\n")
    return path


def test_a_series_gives_the_mean_over_the_trace_weighted_by_energy(tmp_path: Path) -> None:
    steps = Steps(np.array([0, HOUR_NS]), np.array([100.0, 500.0]), HOUR_NS)
    bounds = np.array([0, HOUR_NS, 2 * HOUR_NS])
    assert mean_factor(steps, bounds, np.array([3.0, 1.0])) == pytest.approx(200)
    assert mean_factor(steps, bounds, np.array([0.0, 0.0])) == pytest.approx(300)
    a, b = (
        hand.write(tmp_path / name, meta={"host": name, "realtime_offset_ns": i * HOUR_NS})
        for i, name in enumerate("ab")
    )
    carbon = series(tmp_path, [100, 300])
    factors = document(a, b, "--carbon", carbon, "--embodied", "36/h")["impact"]["factors"]
    assert factors["i_gco2e_per_kwh"] == pytest.approx(200)
    assert factors["m_gco2e"] == pytest.approx(0.0008)
    later = hand.write(tmp_path / "later", meta={"realtime_offset_ns": 2 * HOUR_NS})
    assert "does not cover" in error(later, "--carbon", carbon)


LINE = "2026-01-01T0{}:00:00Z,{}\n"
GOOD = f"time,{CARBON}\n" + "".join(LINE.format(hour, 300) for hour in range(3))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (GOOD.replace(CARBON, PRICE), "line 1: the header"),
        (f"time,{CARBON}\n" + LINE.format(0, 1), "fewer than two"),
        (GOOD + LINE.format(5, 1), "line 5: a gap of 10,800 s"),
        (GOOD + LINE.format(2, 1), "line 5: its time is not after"),
        (GOOD + LINE.format(3, -1), "line 5: gco2e_per_kwh is negative"),
        (GOOD + LINE.format(3, "nan"), "line 5: 'nan' is no number"),
        (GOOD + LINE.format(3, "1,2"), "line 5: it must have two"),
        (GOOD + "yesterday,1\n", "line 5: 'yesterday' is no time"),
    ],
)
def test_a_bad_series_is_refused_by_its_line(text: str, message: str) -> None:
    with pytest.raises(QjouleError) as refused:
        parse_series(text, CARBON, "grid.csv")
    assert str(refused.value).startswith("grid.csv")
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("option", "values"),
    [
        ("--price", ("0.30", "nan/kWh", "1e9/kWh", "٣/kWh", "/none:EUR")),
        ("--carbon", ("-5", "1x", "/no/such/file")),
        ("--embodied", ("x", "1/d", "1e3")),
        ("--pue", ("nan", "0.9")),
    ],
)
def test_invalid_factors_are_refused(tmp_path: Path, option: str, values: tuple[str, ...]) -> None:
    trace = hand.write(tmp_path / "t")
    for value in values:
        with suppress(UnicodeEncodeError):  # a locale without a character has no such argument
            os.fsencode(value)
            assert run(trace, option, value).exit_code == 2 or error(trace, option, value)
