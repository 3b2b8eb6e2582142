# SPDX-License-Identifier: Apache-2.0
"""`qjoule bench proportionality`: text, JSON and figures of tables of runs."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from click.testing import CliRunner, Result

from qjoule.commands.bench_proportionality import command
from qjoule.errors import QjouleError
from qjoule.reporters import format as fmt
from qjoule.reporters.proportionality import render, to_json
from qjoule.studies.pareto import frontier
from qjoule.studies.proportionality import proportionality
from qjoule.studies.runs import FILE, read_runs

LEVELS = (0, 50, 100)
TWO_SERVERS = [{"level": level, "server": server} for level in LEVELS for server in "ab"]


def study(directory: Path, factors: Iterable[dict[str, Any]], grade: str = "measured") -> Path:
    """Three runs of each. Power and speed follow the level; server b needs half the power."""
    lines = []
    for each in factors:
        level, half = each.get("level", 100), each.get("server") == "b"
        for run in range(3):
            row = {
                "status": "done",
                "factors": each,
                "throughput": level * (9.0 if half else 10.0) * (1 + run / 1e4),
                "power_w": (50 + level / 2) / (2 if half else 1),
                "j_per_operation": 0.01 if level else None,
                "grade": grade,
                "idle_policy": "separate",
                "energy_source": "rapl",
                "machine": "host",
            }
            lines.append(json.dumps(row) + "\n")
    (directory / FILE).write_text("".join(lines))
    return directory


def called(*arguments: object) -> Result:
    return CliRunner().invoke(command, list(map(str, arguments)), catch_exceptions=False)


def rendered(directory: Path, width: int = 110) -> str:
    runs = read_runs(directory)
    return render(proportionality(runs), frontier(runs), width=width)


def test_levels_of_two_servers(tmp_path: Path) -> None:
    found = json.loads(called(study(tmp_path, TWO_SERVERS), "--json").output)
    assert found["schema"] == "qjoule.proportionality/1"
    one, other = found["proportionality"]
    assert (one["configuration"], other["configuration"]) == ({"server": "a"}, {"server": "b"})
    assert one["levels"][0]["machine_j_per_operation"]["value"] is None
    assert one["idle_share"]["value"] == pytest.approx(0.5)
    assert len(found["frontier"]["configurations"]) == 2  # at 100 %
    assert found["frontier"]["configurations"][0]["factors"] == {"level": 100, "server": "a"}
    assert found["frontier"]["verdict"]["answer"] == "no"
    assert to_json([], None)["frontier"] is None


def test_the_text_names_source_verdict_and_what_is_unknown(tmp_path: Path) -> None:
    text = rendered(study(tmp_path, TWO_SERVERS[::2]))
    assert "Energy: measured, from rapl of host; idle policy separate." in text
    assert "Was the fastest configuration the most efficient one?\nYes: level=100" in text
    assert "idle share of the peak's power  50.0 %" in text
    runs = read_runs(tmp_path)
    text = render(proportionality(runs[runs["factor:level"] != 0]), None, width=110)
    assert f"proportionality index           {fmt.UNKNOWN}" in text
    assert "unknown: no run at 0 %" in text


@pytest.mark.parametrize(
    ("grade", "words"),
    [
        ("estimated", "says nothing of how this machine's power follows its load"),
        ("simulated", "nothing of this is about a machine"),
        ("unheard", "is not known here"),
    ],
)
def test_what_a_grade_forbids_is_said(tmp_path: Path, grade: str, words: str) -> None:
    text = " ".join(rendered(study(tmp_path, TWO_SERVERS, grade)).split())
    assert grade in text
    assert words in text


def test_hostile_names_fit_and_stay_text(tmp_path: Path) -> None:
    factors = [{"level": level, "server": "\x1b[31mred\u202e\n[bold]"} for level in LEVELS]
    text = rendered(study(tmp_path, factors), 60)
    assert not set(text) & {"\x1b", "\u202e"}
    assert "[bold]" in text
    assert max(map(len, text.splitlines())) <= 60


@pytest.mark.parametrize("made", [True, False], ids=["no factor", "no study"])
def test_nothing_to_compare(tmp_path: Path, made: bool) -> None:
    if made:
        study(tmp_path, [{}])
    with pytest.raises(QjouleError, match="no factor" if made else "holds no study"):
        called(tmp_path)


def test_figures_and_their_data(tmp_path: Path) -> None:
    figures = tmp_path / "figures"
    assert called(study(tmp_path, TWO_SERVERS), "--plots", figures).exit_code == 0
    names = ("power-against-load", "efficiency-against-performance")
    assert sorted(path.name for path in figures.iterdir()) == sorted(
        f"{name}.{kind}" for name in names for kind in ("svg", "png", "csv")
    )
    power = pd.read_csv(figures / "power-against-load.csv").set_index(
        ["configuration", "load_percent"]
    )["power_w"]
    assert power["server=a", 50] == pytest.approx(75)
    assert power["server=b", 0] == pytest.approx(25)
    front = pd.read_csv(figures / "efficiency-against-performance.csv")
    assert list(front["on_front"]) == [True, True]
    assert "grade measured, idle separate" in (figures / f"{names[0]}.svg").read_text()
