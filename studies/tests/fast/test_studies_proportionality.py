# SPDX-License-Identifier: Apache-2.0
"""Energy proportionality and the Pareto front of a study, and `qjoule bench proportionality`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from qjoule.errors import QjouleError
from qjoule.reporters import format as fmt
from qjoule_studies.commands.bench_proportionality import command
from qjoule_studies.pareto import frontier, pareto_front, verdict
from qjoule_studies.proportionality import proportionality
from qjoule_studies.reporters.proportionality import render
from statistics_cases import run, write_study

#: Watts of each run, by load.
LINEAR = {0.0: [50.0, 50.0], 50.0: [75.0, 75.0], 100.0: [100.0, 100.0]}
#: Operations per second and watts, by server.
SERVERS = {"slow": (50, 60), "fast": (100, 100), "thrifty": (90, 60)}
Sample = tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]


def table_of(rows: list[dict[str, object]], grade: str = "measured") -> pd.DataFrame:
    same = {"grade": grade, "energy_source": "rapl", "machine": "host"}
    return pd.DataFrame([run(number, **same) | row for number, row in enumerate(rows, 1)])


def levels(
    powers: Mapping[float, list[float]], server: str = "a", grade: str = "measured"
) -> pd.DataFrame:
    """Runs in which a load of 100 % does 1,000 operations a second."""
    rows: list[dict[str, object]] = [
        {
            "throughput": level * 10,
            "power_w": power,
            "j_per_operation": power / level / 20 if level else None,
            "factor:level": level,
            "factor:server": server,
        }
        for level, each in powers.items()
        for power in each
    ]
    return table_of(rows, grade)


def servers(configurations: Mapping[str, tuple[float, float]]) -> pd.DataFrame:
    """Five runs of each server."""
    rows: list[dict[str, object]] = []
    for name, (speed, power) in configurations.items():
        for shake in range(-2, 3):
            shaken = speed * (1 + shake / 1_000)
            joules = power / shaken / 2
            rows.append({"throughput": shaken, "power_w": power, "j_per_operation": joules})
            rows[-1]["factor:server"] = name
    return table_of(rows)


def test_runs_with_known_answers() -> None:
    (curve,) = proportionality(levels(LINEAR))
    for estimate in (curve.idle_share, curve.dynamic_range, curve.index):
        assert estimate.value == pytest.approx(0.5)
    assert curve.linear_deviation.value == pytest.approx(0)
    assert (curve.index.low, curve.index.high) == pytest.approx((0.5, 0.5))
    half = curve.levels[1]
    assert half.machine_j_per_operation.value == pytest.approx(75 / 500)
    assert half.j_per_operation.value == pytest.approx(75 / 50 / 20)
    assert half.relative_efficiency.value == pytest.approx(0.5 / 0.75)
    assert curve.levels[0].machine_j_per_operation.value is None  # no work was done
    assert (curve.grade, curve.missing) == ("measured", ())


@pytest.mark.parametrize("column", ["grade", "idle_policy", "energy_source", "machine"])
def test_runs_that_do_not_belong_together_are_refused(column: str) -> None:
    runs = levels(LINEAR)
    runs.loc[0, column] = "another"
    with pytest.raises(QjouleError, match="cannot be put together"):
        proportionality(runs)
    mixed = servers(SERVERS)
    mixed.loc[0, column] = "another"
    with pytest.raises(QjouleError, match="several"):
        frontier(mixed)


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=30))
def test_the_front_is_what_its_definition_says(points: list[tuple[int, int]]) -> None:
    beaten = [any(a >= x and b >= y and (a > x or b > y) for a, b in points) for x, y in points]
    assert pareto_front(*np.array(points, float).T).tolist() == [not each for each in beaten]


def sample(speed: float, per_joule: float, runs: int = 8, noise: float = 0.01) -> Sample:
    rng = np.random.default_rng([round(speed), round(per_joule * 10), runs])
    shake = np.exp(rng.normal(0, noise, (2, runs)))
    return speed * shake[0], per_joule * shake[1]


@pytest.mark.parametrize(
    ("samples", "answer", "beginning"),
    [
        ([sample(100, 5), sample(80, 4)], "yes", "Yes: a was the fastest and did the most"),
        ([sample(100, 4), sample(80, 5), sample(50, 3)], "no", "No: a was the fastest, and b did"),
        ([sample(100, 5, noise=0.2), sample(80, 5, noise=0.2)], "not separable", "The intervals"),
        ([sample(100, 4, 1), sample(80, 5, 1)], "unknown", ""),
    ],
)
def test_the_verdict_is_what_intervals_separate(
    samples: list[Sample], answer: str, beginning: str
) -> None:
    judged = verdict(list("abc")[: len(samples)], samples)
    assert judged.answer == answer
    assert judged.text.startswith(beginning)
    if answer == "no":
        assert judged.gain.value == pytest.approx(1.25, rel=0.02)
        assert judged.speed.value == pytest.approx(0.8, rel=0.02)


@pytest.mark.parametrize(
    ("grade", "sentence"),
    [
        ("measured", "Energy: measured, from rapl of host; idle policy separate."),
        ("estimated", "says nothing of how this machine's power follows its load"),
    ],
)
def test_the_text_says_what_a_grade_allows(grade: str, sentence: str) -> None:
    runs = levels(LINEAR, "\x1b[31mred\u202e\n[bold]", grade)
    text = render(proportionality(runs), frontier(runs), width=60)
    assert sentence in " ".join(text.split())
    assert not set(text) & {"\x1b", "\u202e"}
    assert "[bold]" in text
    assert max(map(len, text.splitlines())) <= 60
    text = render(proportionality(runs[runs["factor:level"] != 0]), None, width=110)
    assert f"proportionality index           {fmt.UNKNOWN}" in text
    assert "unknown: no run at 0 %" in text


def called(*arguments: object) -> Result:
    return CliRunner().invoke(command, list(map(str, arguments)), catch_exceptions=False)


def test_the_command_writes_text_json_and_figures(tmp_path: Path) -> None:
    half = {level: [power / 2 for power in each] for level, each in LINEAR.items()}
    study = write_study(tmp_path / "study", pd.concat([levels(LINEAR), levels(half, "b")]))
    assert "proportionality index           0.500" in called(study).output
    printed = json.loads(called(study, "--json", "--plots", tmp_path / "figures").output)
    assert printed["schema"] == "qjoule.proportionality/1"
    configurations = [each["configuration"] for each in printed["proportionality"]]
    assert configurations == [{"server": "a"}, {"server": "b"}]
    assert len(printed["frontier"]["configurations"]) == 2  # at 100 %
    names = ("power-against-load", "efficiency-against-performance")
    assert sorted(path.name for path in (tmp_path / "figures").iterdir()) == sorted(
        f"{name}.{kind}" for name in names for kind in ("svg", "png", "csv")
    )
    power = pd.read_csv(tmp_path / "figures/power-against-load.csv").set_index(
        ["configuration", "load_percent"]
    )["power_w"]
    assert power["server=a", 50] == pytest.approx(75)
    assert power["server=b", 0] == pytest.approx(25)
    for arguments, message in (
        ((tmp_path,), "holds no study"),
        ((study, "--plots", study / "runs.jsonl" / "x"), "cannot write figures"),
    ):
        with pytest.raises(QjouleError, match=message):
            called(*arguments)
