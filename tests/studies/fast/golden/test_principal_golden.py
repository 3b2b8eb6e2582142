# SPDX-License-Identifier: Apache-2.0
"""Components and clusters of published data equal those that R finds.

`statistics/reference.csv`: R 4.2.2, `prcomp(x, scale. = TRUE)` and `hclust(dist(scale(x)),
"average")` of its data sets USArrests (McNeil, *Interactive Data Analysis*, 1977) and iris (Fisher,
Annals of Eugenics 7, 1936), which lie in `statistics/data`.
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from qjoule.studies.principal import clusters, principal, standardised

DATA = Path(__file__).parent / "statistics"


def numbers(name: str) -> tuple[list[str], npt.NDArray[np.float64]]:
    """The numeric columns of a data set."""
    with (DATA / "data" / f"{name}.csv").open() as file:
        rows = list(csv.DictReader(file))
    columns = [column for column in rows[0] if column not in ("state", "Species")]
    return columns, np.array([[float(row[column]) for column in columns] for row in rows])


def expected(name: str, test: str, statistic: str) -> dict[str, float]:
    with (DATA / "reference.csv").open() as file:
        return {
            row["term"]: float(row["value"])
            for row in csv.DictReader(file)
            if (row["data"], row["test"], row["statistic"]) == (name, test, statistic)
        }


@pytest.mark.parametrize("name", ["us_arrests", "iris"])
def test_principal_components(name: str) -> None:
    columns, values = numbers(name)
    found = principal(values, columns)
    sdev = expected(name, "prcomp", "sdev")
    assert len(sdev) == 4
    assert np.sqrt(found.variance) == pytest.approx(list(sdev.values()), rel=1e-9)
    shares = expected(name, "prcomp", "proportion")
    assert found.explained == pytest.approx(list(shares.values()), rel=1e-9)
    loadings = expected(name, "prcomp_rotation", "loading")
    for j in range(4):
        wanted = np.array([loadings[f"{column}:PC{j + 1}"] for column in columns])
        sign = np.sign(wanted[np.abs(wanted).argmax()])  # R leaves the sign free
        assert found.loadings[:, j] == pytest.approx(sign * wanted, abs=1e-9)
    assert found.scores == pytest.approx(standardised(values) @ found.loadings, abs=1e-9)


def test_average_linkage() -> None:
    heights = list(expected("us_arrests", "hclust_average", "height").values())
    assert len(heights) == 49
    found = clusters(standardised(numbers("us_arrests")[1]))
    assert found[:, 2] == pytest.approx(heights, rel=1e-9)
