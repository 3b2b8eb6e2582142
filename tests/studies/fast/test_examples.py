# SPDX-License-Identifier: Apache-2.0
"""Examples: the sources' printed numbers recomputed, and pairs of forms of the demo."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from rich.cells import cell_len

from published import counters, factorial, gps_up, operators, proportionality
from qjoule.model.gpsup import Form, Interval, compare
from qjoule.model.same_total import without_total_error
from qjoule.reporters.pairs import NamedPair, render
from qjoule.servers import registry
from qjoule.servers.shapes import fingerprint
from qjoule.studies.twitter.data import Sizes
from qjoule.studies.twitter.sql_pairs import query_pairs

EXAMPLES = Path(__file__).parents[3] / "examples"


def test_every_pair_of_the_thesis_saves_energy_by_its_own_watts_and_seconds() -> None:
    found = gps_up.recomputed()
    pairs = found[~found["table"].str.startswith("8") & found["speedup_here"].notna()]
    assert len(pairs) == 15
    for name in gps_up.RATIOS:
        assert (pairs[f"{name}_here"] / pairs[name]).between(0.999, 1.001).all()
    assert (pairs["greenup_here"] > 1).all()
    more_power = pairs[pairs["powerup_here"] > 1]
    assert list(more_power["table"]) == ["6-6"], "two servers draw more than one"


def test_f_values_imply_more_replications_than_the_text_says() -> None:
    found = factorial.recomputed().set_index(["response", "operations"])["replications"]
    assert found.round().to_dict() == {
        ("time", 1000): 83,
        ("time", 10000): 77,
        ("time", 100000): 75,
        ("energy", 1000): 84,
        ("energy", 10000): 75,
        ("energy", 100000): 75,
    }
    assert len(list(factorial.misprints())) == 3


def test_the_power_breakdown_adds_up_and_partial_load_needs_power() -> None:
    assert list(operators.misprints()) == []
    assert len(operators.recomputed()) == 6
    power = proportionality.recomputed().set_index("load_percent")["power_percent"]
    assert power.is_monotonic_decreasing
    assert proportionality.idle_percent() == pytest.approx(70.3, abs=0.1)
    assert [one.place for one in proportionality.misprints()] == ["load 90.0 %"]
    assert counters.kernel_share_percent() == pytest.approx(8.4, abs=0.1)


def test_it_is_printed() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "published"],
        cwd=EXAMPLES,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "Table 8-2, MongoDB: energy_j: printed 775.93, is 8974.5" in done.stdout


def form(joules: float | None, latency_ns: float | None, ci95: Interval | None = None) -> Form:
    latency = (latency_ns * 0.98, latency_ns * 1.02) if latency_ns else None
    spread = ci95 or ((joules * 0.9, joules * 1.1) if joules else None)
    return Form("f", "SELECT ?", 10, joules, spread, latency_ns, latency)


def words(base: Form, new: Form) -> str:
    pair = NamedPair("count", "with an index", "without an index", compare(base, new))
    return render([pair], "estimated", width=120)


def test_a_common_error_is_taken_out_in_quadrature() -> None:
    found = without_total_error(form(10.0, 1.0, (5.0, 15.0)), 0.4)
    assert found.j_per_call_ci95 == pytest.approx((7.0, 13.0))
    cut_off_at_zero = without_total_error(form(10.0, 1.0, (0.0, 26.0)), 0.5)
    assert cut_off_at_zero.j_per_call_ci95 == pytest.approx((0.0, 10 + (16**2 - 5**2) ** 0.5))


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


def test_every_form_has_a_shape_that_does_not_depend_on_literals() -> None:
    """The report finds a form's row by the fingerprint of its statement with other literals."""
    forms = [form for pair in query_pairs(Sizes(1_000)) for form in pair.forms]
    assert len({_fingerprint(form.sql) for form in forms}) == len(forms) == 10
    for pair in query_pairs(Sizes(1_000)):
        for form in pair.forms:
            sent = form.sql % tuple(repr(value) for value in pair.literals(3))
            assert fingerprint(
                sent.encode(), registry.dialect("mysql")
            ).fingerprint == _fingerprint(form.sql)


def _fingerprint(sql: str) -> str:
    return fingerprint(sql.replace("%s", "1").encode(), registry.dialect("mysql")).fingerprint
