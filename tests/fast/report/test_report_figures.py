# SPDX-License-Identifier: Apache-2.0
"""Every figure as a drawing and as data, which add up as the page does."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pandas as pd
import pytest
from click.testing import CliRunner

import attribute_trace as hand
from qjoule.commands.report import command
from qjoule.report.figures import KINDS
from qjoule.trace.meta import EnergyInfo

ATTACK = "=cmd|' /C calc'!A0 $\\frac{1}{0}$ </svg><script>alert(1)</script> \u202e \u6f22\u5b57"


def figures(tmp_path: Path, *sources: Path) -> dict[str, Path]:
    out = tmp_path / "figures"
    arguments = [*map(str, sources), "-o", str(tmp_path / "p.html"), "--figures", str(out)]
    result = CliRunner().invoke(command, arguments)
    assert result.exit_code == 0, result.output
    return {path.name: path for path in out.iterdir()}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    directory = tmp_path_factory.mktemp("plain")
    return figures(directory, hand.write(directory / "t"))


def test_every_figure_is_there_in_every_form(plain: dict[str, Path]) -> None:
    found = plain
    names = {"power", "parts", "statements", "calls", "calls-joules"}
    assert found.keys() == {f"{name}.{kind}" for name in names for kind in KINDS}
    for name in names:
        assert found[f"{name}.png"].read_bytes().startswith(b"\x89PNG")
        ElementTree.parse(found[f"{name}.svg"])
        table = pd.read_parquet(found[f"{name}.parquet"])
        assert len(pd.read_csv(found[f"{name}.csv"])) == len(table)
        assert len(json.loads(found[f"{name}.json"].read_text(encoding="utf-8"))) == len(table)
        assert set(table["grade"]) == {"simulated"}
        assert set(table["idle_policy"]) == {"separate"}


def test_the_data_add_up_to_the_measured_total(plain: dict[str, Path]) -> None:
    power = pd.read_parquet(plain["power.parquet"])
    by_series = power.groupby("series")["energy_nj"].sum()
    assert by_series["measured"] == 3 * 10**9
    parts = [name for name in by_series.index if name != "measured" and " " not in name]
    assert by_series[parts].sum() == 3 * 10**9
    statements = pd.read_parquet(plain["statements.parquet"])
    assert round(statements["energy_j"].sum() * 1e9) == by_series["queries"]


def test_hostile_text_is_text_in_drawings(tmp_path: Path) -> None:
    shapes = [{"shape": 1, "fingerprint": "aaaa", "text": ATTACK}]
    found = figures(tmp_path, hand.write(tmp_path / "t", shapes=shapes))
    for name, path in found.items():
        if name.endswith(".svg"):
            assert b"<script" not in path.read_bytes()
            ElementTree.parse(path)
    assert pd.read_csv(found["statements.csv"])["shape"].str.startswith("'=cmd").any()


def test_what_has_no_energy_has_its_calls(tmp_path: Path) -> None:
    nothing = {"energy": EnergyInfo("none", "none", "")}
    found = figures(tmp_path, hand.write(tmp_path / "t", energy=[], meta=nothing))
    assert found.keys() == {f"calls.{kind}" for kind in KINDS}


def test_traces_and_studies_have_names_of_their_own(tmp_path: Path) -> None:
    study = tmp_path / "study"
    study.mkdir()
    run = {"run": 1, "factors": {"a": 1}, "status": "done", "problem": "", "flags": ["x", "y"]}
    about = {"grade": "measured", "idle_policy": "separate", "machine": "m"}
    (study / "runs.jsonl").write_text(json.dumps(run | about | {"j_per_operation": 1.5}) + "\n")
    one, other = hand.write(tmp_path / "a b"), hand.write(tmp_path / "a_b")
    found = figures(tmp_path, one, other, study)
    assert {"1-a_b-power.csv", "2-a_b-power.csv", "study.csv"} <= found.keys()
    compared = pd.read_csv(found["compare-2-with-1.csv"])
    assert compared["greenup"].tolist() == [1.0, 1.0]
    table = pd.read_parquet(found["study.parquet"])
    assert table["j_per_operation"].tolist() == [1.5]
