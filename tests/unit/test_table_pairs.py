"""Pairs: ratios with intervals, unknowns, hostile names."""

from __future__ import annotations

from rich.cells import cell_len

from qjoule.model.gpsup import Form, compare
from qjoule.reporters import format as fmt
from qjoule.reporters.pairs import render


def form(joules: float | None, latency_ns: float | None) -> Form:
    ci = (joules * 0.9, joules * 1.1) if joules else None
    return Form("f", "SELECT ?", 10, joules, ci, latency_ns)


def test_ratios_are_base_over_new() -> None:
    text = render([("with an index", compare(form(8.0, 6e6), form(2.0, 1e6)))])
    assert "6.00" in text
    assert "4.00 [3.27, 4.89]" in text
    assert "1.50" in text
    assert "green: faster, more power" in text


def test_unknown_is_no_ratio() -> None:
    text = render([("unknown", compare(form(None, 5.0), form(2.0, None)))])
    assert text.splitlines()[1].split() == [
        "unknown",
        fmt.UNKNOWN,
        fmt.UNKNOWN,
        fmt.UNKNOWN,
        "unknown",
    ]


def test_hostile_names_and_narrow_terminals() -> None:
    pair = compare(form(8.0, 6e6), form(2.0, 1e6))
    for width in (40, 60, 80, 120):
        text = render([("\x1b[2J[red]" + "x" * 300, pair), ("表" * 90, pair)], width=width)
        assert "\x1b" not in text
        assert all(cell_len(line) <= width for line in text.splitlines())
    assert "[red]" in text
