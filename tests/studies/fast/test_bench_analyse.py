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

from qjoule.commands.bench_analyse import command
from qjoule.errors import QjouleError, UsageError
from qjoule.reporters.study import render
from qjoule.studies.runs import read_runs
from qjoule.studies.statistics.design import BY
from qjoule.studies.statistics.study import analyse as statistics
from statistics_cases import golden, load, run, runs_of, write_study

J = "j_per_operation"
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


def analyse(study: Path, *options: str, columns: int = 80) -> Result:
    return CliRunner(env={"COLUMNS": str(columns)}).invoke(command, [str(study), *options])


@pytest.fixture
def warpbreaks(tmp_path: Path) -> Path:
    return write_study(
        tmp_path / "study", runs_of(load("warpbreaks"), "breaks", ["wool", "tension"])
    )


def test_the_text_has_every_part_and_fits(warpbreaks: Path) -> None:
    result = analyse(warpbreaks, "--response", f"{J},wall_s")
    assert result.exit_code == 0
    text = result.output
    for part in (
        "j_per_operation in J",
        "grade simulated, idle policy separate",
        "95 % interval",
        "ANOVA, type II",
        BY.join(["wool", "tension"]),
        "Shapiro-Wilk",
        "Brown-Forsythe",
        "Durbin-Watson",
        "What decides is the Welch-James test: variances differ.",
        "Games-Howell",
        "Hedges' g",
        "Energy (J) against time (s)",
        "wall_s in s",
    ):
        assert part in text, part
    assert max(len(line) for line in text.splitlines()) <= 80
    assert "10.9%" in text  # R: eta squared of the interaction, 0.1087
    assert "\x1b" not in text


def test_it_fits_other_widths(warpbreaks: Path) -> None:
    study = statistics(read_runs(warpbreaks), [J], ["tension"])
    for width in (60, 80, 100, 200):
        text = render(study, width=width)
        assert max(len(line) for line in text.splitlines()) <= width


def test_json_has_rs_values(warpbreaks: Path) -> None:
    document = json.loads(analyse(warpbreaks, "--json").output)
    assert (document["schema"], document["study"]) == ("qjoule.study/1", "study")
    first, second = document["responses"]
    assert (first["response"], second["response"]) == ("j_per_operation", "wall_s")
    assert (first["grade"], first["idle_policy"]) == ("simulated", "separate")
    expected = golden("warpbreaks", "type2")
    for effect in first["anova"]["effects"]:
        row = expected[effect["effect"].replace(BY, ":")]
        assert effect["f"] == pytest.approx(row["f"])
    assert len(first["means"]) == 6
    assert first["means"][0]["levels"] == {"wool": "A", "tension": "L"}
    assert [one["of"] for one in first["pairwise"]] == ["combinations", "wool", "tension"]
    assert len(first["pairwise"][0]["pairs"]) == 15
    assert document["energy_time"]["lines"][0]["runs"] == 54


def test_type_three_is_by_request(tmp_path: Path) -> None:
    table = runs_of(load("warpbreaks_lost"), "breaks", ["wool", "tension"])
    study = write_study(tmp_path / "study", table)
    options = ("--json", "--type", "3", "--response", J)
    (found,) = json.loads(analyse(study, *options).output)["responses"]
    assert found["anova"]["type"] == 3
    assert found["anova"]["effects"][0]["f"] == pytest.approx(
        golden("warpbreaks_lost", "type3")["wool"]["f"]
    )


def test_figures_are_readable_and_have_their_data(warpbreaks: Path, tmp_path: Path) -> None:
    figures = tmp_path / "figures"
    result = analyse(warpbreaks, "--plots", str(figures), "--response", J)
    assert result.exit_code == 0
    stems = {path.stem for path in figures.iterdir()}
    assert stems == {
        "energy-time",
        *(
            f"j_per_operation-{kind}"
            for kind in (
                "means",
                "pairs",
                "pairs-factor1",
                "pairs-factor2",
                "effects",
                "interaction1",
                "residuals",
            )
        ),
    }
    for stem in stems:
        ET.parse(figures / f"{stem}.svg")
        assert (figures / f"{stem}.png").read_bytes().startswith(b"\x89PNG")
        assert len(pd.read_csv(figures / f"{stem}.csv"))
    drawing = (figures / "j_per_operation-means.svg").read_text(encoding="utf-8")
    assert "j_per_operation (J), mean and 95 % interval" in drawing
    assert "grade simulated, idle separate" in drawing
    means = pd.read_csv(figures / "j_per_operation-means.csv")
    assert means["letters"].tolist() == ["a", "ab", "ab", "ab", "ab", "b"]
    pairs = pd.read_csv(figures / "j_per_operation-pairs.csv")
    assert len(pairs) == 15


