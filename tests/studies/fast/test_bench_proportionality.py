# SPDX-License-Identifier: Apache-2.0
"""`qjoule bench proportionality` on tables of runs."""

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
from qjoule.studies.runs import FILE


def study(directory: Path, factors: Iterable[dict[str, Any]]) -> Path:
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
                "grade": "measured",
                "idle_policy": "separate",
                "energy_source": "rapl",
                "machine": "host",
            }
            lines.append(json.dumps(row) + "\n")
    (directory / FILE).write_text("".join(lines))
    return directory


def called(*arguments: object) -> Result:
    return CliRunner().invoke(command, list(map(str, arguments)), catch_exceptions=False)


def test_levels_alone(tmp_path: Path) -> None:
    directory = study(tmp_path, ({"level": level} for level in (0, 50, 100)))
    shown = called(directory)
    assert shown.exit_code == 0
    assert "proportionality index           0.500" in shown.output
    assert "Efficiency against performance" not in shown.output


def test_levels_of_two_servers(tmp_path: Path) -> None:
    factors = ({"level": level, "server": server} for level in (0, 50, 100) for server in "ab")
    found = json.loads(called(study(tmp_path, factors), "--json").output)
    assert [each["configuration"] for each in found["proportionality"]] == [
        {"server": "a"},
        {"server": "b"},
    ]
    assert len(found["frontier"]["configurations"]) == 2  # at 100 %
    assert found["frontier"]["verdict"]["answer"] == "no"


def test_configurations_without_levels(tmp_path: Path) -> None:
    directory = study(tmp_path, ({"server": server} for server in "ab"))
    shown = called(directory)
    assert "Energy proportionality" not in shown.output
    assert "No: server=a was the fastest, and server=b did 80 % more operations per" in " ".join(
        shown.output.split()
    )
    attributed = json.loads(called(directory, "--json", "--energy", "attributed").output)
    assert attributed["frontier"]["energy"] == "attributed"


def test_nothing_to_compare(tmp_path: Path) -> None:
    with pytest.raises(QjouleError, match="no factor"):
        called(study(tmp_path, [{}]))


def test_no_study(tmp_path: Path) -> None:
    with pytest.raises(QjouleError, match="holds no study"):
        called(tmp_path)


def test_help_fits_80_columns() -> None:
    shown = CliRunner().invoke(command, ["--help"], terminal_width=80)
    assert shown.exit_code == 0
    assert max(map(len, shown.output.splitlines())) <= 80
    assert "Examples:" in shown.output


def test_figures_and_their_data(tmp_path: Path) -> None:
    factors = ({"level": level, "server": server} for level in (0, 50, 100) for server in "ab")
    figures = tmp_path / "figures"
    assert called(study(tmp_path, factors), "--plots", figures).exit_code == 0
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


def test_figures_that_cannot_be_written(tmp_path: Path) -> None:
    directory = study(tmp_path, ({"server": server} for server in "ab"))
    with pytest.raises(QjouleError, match="cannot write figures"):
        called(directory, "--plots", directory / FILE / "figures")
