# SPDX-License-Identifier: Apache-2.0
"""Pairs of forms: the error of a common total, and the printed result."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from qjoule.model.gpsup import Form, Interval, compare
from qjoule.model.same_total import without_total_error
from qjoule.reporters import format as fmt
from qjoule.reporters.pairs import NamedPair, render


def form(joules: float | None, latency_ns: float | None, ci95: Interval | None = None) -> Form:
    latency = (latency_ns * 0.98, latency_ns * 1.02) if latency_ns else None
    spread = ci95 or ((joules * 0.9, joules * 1.1) if joules else None)
    return Form("f", "SELECT ?", 10, joules, spread, latency_ns, latency)


def pair(base: Form, new: Form, title: str = "count") -> NamedPair:
    return NamedPair(title, "with an index", "without an index", compare(base, new))


def words(*pairs: NamedPair, width: int = 120) -> str:
    return render(pairs, "estimated", width=width)


def test_a_common_error_is_taken_out_in_quadrature() -> None:
    found = without_total_error(form(10.0, 1.0, (5.0, 15.0)), 0.4)
    assert found.j_per_call_ci95 == pytest.approx((7.0, 13.0))


def test_linear_errors_are_never_taken_out() -> None:
    """Half width 5, of which 4 belong to the total, then 1 of loss on either side."""
    low, high = without_total_error(form(10.0, 1.0, (4.0, 16.0)), 0.4).j_per_call_ci95 or (0, 0)
    assert low <= 10 - 3 - 1
    assert high >= 10 + 3 + 1


def test_an_end_that_was_cut_off_at_zero_stays() -> None:
    found = without_total_error(form(10.0, 1.0, (0.0, 26.0)), 0.5)
    assert found.j_per_call_ci95 == pytest.approx((0.0, 10 + (16**2 - 5**2) ** 0.5))


@pytest.mark.parametrize("unchanged", [form(None, 1.0), form(0.0, 1.0), form(3.0, 1.0)])
def test_nothing_is_invented(unchanged: Form) -> None:
    assert without_total_error(unchanged, 0.0) == unchanged
    assert without_total_error(form(None, 1.0), 0.5).j_per_call_ci95 is None


def test_figures_and_intervals() -> None:
    text = words(pair(form(8.0, 6e6), form(2.0, 1e6)))
    figures, intervals = text.splitlines()[2:4]
    assert figures.split()[:4] == ["count", "6.00", "1.50", "4.00"]
    assert "with an index over without an index" in intervals
    assert intervals.endswith("5.8…6.2  1.2…1.9  3.3…4.9")
    assert "green: faster, more power" in figures
    assert "Energy: estimated" in text


def test_power_whose_interval_holds_one_is_not_told() -> None:
    text = words(pair(form(8.0, 4.2e6), form(2.0, 1e6)))
    assert "green: faster, power not separable" in text


def test_an_unknown_is_a_dash_and_an_open_end_infinite() -> None:
    unknown = pair(form(None, 5e6), form(2.0, None), "unknown").comparison
    line = words(NamedPair("unknown", "b", "a", unknown)).splitlines()[2]
    assert line.split() == ["unknown", *[fmt.UNKNOWN] * 3, "unknown"]
    assert "…∞" in words(pair(form(8.0, 6e6), form(2.0, 1e6, (0.0, 5.0))))


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_hostile_names_fit_every_terminal(width: int) -> None:
    comparison = compare(form(8.0, 6e6), form(2.0, 1e6))
    hostile = NamedPair("\x1b[2J[red]" + "x" * 300, "表" * 90, "\n\r", comparison)
    text = words(hostile, width=width)
    assert "\x1b" not in text
    assert "[red]" in text
    assert all(cell_len(line) <= width for line in text.splitlines())
