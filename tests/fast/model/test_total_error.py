# SPDX-License-Identifier: Apache-2.0
"""The error of an estimated total: from the trace into intervals, notes, JSON and comparisons."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attribute_trace as hand
from qjoule.contract import DOMAIN
from qjoule.engine.accounts import total_errors
from qjoule.engine.attribute import attribute
from qjoule.errors import QjouleError
from qjoule.model.repeated import RunForms
from qjoule.model.result import Attribution
from qjoule.model.same_total import without_total_error
from qjoule.reporters.json_report import forms, forms_from_json, to_json
from qjoule.stream.announced import domains
from qjoule.trace.meta import DomainInfo, EnergyInfo, Meta, parse_meta
from qjoule.trace.reader import Trace

ESTIMATED = EnergyInfo("estimated", "estimated", "a power curve")


def estimated(folder: Path, error: float | None) -> Attribution:
    meta = {
        "energy": ESTIMATED,
        "domains": (DomainInfo(0, "package", 1e-9, idle_w=25.0, error=error),),
    }
    return attribute(Trace(hand.write(folder, meta=meta)))


def half_width(found: Attribution) -> float:
    low, high = found.rows[0].energy_nj_ci95
    return (high - low) / 2


def test_the_trace_s_error_is_the_total_s(tmp_path: Path) -> None:
    small, unsaid = estimated(tmp_path / "a", 0.2), estimated(tmp_path / "b", None)
    assert small.energy_source.total_error == 0.2
    assert unsaid.energy_source.total_error == 0.5
    assert "the estimated total is taken to be within ±20%" in small.model.notes
    assert half_width(small) < half_width(unsaid)
    large = estimated(tmp_path / "c", 1.5)
    assert large.rows[0].energy_nj_ci95[0] == 0


def test_a_hostile_error_is_no_statement() -> None:
    for error in (-0.1, 0.0, math.nan, math.inf, 1e9):
        meta = Meta(energy=ESTIMATED, domains=(DomainInfo(0, "package", 1e-9, error=error),))
        assert total_errors(meta) == {}
    two = tuple(DomainInfo(n, "package", 1e-9, error=e) for n, e in ((0, 0.3), (1, 0.4)))
    assert total_errors(Meta(energy=ESTIMATED, domains=two)) == {"package": 0.4}
    counted = Meta(energy=EnergyInfo("powercap", "measured"), domains=two)
    assert total_errors(counted) == {}


def test_meta_keeps_it_and_older_traces_have_none() -> None:
    one = DomainInfo(0, "rest", 1e-9, error=9.2)
    written = Meta(domains=(one,)).to_json()
    assert parse_meta(written.encode()).domains == (one,)
    assert (
        "error" not in json.loads(Meta(domains=(DomainInfo(0, "x", 1.0),)).to_json())["domains"][0]
    )


def test_the_stream_announces_it_in_thousandths() -> None:
    records = np.zeros(2, DOMAIN)
    records["domain"], records["unit_j"], records["name"] = (0, 1), 1e-9, (b"package", b"rest")
    records["error"] = (900, 0)
    found = domains(records)
    assert [found[n].error for n in (0, 1)] == [0.9, None]


@pytest.mark.parametrize("error", [0.2, 0.9, 1.5, 9.0])
def test_forms_of_one_total_lose_its_error_even_if_an_end_was_cut_off(
    tmp_path: Path, error: float
) -> None:
    exact = [form.same_total_ci95 for form in forms(estimated(tmp_path / "a", 1e-9))]
    wide = forms(estimated(tmp_path / "b", error))
    for form, expected in zip(wide, exact, strict=True):
        found = without_total_error(form, error).j_per_call_ci95
        assert found == pytest.approx(expected)


def test_a_run_s_document_states_it_and_an_older_one_goes_by_its_grade(tmp_path: Path) -> None:
    found: dict[str, Any] = json.loads(to_json(estimated(tmp_path / "a", 0.9)))
    source = found["energy_source"]
    assert source["total_error"] == 0.9
    assert run_of(found).total_error == 0.9
    del source["total_error"]
    assert run_of(found).total_error == 0.5
    for nonsense in (-1, "NaN", "much", None):
        source["total_error"] = nonsense
        with pytest.raises(QjouleError):
            run_of(found)


def run_of(found: dict[str, Any]) -> RunForms:
    return forms_from_json(json.dumps(found).encode(), "run.json")
