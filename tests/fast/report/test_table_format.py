# SPDX-License-Identifier: Apache-2.0
"""Figures: units, digits, intervals, unknowns; columns of energy that add up as printed."""

from __future__ import annotations

import math
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qjoule.reporters import format as fmt

anything = st.floats(allow_nan=True, allow_infinity=True) | st.none()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0 J"),
        (1.5e-6, "1.50 µJ"),
        (0.0123, "12.3 mJ"),
        (0.9996, "1.00 J"),
        (999.4, "999 J"),
        (12_345.0, "12.3 kJ"),
        (-0.002, "-2.00 mJ"),
        (None, fmt.UNKNOWN),
        (math.nan, fmt.UNKNOWN),
        (math.inf, fmt.UNKNOWN),
    ],
)
def test_joules(value: float | None, text: str) -> None:
    assert fmt.joules(value) == text


@pytest.mark.parametrize(
    ("value", "ci", "text"),
    [
        (1.234e-3, (1.194e-3, 1.274e-3), "1.23 ± 0.04 mJ"),
        (1.2, (1.1, 1.5), "1.20 +0.30 \N{MINUS SIGN}0.10 J"),
        (1.0, (1.0, 1.0), "1.00 ± 0 J"),
        (123.456, (123.416, 123.496), "123.46 ± 0.04 J"),
        (2.0, (-1.0, 30.0), "2.00 +28.00 \N{MINUS SIGN}3.00 J"),
        (0.0, (0.0, 0.004), "0.0 +4.0 \N{MINUS SIGN}0 mJ"),
        (1.0, None, f"1.00 ± {fmt.UNKNOWN} J"),
        (1.0, (math.nan, 2.0), f"1.00 ± {fmt.UNKNOWN} J"),
        (math.nan, (0.0, 1.0), fmt.UNKNOWN),
    ],
)
def test_interval(value: float, ci: tuple[float, float] | None, text: str) -> None:
    assert fmt.with_interval(value, ci) == text


@given(
    st.floats(1e-9, 1e9),
    st.floats(0, 2),
)
def test_a_printed_interval_is_never_narrower_nor_zero(value: float, relative: float) -> None:
    half = value * relative
    text = fmt.with_interval(value, (value - half, value + half))
    figure, _, rest = text.partition(" ± ")
    width, unit = rest.split(" ")
    scale = {"n": 1e-9, "µ": 1e-6, "m": 1e-3, "J": 1, "k": 1e3, "M": 1e6, "G": 1e9}[unit[0]]
    assert float(width) * scale >= half * (1 - 1e-6) - value * 1e-6
    assert float(figure) * scale == pytest.approx(value, rel=0.006)


@given(anything)
def test_nothing_prints_nan_or_an_exponent(value: float | None) -> None:
    for show in (
        fmt.joules,
        fmt.watts,
        fmt.milliseconds,
        fmt.duration,
        fmt.count,
        fmt.rate,
        fmt.share,
        fmt.significant,
    ):
        text = show(value)
        assert text
        assert "nan" not in text.lower()
        assert "inf" not in text.lower()
        assert "e+" not in text
        if value is None or not math.isfinite(value):
            assert text == fmt.UNKNOWN


@pytest.mark.parametrize(
    ("value_ns", "text"),
    [
        (840_000, "840 µs"),
        (1.234e6, "1.23 ms"),
        (12.34e9, "12.3 s"),
        (723e9, "12 min 03 s"),
        (11_100e9, "3 h 05 min"),
    ],
)
def test_duration(value_ns: float, text: str) -> None:
    assert fmt.duration(value_ns) == text


energies = st.integers(-(10**9), 10**16) | st.just(0)


@given(st.lists(energies, min_size=1, max_size=40))
def test_printed_energies_add_up_to_the_printed_total(parts_nj: list[int]) -> None:
    column = fmt.energy_column(parts_nj)
    figures, total = list(map(_decimal, column.figures)), _decimal(column.total)
    assert sum(figures) == total
    exponent = {"n": -9, "µ": -6, "m": -3, "J": 0, "k": 3, "M": 6, "G": 9}[column.unit[0]]
    quantum_nj = Decimal(10) ** (exponent + 9) * (
        Decimal(1).scaleb(total.as_tuple().exponent)  # type: ignore[arg-type]
    )
    for part_nj, figure in zip(parts_nj, figures, strict=True):
        assert abs(figure * Decimal(10) ** (exponent + 9) - part_nj) < quantum_nj
        if part_nj == 0:
            assert figure == 0


def _decimal(figure: str) -> Decimal:
    return Decimal(figure.replace(",", ""))


@pytest.mark.parametrize(
    ("parts_nj", "unit", "figures"),
    [
        ((14_105 * 10**9, 2 * 10**6), "J", ("14,105.000", "0.002")),
        ((999_998 * 10**9, 4 * 10**8), "J", ("999,998.000", "0.400")),
        ((2_000_000 * 10**9, 3 * 10**9), "kJ", ("2,000.000", "0.003")),
        ((999 * 10**9, 4 * 10**6), "J", ("999.000", "0.004")),
        ((5 * 10**8, 10**3), "mJ", ("500.000", "0.001")),
        ((-1_234_567 * 10**6, 0), "J", ("-1,234.567", "0.000")),
    ],
)
def test_small_parts_are_seen_beside_a_large_total(
    parts_nj: tuple[int, ...], unit: str, figures: tuple[str, ...]
) -> None:
    column = fmt.energy_column(parts_nj)
    assert (column.unit, column.figures) == (unit, figures)


@given(st.text())
def test_one_line_is_one_line_without_controls(text: str) -> None:
    shown = fmt.one_line(text)
    assert len(shown.splitlines()) <= 1
    assert not any(ord(c) < 32 or 127 <= ord(c) < 160 for c in shown)
