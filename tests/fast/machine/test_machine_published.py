# SPDX-License-Identifier: Apache-2.0
"""The tables of published power: what they hold, and which rows are refused."""

from __future__ import annotations

from itertools import product
from statistics import median

import pytest

from qjoule.errors import QjouleError
from qjoule.machine import held_out
from qjoule.machine.files import read_table
from qjoule.machine.power_model import LEVELS, shape
from qjoule.machine.published import KINDS, REST, of_wall, published, raised, read_published


def row(columns: str, values: str) -> dict[str, str]:
    return dict(zip(columns.split(","), values.split(","), strict=True))


KIND = row("microarchitecture,name,vendor,kind,year,names", "k,K,V,server,2020,")
CPU = row("model,microarchitecture,year,cores,threads,ghz,tdp_w", "Xeon 1,k,2020,4,8,2.5,100")
RESULT = row(
    "cpu,packages,memory_gb,w0,w10,w50,w100,what,published,system,source",
    "Xeon 1,2,64,50,,,300,wall,Jan-2020,Maker 1,ccf",
)


def test_as_many_models_as_promised_each_with_a_source_and_power_near_the_tdp() -> None:
    """A typing error of a digit would be a factor of ten."""
    data = published()
    recent = [one for one in data.models.values() if 2014 <= one.year <= 2025]
    assert len(recent) >= 120
    assert len([one for one in recent if one.model in data.results]) >= 115
    for name, results in data.results.items():
        tdp_w = data.models[name].tdp_w
        for one in results:
            assert one.system and one.published and one.source
            full_w, rest_w = one.watts[3], one.watts[0]
            assert full_w is not None
            assert rest_w is not None
            assert 1 < rest_w < full_w
            assert not tdp_w or 0.4 < full_w / tdp_w < 1.8, (name, one.system)


def test_a_row_of_the_wall() -> None:
    data = read_published([KIND], [CPU], [RESULT])
    (one,) = data.results["Xeon 1"]
    expected = of_wall(300, 1.0, 2, 64)
    assert expected == pytest.approx(150 * (1 - REST[1]) * 0.94 - 32 * 0.09)
    assert one.watts[0] == pytest.approx(raised(of_wall(50, 0.0, 2, 64), 100))
    assert one.watts[1:3] == (None, None)
    assert one.watts[3] == pytest.approx(expected)  # above the TDP already
    assert one.machine_w == (50, None, None, 300)
    assert raised(80, 100) == pytest.approx(80 * KINDS)
    assert raised(95, 100) == 100
    assert raised(120, 100) == 120
    assert raised(100, None) == pytest.approx(100 * KINDS)
    assert of_wall(50, 0.0, 1, 100_000) == pytest.approx(10), "however much memory it has"


@pytest.mark.parametrize(
    ("column", "text", "message"),
    [
        ("packages", "0", "number of packages"),
        *(("w0", "400", "fall with the load"), ("w0", "", "missing")),
        *(("w100", text, "no number that makes sense") for text in ("-1", "nan", "1e9")),
        ("memory_gb", "much", "could not convert"),
        ("what", "guessed", "neither of packages nor of the wall"),
        *((column, "", "system or source is unknown") for column in ("cpu", "source")),
    ],
)
def test_a_bad_result_is_refused_by_name(column: str, text: str, message: str) -> None:
    with pytest.raises(QjouleError, match=r"published_power\.csv") as refused:
        read_published([KIND], [CPU], [RESULT | {column: text}])
    assert message in str(refused.value)


def test_constants_are_those_that_the_results_tell() -> None:
    """Measured packages draw more than estimates from the wall, and less so than before."""
    pairs = held_out.pairs()
    assert len(pairs) >= 20
    assert REST[0] == pytest.approx(median(pair.rest_share(0) for pair in pairs), abs=0.03)
    assert REST[1] == pytest.approx(median(pair.rest_share(-1) for pair in pairs), abs=0.03)
    ends = [one.error + 1 for one in held_out.measured_points() if one.at in (0, 3)]
    assert 1 < median(ends) < KINDS**2
    at_10, at_50 = shape()
    assert 0.1 < at_10 < 0.25
    assert at_10 + (1 - at_10) * 4 / 9 <= at_50 < 0.65


@pytest.mark.parametrize("guest", [False, True])
def test_intervals_hold_what_was_held_out(guest: bool) -> None:
    for level in LEVELS:
        assert 0.92 <= held_out.coverage(level, guest=guest) <= 0.98
    errors = [held_out.level_error(level, guest=guest) for level in LEVELS]
    assert errors == sorted(errors), "a better level has no larger error"
    assert held_out.level_error("any", guest=True) > held_out.level_error("any")


def test_microarchitectures_do_not_overlap() -> None:
    seen: dict[tuple[str, int, int, int], str] = {}
    for row in read_table("microarchitectures"):
        models = range(int(row["model_first"]), int(row["model_last"]) + 1)
        steppings = range(int(row["stepping_first"]), int(row["stepping_last"]) + 1)
        for model, stepping in product(models, steppings):
            key = (row["vendor"], int(row["family"]), model, stepping)
            assert key not in seen, (key, seen.get(key), row["microarchitecture"])
            seen[key] = row["microarchitecture"]
