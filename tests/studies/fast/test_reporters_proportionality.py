# SPDX-License-Identifier: Apache-2.0
"""Proportionality and the Pareto front as text and JSON."""

from __future__ import annotations

import json

import pandas as pd
import pytest

from qjoule.reporters import format as fmt
from qjoule.reporters.proportionality import render, to_json
from qjoule.studies.pareto import frontier
from qjoule.studies.proportionality import proportionality


def table(grade: str = "measured", server: str = "a") -> pd.DataFrame:
    rows = [
        {
            "status": "done",
            "throughput": level * 10.0,
            "power_w": 50 + level / 2 + run,
            "j_per_operation": None,
            "grade": grade,
            "idle_policy": "separate",
            "energy_source": "rapl",
            "machine": "host",
            "factor:level": level,
            "factor:server": server,
        }
        for level in (0, 50, 100)
        for run in range(3)
    ]
    return pd.DataFrame(rows)


def shown(runs: pd.DataFrame, width: int = 110) -> str:
    return render(proportionality(runs), frontier(runs), width=width)


def test_text() -> None:
    text = shown(table())
    assert "Energy proportionality server=a" in text
    assert "Energy: measured, from rapl of host; idle policy separate." in text
    assert "Was the fastest configuration the most efficient one?\nYes: level=100" in text
    assert "idle share of the peak's power  50.5 %" in text
    assert "\x1b" not in text
    assert fmt.UNKNOWN in text  # attributed joules per operation are unknown


@pytest.mark.parametrize("grade", ["estimated", "simulated", "unheard"])
def test_what_a_grade_forbids_is_said(grade: str) -> None:
    text = " ".join(shown(table(grade)).split())
    assert grade in text
    words = {
        "estimated": "says nothing of how this machine's power follows its load",
        "simulated": "nothing of this is about a machine",
        "unheard": "is not known here",
    }
    assert words[grade] in text


def test_a_narrow_terminal() -> None:
    assert max(map(len, shown(table(), 60).splitlines())) <= 60


def test_hostile_names_stay_text() -> None:
    text = shown(table(server="\x1b[31mred\u202e\n[bold]"))
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "[bold]" in text


def test_json() -> None:
    runs = table()
    found = json.loads(json.dumps(to_json(proportionality(runs), frontier(runs)), allow_nan=False))
    assert found["schema"] == "qjoule.proportionality/1"
    (one,) = found["proportionality"]
    assert one["configuration"] == {"server": "a"}
    assert one["levels"][0]["machine_j_per_operation"]["value"] is None
    assert one["idle_share"]["value"] == pytest.approx(51 / 101)
    assert found["frontier"]["verdict"]["answer"] == "yes"
    assert found["frontier"]["configurations"][0]["factors"] == {"level": 100, "server": "a"}
    assert to_json([], None)["frontier"] is None


def test_unknown_figures_are_dashes() -> None:
    runs = table()
    text = render(proportionality(runs[runs["factor:level"] != 0]), None, width=110)
    assert f"proportionality index           {fmt.UNKNOWN}" in text
    assert "unknown: no run at 0 %" in text
