# SPDX-License-Identifier: Apache-2.0
"""`qjoule bench analyse`: text, JSON and figures of a study.

Before that, a run's trace and its client's answer become its row in the table.
"""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from click.testing import CliRunner, Result

from attribute_trace import BEGIN_NS, MS, at, write
from fake_study import outcome
from qjoule_studies.client import ClientReport, read_answer
from qjoule_studies.commands.bench_analyse import command
from qjoule_studies.design import Slot
from qjoule_studies.recording import NotRecorded, RunFailed, _judged
from qjoule_studies.rows import Figures, Head, done, figures
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
    assert [comparison["of"] for comparison in first["pairwise"]] == [
        "combinations",
        "wool",
        "tension",
    ]
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
    (response,) = json.loads(analyse(study, "--json", *ONE_RESPONSE).output)["responses"]
    assert list(response["factors"]) == [HOSTILE[0], HOSTILE[1], "mean"]


HEAD = Head(1, Slot(1, 1, {"size": 3}), "2026-01-01T00:00:00Z", "a machine", "separate")
REPORT = ClientReport(outcome(), 5, 9)


def of_span(directory: Path, begin_ms: float, end_ms: float, **changed: Any) -> Figures:
    return figures(write(directory, **changed), at(begin_ms), at(end_ms), "separate")


def test_figures_are_of_the_windows_that_the_span_touches(tmp_path: Path) -> None:
    """The trace has two windows of 20 ms, of 1 J and 2 J."""
    first = of_span(tmp_path / "a", 1, 19)
    assert first.energy_j == pytest.approx(1.0)
    assert first.power_w == pytest.approx(1.0 / 0.020)
    second = of_span(tmp_path / "b", 25, 40)
    assert second.energy_j == pytest.approx(2.0)
    both = of_span(tmp_path / "c", 19, 21)
    assert both.energy_j == pytest.approx(3.0)


def test_what_the_server_did_is_told_from_the_rest(tmp_path: Path) -> None:
    """The first window has 20 ms of queries, 5 ms of the server's purge thread, and
    nothing else.
    """
    of_first = of_span(tmp_path, 0, 20)
    assert of_first.server_cpu_s == pytest.approx(0.025)
    assert of_first.queries_j is not None and of_first.background_j is not None
    assert of_first.queries_j / of_first.background_j == pytest.approx(4)
    assert of_first.served_j is not None
    low, high = of_first.served_j
    assert low < of_first.queries_j + of_first.background_j < high
    assert (of_first.grade, of_first.energy_source) == ("simulated", "replay")


@pytest.mark.parametrize(
    ("cause", "lost_ns", "flags"),
    [
        ("pump", 0, ("lost_records",)),
        ("switch", 0, ("hidden_switches",)),
        ("switch", 5 * MS, ("lost_records",)),
    ],
)
def test_loss_is_a_flag(tmp_path: Path, cause: str, lost_ns: int, flags: tuple[str, ...]) -> None:
    lost = {"t_ns": BEGIN_NS + MS, "cpu": 0, "cause": cause, "count": 3, "lost_ns": lost_ns}
    of_trace = of_span(tmp_path, 0, 40, loss=[lost])
    assert of_trace.flags == flags
    cut_off = of_span(tmp_path / "cut", 0, 40, meta={"complete": False})
    assert cut_off.flags == ("incomplete_trace",)


def test_joules_per_operation_are_the_servers() -> None:
    of_run = Figures(9.0, 3.0, 1.0, 4.0, (3.0, 5.0), 4.5, 0.2, "measured", "separate", "perf")
    run = done(HEAD, REPORT, of_run, ("unsettled",), "runs/0001.qjoule")
    names = ("j_per_operation", "j_per_operation_low", "j_per_operation_high")
    assert [run[name] for name in names] == [0.04, 0.03, 0.05]  # type: ignore[literal-required]
    assert run["flags"] == ["unsettled"]
    assert json.loads(json.dumps(run, allow_nan=False)) == run
    none = done(HEAD, replace(REPORT, outcome=outcome(operations=0, wall_s=0)), of_run, (), "")
    assert (none["j_per_operation"], none["j_per_operation_low"], none["throughput"]) == (None,) * 3


GOOD = json.dumps(asdict(REPORT)).encode()
TRACING = b"qjoule: tracing redis\nqjoule: t: 3 queries\n"


def test_what_is_no_answer_is_none() -> None:
    assert read_answer(GOOD) == REPORT
    assert read_answer(b'{"problem": "no"}') == "no"
    for text in (b"", b"{", b"[]", b"null", b"{}", b'{"outcome": {}}', b'{"outcome": 3}', b"\xff"):
        assert read_answer(text) == ""


@pytest.mark.parametrize(
    ("code", "answer", "stderr", "kind", "message"),
    [
        (1, b"", b"qjoule: no BTF: get it\n", NotRecorded, "^no BTF: get it$"),
        (-9, b"", b"", NotRecorded, "the recorder ended with SIGKILL"),
        (1, b'{"problem": "gone"}', TRACING, RunFailed, "^gone$"),
        (7, b"", TRACING, RunFailed, r"no answer \(exit code 7\): t: 3 queries"),
        (1, GOOD, TRACING + b"qjoule: t: no room\n", RunFailed, "recording failed.*t: no room"),
    ],
)
def test_a_run_that_is_not_whole_says_why(
    code: int, answer: bytes, stderr: bytes, kind: type[RunFailed], message: str
) -> None:
    with pytest.raises(kind, match=message):
        _judged(code, answer, stderr, recorded=True)