def hostile_study(folder: Path) -> Path:
    rows: list[dict[str, Any]] = []
    for name_number in range(48):
        own = {
            f"factor:{HOSTILE[0]}": HOSTILE[name_number % 4 + 1],
            f"factor:{HOSTILE[1]}": HOSTILE[5 + name_number // 4 % 3],
            "factor:mean": "runs" if name_number % 3 else "letters",
        }
        rows.append(run(name_number + 1, j_per_operation=1 + (name_number * 7 % 11) / 10) | own)
    return write_study(folder, pd.DataFrame(rows))


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    study = hostile_study(tmp_path / "study")
    figures = tmp_path / "figures"
    result = analyse(study, "--plots", str(figures), "--response", J)
    assert result.exit_code == 0, result.output
    assert "\x1b" not in result.output
    assert "\u202e" not in result.output
    for path in figures.iterdir():
        assert re.fullmatch(r"[a-z_]+-[a-z0-9-]+\.(svg|png|csv)", path.name)
        if path.suffix == ".svg":
            text = path.read_text(encoding="utf-8")
            ET.fromstring(text)
            assert "<script" not in text
        if path.suffix == ".csv":
            cells = pd.read_csv(path).astype(str).to_numpy().ravel()
            assert not any(str(cell).startswith("=") for cell in cells)
    means = pd.read_csv(figures / "j_per_operation-means.csv")
    assert {"factor:mean", "mean"} <= set(means.columns)


def test_factors_named_like_code_are_told_apart(tmp_path: Path) -> None:
    study = hostile_study(tmp_path / "study")
    (found,) = json.loads(analyse(study, "--json", "--response", J).output)["responses"]
    assert list(found["factors"]) == [HOSTILE[0], HOSTILE[1], "mean"]


def test_mixed_runs_are_refused_and_by_option_flagged(warpbreaks: Path) -> None:
    lines = (warpbreaks / "runs.jsonl").read_text(encoding="utf-8").splitlines()
    lines[5] = lines[5].replace('"simulated"', '"measured"')
    (warpbreaks / "runs.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    result = analyse(warpbreaks, "--response", J)
    assert isinstance(result.exception, QjouleError)
    assert "different grades (simulated, measured)" in str(result.exception)
    text = analyse(warpbreaks, "--mixed", "--factors", "tension", "--response", J).output
    assert "MIXED" in text
    document = json.loads(
        analyse(warpbreaks, "--mixed", "--json", "--factors", "tension", "--response", J).output
    )
    assert document["responses"][0]["mixed"] is True
    assert document["responses"][0]["grade"] == ["simulated", "measured"]


def test_thousands_of_combinations_are_not_all_printed(tmp_path: Path) -> None:
    rows = [
        run(number, j_per_operation=float(number % 97)) | {"factor:user": number % 2000}
        for number in range(4000)
    ]
    study = write_study(tmp_path / "study", pd.DataFrame(rows))
    result = analyse(study, "--response", J)
    assert "1960 more: see --json" in result.output
    assert "2000 levels" in result.output
    assert len(result.output.splitlines()) < 200


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--response", "joules"), "choose of"),
        (("--factors", "wol"), "wool, tension"),
        (("--response", "wall_s,,energy_j"), "commas"),
    ],
)
def test_usage_errors_say_what_there_is(
    warpbreaks: Path, options: tuple[str, ...], words: str
) -> None:
    result = analyse(warpbreaks, *options)
    assert isinstance(result.exception, UsageError)
    assert words in str(result.exception)


def test_no_study_and_no_folder_to_write_to(warpbreaks: Path, tmp_path: Path) -> None:
    assert isinstance(analyse(tmp_path).exception, QjouleError)
    nowhere = str(warpbreaks / "runs.jsonl" / "x")
    refused = analyse(warpbreaks, "--plots", nowhere, "--factors", "tension", "--response", J)
    assert isinstance(refused.exception, QjouleError)


def test_without_an_energy_source_time_is_compared(tmp_path: Path) -> None:
    unknown = dict.fromkeys((J, "energy_j"))
    rows = [
        run(number, grade="none", **unknown) | {"factor:server": "ab"[number % 2]}
        for number in range(8)
    ]
    study = write_study(tmp_path / "study", pd.DataFrame(rows))
    text = analyse(study).output
    assert "wall_s in s" in text
    assert "note: no run has j_per_operation: left out" in text
    assert "note: no energy against time: none of 8 runs has energy_j" in text
    assert isinstance(analyse(study, "--response", J).exception, QjouleError)


def test_help_has_examples() -> None:
    result = CliRunner().invoke(command, ["--help"])
    assert result.exit_code == 0
    assert "Examples:" in result.output
