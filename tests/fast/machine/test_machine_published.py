# SPDX-License-Identifier: Apache-2.0
"""The tables of published power: what they hold, and which rows are refused."""

from __future__ import annotations

from statistics import median

import pytest

from qjoule.errors import QjouleError
from qjoule.machine import held_out
from qjoule.machine.power_model import LEVELS, Wanted, estimate, shape
from qjoule.machine.published import (
    KINDS,
    REST,
    of_wall,
    published,
    raised,
    read_published,
)
from qjoule.machine.tables import read_table

KIND = {
    "microarchitecture": "k",
    "name": "K",
    "vendor": "V",
    "kind": "server",
    "year": "2020",
    "names": "",
}
CPU = {
    "model": "Xeon 1",
    "microarchitecture": "k",
    "year": "2020",
    "cores": "4",
    "threads": "8",
    "ghz": "2.5",
    "tdp_w": "100",
}
RESULT = {
    "cpu": "Xeon 1",
    "packages": "2",
    "memory_gb": "64",
    "w0": "50",
    "w10": "",
    "w50": "",
    "w100": "300",
    "what": "wall",
    "published": "Jan-2020",
    "system": "Maker 1",
    "source": "ccf",
}


def test_as_many_models_as_promised_each_with_a_source() -> None:
    data = published()
    recent = [one for one in data.models.values() if 2014 <= one.year <= 2025]
    assert len(recent) >= 120
    assert len([one for one in recent if one.model in data.results]) >= 115
    for results in data.results.values():
        assert all(one.system and one.published and one.source for one in results)


def test_full_load_is_near_the_tdp() -> None:
    """A typing error of a digit would be a factor of ten."""
    data = published()
    for name, results in data.results.items():
        tdp_w = data.models[name].tdp_w
        for one in results:
            full_w, rest_w = one.watts[3], one.watts[0]
            assert full_w is not None
            assert rest_w is not None
            assert 1 < rest_w < full_w
            if tdp_w:
                assert 0.4 < full_w / tdp_w < 1.8, (name, one.system)


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


def test_a_small_machine_full_of_memory_still_has_a_package() -> None:
    assert of_wall(50, 0.0, 1, 100_000) == pytest.approx(10)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"packages": "0"}, "number of packages"),
        ({"packages": "x"}, "invalid literal"),
        ({"packages": "99999"}, "number of packages"),
        ({"w0": "400"}, "fall with the load"),
        ({"w0": ""}, "missing"),
        ({"w100": ""}, "missing"),
        ({"w10": "40"}, "fall with the load"),
        ({"w0": "-1"}, "no number that makes sense"),
        ({"w100": "nan"}, "no number that makes sense"),
        ({"w100": "inf"}, "no number that makes sense"),
        ({"w100": "1e9"}, "no number that makes sense"),
        ({"memory_gb": "much"}, "could not convert"),
        ({"what": "guessed"}, "neither of packages nor of the wall"),
        ({"what": "package"}, "at all loads"),
        ({"source": "rumour"}, "system or source is unknown"),
        ({"system": ""}, "system or source is unknown"),
        ({"cpu": "Xeon 2"}, "its CPU, system or source is unknown"),
    ],
)
def test_a_bad_result_is_refused_by_name(changes: dict[str, str], message: str) -> None:
    with pytest.raises(QjouleError, match=r"published_power\.csv") as refused:
        read_published([KIND], [CPU], [RESULT | changes])
    assert message in str(refused.value)


@pytest.mark.parametrize(
    "changes",
    [
        {"threads": "2"},
        {"cores": "0"},
        {"threads": "100000"},
        {"ghz": "2500"},
        {"tdp_w": "-1"},
        {"year": "soon"},
        {"microarchitecture": "l"},
    ],
)
def test_a_bad_model_is_refused_by_name(changes: dict[str, str]) -> None:
    with pytest.raises(QjouleError, match=r"cpu_models\.csv, Xeon 1"):
        read_published([KIND], [CPU | changes], [])
    with pytest.raises(QjouleError, match=r"cpu_models\.csv, Xeon 1"):
        read_published([KIND], [CPU, CPU], [])


def test_constants_are_those_that_the_results_tell() -> None:
    pairs = held_out.pairs()
    assert len(pairs) >= 20
    assert REST[0] == pytest.approx(median(pair.rest_share(0) for pair in pairs), abs=0.03)
    assert REST[1] == pytest.approx(median(pair.rest_share(-1) for pair in pairs), abs=0.03)
    # Measured packages still draw more than estimates from the wall, and less so than before.
    ends = [one.error + 1 for one in held_out.measured_points() if one.at in (0, 3)]
    assert 1 < median(ends) < KINDS**2


def test_shape_lies_between_both_kinds_of_results() -> None:
    at_10, at_50 = shape()
    assert 0.1 < at_10 < 0.25
    assert at_10 + (1 - at_10) * 4 / 9 <= at_50 < 0.65


@pytest.mark.parametrize("guest", [False, True])
@pytest.mark.parametrize("level", LEVELS)
def test_intervals_hold_what_was_held_out(level: str, guest: bool) -> None:
    assert 0.92 <= held_out.coverage(level, guest=guest) <= 0.98


def test_a_better_level_has_no_larger_error() -> None:
    for guest in (False, True):
        errors = [held_out.level_error(level, guest=guest) for level in LEVELS]
        assert errors == sorted(errors)
    assert held_out.level_error("any", guest=True) > held_out.level_error("any")


def test_held_out_results_are_not_used() -> None:
    data = published()
    model = data.models["EPYC 7742"]
    wanted = Wanted(None, model.architecture, "", model.threads, model.ghz)
    without = {"EPYC 7742"}
    found = estimate(wanted, start="microarchitecture", without=without)
    assert set(found.models) == {"EPYC 7702", "EPYC 7702P"}
    family = estimate(wanted, start="family")
    assert all(
        data.architectures[data.models[name].architecture].vendor == "AuthenticAMD"
        for name in family.models
    )


def test_quantile_counts_each_load_alike() -> None:
    many = [held_out.Point("a", 0, 0.1)] * 98 + [held_out.Point("a", 0, 0.9)] * 2
    assert held_out.quantile(many) == 0.1
    assert held_out.quantile([*many, held_out.Point("a", 3, 0.5)]) == 0.5
    with pytest.raises(ValueError, match="no points"):
        held_out.quantile([])


def test_microarchitectures_do_not_overlap() -> None:
    rows = read_table("microarchitectures")
    seen: dict[tuple[str, int, int, int], str] = {}
    for row in rows:
        for model in range(int(row["model_first"]), int(row["model_last"]) + 1):
            for stepping in range(int(row["stepping_first"]), int(row["stepping_last"]) + 1):
                key = (row["vendor"], int(row["family"]), model, stepping)
                assert key not in seen, (key, seen.get(key), row["microarchitecture"])
                seen[key] = row["microarchitecture"]
