# SPDX-License-Identifier: Apache-2.0
"""The sources' printed numbers, recomputed: which are consistent, and which are misprints."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from published import counters, factorial, gps_up, operators, proportionality

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
