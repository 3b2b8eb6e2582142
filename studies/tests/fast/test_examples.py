# SPDX-License-Identifier: Apache-2.0
"""Examples: the sources' printed numbers recomputed, and pairs of forms of the demo."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from rich.cells import cell_len

from pairs import NamedPair, render
from published import gps_up
from qjoule.model.gpsup import Form, compare

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_every_pair_of_the_thesis_saves_energy_by_its_own_watts_and_seconds() -> None:
    table = gps_up.recomputed()
    pairs = table[~table["table"].str.startswith("8") & table["speedup_here"].notna()]
    assert len(pairs) == 15
    for name in gps_up.RATIOS:
        assert (pairs[f"{name}_here"] / pairs[name]).between(0.999, 1.001).all()
    assert (pairs["greenup_here"] > 1).all()
    more_power = pairs[pairs["powerup_here"] > 1]
    assert list(more_power["table"]) == ["6-6"], "two servers draw more than one"


def test_it_is_printed() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "published"],
        cwd=EXAMPLES,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "Table 8-2, MongoDB: energy_j: printed 775.93, is 8974.5" in done.stdout


def form(joules: float | None, latency_ns: float | None) -> Form:
    latency = (latency_ns * 0.98, latency_ns * 1.02) if latency_ns else None
    spread = (joules * 0.9, joules * 1.1) if joules else None
    return Form("f", "SELECT ?", 10, joules, spread, latency_ns, latency)


def words(base: Form, new: Form) -> str:
    pair = NamedPair("count", "with an index", "without an index", compare(base, new))
    return render([pair], "estimated", width=120)


def test_figures_and_intervals() -> None:
    text = words(form(8.0, 6e6), form(2.0, 1e6))
    figures, intervals = text.splitlines()[2:4]
    assert text.splitlines()[0].split()[-4:] == ["speedup", "powerup", "greenup", "verdict"]
    assert figures.split()[:4] == ["count", "6.00", "1.50", "4.00"]
    assert "with an index over without an index" in intervals
    assert intervals.endswith("5.8…6.2  1.2…1.9  3.3…4.9")
    assert "green: faster, more power" in figures
    assert "Energy: estimated" in text
    assert "green: faster, power not separable" in words(form(8.0, 4.2e6), form(2.0, 1e6))


@pytest.mark.parametrize("width", [60, 120])
def test_hostile_names_fit_every_terminal(width: int) -> None:
    comparison = compare(form(8.0, 6e6), form(2.0, 1e6))
    hostile = NamedPair("\x1b[2J[red]" + "x" * 300, "表" * 90, "\n\r", comparison)
    text = render([hostile], "estimated", heading="statement", new="B", width=width)
    assert "How many times faster B is" in " ".join(text.split())
    assert "\x1b" not in text
    assert "[red]" in text
    assert all(cell_len(line) <= width for line in text.splitlines())
