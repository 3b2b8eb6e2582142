# SPDX-License-Identifier: Apache-2.0
"""`qjoule bench analyse`: text, JSON and figures of a study."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from click.testing import CliRunner, Result

from qjoule_studies.commands.bench_analyse import command
from qjoule_studies.statistics.design import BY
from statistics_cases import golden, load, run, runs_of, write_study

J = "j_per_operation"
ONE_RESPONSE = ("--response", J)
HOSTILE = [
    "C(x) + Q('y')",
    "\x1b[31mred\x1b[0m",
    "$\\frac{1}{0$",
    "<script>alert(1)</script>",
    "=HYPERLINK(1)",
    "_hidden",
    "../../etc/passwd",
    "\u202egnp.exe",
]


def analyse(study: Path, *options: str) -> Result:
    return CliRunner(env={"COLUMNS": "80"}).invoke(command, [str(study), *options])


@pytest.fixture
def warpbreaks(tmp_path: Path) -> Path:
    return write_study(
        tmp_path / "study", runs_of(load("warpbreaks"), "breaks", ["wool", "tension"])
    )


def test_the_text_has_every_part_and_fits(warpbreaks: Path) -> None:
    result = analyse(warpbreaks, "--response", f"{J},wall_s")
    assert result.exit_code == 0
    for part in (
        "j_per_operation in J",
        "grade simulated, idle policy separate",
        BY.join(["wool", "tension"]),
        "10.9%",  # R: eta squared of the interaction, 0.1087
        "Shapiro-Wilk",
        "What decides is the Welch-James test: variances differ.",
        "Games-Howell",
        "Energy (J) against time (s)",
        "wall_s in s",
    ):
        assert part in result.output, part
    assert "\x1b" not in result.output
    assert max(map(len, result.output.splitlines())) <= 80


def test_json_has_rs_values(warpbreaks: Path) -> None:
    document = json.loads(analyse(warpbreaks, "--json").output)
    assert (document["schema"], document["study"]) == ("qjoule.study/1", "study")
    first, second = document["responses"]
    assert (first["response"], second["response"]) == (J, "wall_s")
    assert (first["grade"], first["idle_policy"]) == ("simulated", "separate")
    expected = golden("warpbreaks", "type2")
    for effect in first["anova"]["effects"]:
        assert effect["f"] == pytest.approx(expected[effect["effect"].replace(BY, ":")]["f"])
    assert len(first["means"]) == 6
    assert first["means"][0]["levels"] == {"wool": "A", "tension": "L"}
    assert [one["of"] for one in first["pairwise"]] == ["combinations", "wool", "tension"]
    assert len(first["pairwise"][0]["pairs"]) == 15
    assert document["energy_time"]["lines"][0]["runs"] == 54


def test_figures_are_readable_and_have_their_data(warpbreaks: Path, tmp_path: Path) -> None:
    figures = tmp_path / "figures"
    assert analyse(warpbreaks, "--plots", str(figures), *ONE_RESPONSE).exit_code == 0
    kinds = ["means", "pairs", "pairs-factor1", "pairs-factor2", "effects"]
    kinds += ["interaction1", "residuals"]
    stems = {path.stem for path in figures.iterdir()}
    assert stems == {"energy-time", *(f"{J}-{kind}" for kind in kinds)}
    for stem in stems:
        ET.parse(figures / f"{stem}.svg")
        assert (figures / f"{stem}.png").read_bytes().startswith(b"\x89PNG")
        assert len(pd.read_csv(figures / f"{stem}.csv"))
    means = pd.read_csv(figures / f"{J}-means.csv")
    assert means["letters"].tolist() == ["a", "ab", "ab", "ab", "ab", "b"]


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = []
    for number in range(48):
        levels = {
            f"factor:{HOSTILE[0]}": HOSTILE[number % 4 + 1],
            f"factor:{HOSTILE[1]}": HOSTILE[5 + number // 4 % 3],
            "factor:mean": "runs" if number % 3 else "letters",
        }
        rows.append(run(number + 1, j_per_operation=1 + (number * 7 % 11) / 10) | levels)
    study = write_study(tmp_path / "study", pd.DataFrame(rows))
    figures = tmp_path / "figures"
    result = analyse(study, "--plots", str(figures), *ONE_RESPONSE)
    assert result.exit_code == 0, result.output
    assert not set(result.output) & {"\x1b", "\u202e"}
    for path in figures.iterdir():
        assert re.fullmatch(r"[a-z_]+-[a-z0-9-]+\.(svg|png|csv)", path.name)
        if path.suffix == ".svg":
            text = path.read_text(encoding="utf-8")
            ET.fromstring(text)
            assert "<script" not in text
        if path.suffix == ".csv":
            cells = pd.read_csv(path).astype(str).to_numpy().ravel()
            assert not any(str(cell).startswith("=") for cell in cells)
    assert {"factor:mean", "mean"} <= set(pd.read_csv(figures / f"{J}-means.csv").columns)
    (found,) = json.loads(analyse(study, "--json", *ONE_RESPONSE).output)["responses"]
    assert list(found["factors"]) == [HOSTILE[0], HOSTILE[1], "mean"]
