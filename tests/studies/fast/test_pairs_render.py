# SPDX-License-Identifier: Apache-2.0
"""The table of pairs: ratios with their intervals, unknowns, and the verdict on their forms."""

from __future__ import annotations

from rich.cells import cell_len

from qjoule.model.gpsup import Form, compare
from qjoule.reporters import format as fmt
from qjoule.reporters.pairs import NamedPair, render


def form(joules: float | None, latency_ns: float | None) -> Form:
    ends = None if joules is None else (0.9 * joules, 1.1 * joules)
    return Form("f", "", 1, joules, ends, latency_ns)


def test_ratios_intervals_and_what_is_unknown() -> None:
    known = NamedPair("count", "index", "scan", compare(form(6.0, 8e6), form(2.0, 2e6)))
    unknown = NamedPair("sum", "b", "a", compare(form(None, 8e6), form(2.0, None)))
    lines = render([known, unknown], "measured", width=120).splitlines()
    assert lines[0].split()[-4:] == ["speedup", "powerup", "greenup", "verdict"]
    assert lines[2].split()[:4] == ["count", "4.00", "1.33", "3.00"]
    assert "index over scan" in lines[3]
    assert "2.5…3.7" in lines[3], "5.4 / 2.2 to 6.6 / 1.8"
    assert lines[5].split()[:4] == ["sum", *3 * [fmt.UNKNOWN]]
    assert any("the better form is (speedup)" in line for line in lines)


def test_the_two_sides_can_be_called_otherwise_and_text_is_harmless() -> None:
    evil = NamedPair("\x1b[2J[red]x" * 40, "B", "A", compare(form(1.0, 1e6), form(1.0, 1e6)))
    text = render([evil], "measured", heading="statement", new="B", width=60)
    assert "How many times faster B is" in " ".join(text.split())
    assert "\x1b" not in text
    assert all(cell_len(line) <= 60 for line in text.splitlines())
