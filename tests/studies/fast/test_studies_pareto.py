# SPDX-License-Identifier: Apache-2.0
"""Performance against efficiency: the front, and whether the fastest is the most efficient."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qjoule.errors import QjouleError
from qjoule.studies.pareto import frontier, pareto_front, verdict

Sample = tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]


def sample(speed: float, per_joule: float, runs: int = 8, noise: float = 0.01) -> Sample:
    rng = np.random.default_rng([round(speed), round(per_joule * 10), runs])
    shake = np.exp(rng.normal(0, noise, (2, runs)))
    return speed * shake[0], per_joule * shake[1]


def table(**configurations: tuple[float, float]) -> pd.DataFrame:
    """Five runs of each server, given by operations per second and watts."""
    rows = []
    for name, (speed, power) in configurations.items():
        for run in range(5):
            shaken = speed * (1 + (run - 2) / 1_000)
            rows.append(
                {
                    "status": "done",
                    "throughput": shaken,
                    "power_w": power,
                    "j_per_operation": power / shaken / 2,
                    "grade": "measured",
                    "idle_policy": "separate",
                    "energy_source": "rapl",
                    "machine": "host",
                    "factor:name": name,
                }
            )
    return pd.DataFrame(rows)


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=30))
def test_front_is_what_its_definition_says(points: list[tuple[int, int]]) -> None:
    beaten = [any(a >= x and b >= y and (a > x or b > y) for a, b in points) for x, y in points]
    found = pareto_front(*np.array(points, float).T)
    assert found.tolist() == [not each for each in beaten]


def test_the_fastest_may_be_the_most_efficient() -> None:
    found = verdict(["a", "b", "c"], [sample(100, 5), sample(80, 4), sample(50, 3)])
    assert (found.answer, found.fastest, found.most_efficient) == ("yes", "a", "a")
    assert found.text == "Yes: a was the fastest and did the most operations per joule."


def test_another_one_may_be_the_most_efficient() -> None:
    found = verdict(["a", "b", "c"], [sample(100, 4), sample(80, 5), sample(50, 3)])
    assert (found.answer, found.fastest, found.most_efficient) == ("no", "a", "b")
    assert found.gain.value == pytest.approx(1.25, rel=0.02)
    assert found.speed.value == pytest.approx(0.8, rel=0.02)
    assert found.text.startswith("No: a was the fastest, and b did 2")
    assert "% more operations per joule" in found.text
    assert "% fewer operations per second" in found.text


@pytest.mark.parametrize(
    "samples",
    [
        # Equally efficient; equally fast with one more efficient; both in between.
        [sample(100, 5, noise=0.2), sample(80, 5, noise=0.2)],
        [sample(100, 4, noise=0.2), sample(100, 8, noise=0.2)],
        [sample(100, 4.9, 3, 0.1), sample(90, 5, 3, 0.1)],
    ],
)
def test_where_intervals_do_not_separate_there_is_no_answer(samples: list[Sample]) -> None:
    found = verdict(["a", "b"], samples)
    assert found.answer == "not separable"
    assert found.text.startswith("The intervals do not separate it")


def test_equal_configurations_are_seldom_told_apart() -> None:
    rng = np.random.default_rng(11)
    draws = [[tuple(np.exp(rng.normal(0, 0.05, (2, 6)))) for _ in range(4)] for _ in range(100)]
    answers = [verdict(list("abcd"), samples).answer for samples in draws]
    assert sum(answer in {"yes", "no"} for answer in answers) <= 5


def test_a_table_of_runs() -> None:
    found = frontier(table(slow=(50, 60), fast=(100, 100), thrifty=(90, 60)))
    assert [each.label for each in found.configurations] == [
        "name=fast",
        "name=thrifty",
        "name=slow",
    ]
    assert [each.on_front for each in found.configurations] == [True, True, False]
    assert found.configurations[0].efficiency.value == pytest.approx(1.0, rel=1e-3)
    assert found.verdict.answer == "no"
    assert found.verdict.most_efficient == "name=thrifty"
    assert found.verdict.gain.value == pytest.approx(1.5)


def test_tables_without_an_answer() -> None:
    with pytest.raises(QjouleError, match="two configurations"):
        frontier(table(a=(50, 60)))
    with pytest.raises(QjouleError, match="two configurations"):
        frontier(table(a=(50, 60), b=(1, 1)).assign(throughput=0))
    mixed = table(a=(50, 60), b=(100, 100))
    mixed.loc[0, "grade"] = "simulated"
    with pytest.raises(QjouleError, match="several grades"):
        frontier(mixed)
