# SPDX-License-Identifier: Apache-2.0
"""What reports show of the model: calibration, factors, shared energy, DRAM and what is missing."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from typing import Any

from rich.cells import cell_len

from fake_attribution import attribution, query_row, typical
from qjoule.model.result import PARTS, Alone, Attribution, Domain, ModelInfo
from qjoule.reporters import format as fmt
from qjoule.reporters import power
from qjoule.reporters.csv_report import to_csv
from qjoule.reporters.json_report import to_json
from qjoule.reporters.live_detail import _figures
from qjoule.reporters.live_header import _calibration
from qjoule.reporters.parquet_report import to_table
from qjoule.reporters.provenance import footing
from qjoule.reporters.table import render

J = 10**9
TIMES = "\N{MULTIPLICATION SIGN}"
CALIBRATED = ModelInfo(
    "counters",
    {"a": 0.4},
    calibrated=True,
    held_out_error=0.031,
    notes=("package power drifted in 2 blocks",),
    held_out_errors={"package": 0.031, "dram": 0.08},
    calibration="db1, 2026-11-01, Intel(R) Xeon(R) Gold 6130",
    calibration_flags=("was made with another governor", "is 200 days old"),
)


def modelled() -> Attribution:
    """Two queries with DRAM: one draws more than its weight, the other could not be separated."""
    hot = query_row(
        6 * J,
        "SELECT sort",
        power_factor=(1.24, 1.10, 1.40),
        alone=Alone(2.1, 1.1),
        energy_by_domain_nj={"dram": 2 * J},
        energy_by_domain_ci95={"dram": (1.5 * J, 2.5 * J)},
        shared_nj=J,
    )
    blurred = query_row(
        4 * J,
        "SELECT scan",
        flags=("not_separable",),
        power_factor=(1.02, 0.9, 1.15),
        energy_by_domain_nj={"dram": J},
    )
    base = attribution((hot, blurred), {"idle": 5 * J})
    parts = dict.fromkeys(PARTS, 0) | {"queries": 3 * J, "idle": J}
    return dataclasses.replace(
        base, model=CALIBRATED, domains=(*base.domains, Domain("dram", 4 * J, parts))
    )


def without_dram(found: Attribution) -> Attribution:
    source = dataclasses.replace(found.energy_source, domains=("package",))
    return dataclasses.replace(found, energy_source=source, domains=found.domains[:1])


def notes(found: Attribution) -> str:
    return "\n".join(f"{name}: {text}" for name, text in footing(found))


def test_the_table_names_who_draws_more_than_the_weights_say() -> None:
    text = render(modelled(), width=80)
    assert f"draws     1.24{TIMES} [1.10, 1.40] what its weight says: SELECT sort" in text
    assert text.count("what its weight says") == 1  # the other's interval contains 1
    assert "not_separable" in text
    assert all(cell_len(line) <= 80 for line in text.splitlines())


def test_less_than_its_weight_is_told_too_and_only_of_rows_that_are_shown() -> None:
    rows = tuple(query_row((9 - i) * J, f"q{i}", power_factor=(0.8, 0.7, 0.9)) for i in range(6))
    found = attribution(rows, {})
    lines = list(power.factors(found, 20))
    assert len(lines) == 4
    assert lines[0] == ("draws", f"0.800{TIMES} [0.700, 0.900] what its weight says: q0")
    assert lines[-1] == ("", "and 3 more")
    assert len(list(power.factors(found, 2))) == 2


def test_a_factor_that_was_not_learned_is_no_factor() -> None:
    assert not power.defies_its_weight(query_row(J))
    assert power.factor(query_row(J)) == fmt.UNKNOWN
    assert "draws" not in render(typical(), width=120)


def test_notes_say_by_what_it_is_calibrated_and_what_does_not_fit() -> None:
    text = notes(modelled())
    assert "weighted by hardware counters · calibrated: db1, 2026-11-01, Intel" in text
    assert "held-out error package 3.1 %, dram 8.0 %" in text
    assert "the calibration was made with another governor" in text
    assert "the calibration is 200 days old" in text
    assert "power drifted in 2 blocks" in text
    assert "model: weighted by CPU time · not calibrated" in notes(typical())


def test_one_held_out_error_is_that_of_the_main_domain() -> None:
    plain = dataclasses.replace(CALIBRATED, held_out_errors={}, calibration="")
    text = notes(dataclasses.replace(modelled(), model=plain))
    assert "calibrated · held-out error 3.1 %" in text


def test_dram_without_a_counter_is_unavailable_not_nothing() -> None:
    assert "dram: unavailable" in notes(without_dram(modelled()))
    assert "dram (its own ledger)" in notes(modelled())
    assert "unavailable" not in notes(modelled())
    assert power.unavailable(attribution((), {}, grade="none")) == ()


def document(found: Attribution) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(to_json(found))
    return parsed


def test_json_has_the_model_and_what_it_said_of_each_row() -> None:
    found = document(modelled())
    assert found["model"]["calibration"].startswith("db1")
    assert len(found["model"]["calibration_flags"]) == 2
    assert found["model"]["held_out_errors"] == {"package": 0.031, "dram": 0.08}
    assert found["energy_source"]["unavailable"] == []
    hot, blurred = found["rows"]
    assert hot["power_factor"] == 1.24
    assert hot["power_factor_ci95"] == [1.10, 1.40]
    assert (hot["alone_s"], hot["alone_information_nats"]) == (2.1, 1.1)
    assert "alone_s" not in blurred, "it never ran alone"
    assert hot["shared_j"] == 1
    assert hot["energy_by_domain_j_ci95"] == {"dram": [1.5, 2.5]}
    assert blurred["flags"] == ["not_separable"]
    assert blurred["shared_j"] is None  # unknown is not 0
    assert "energy_by_domain_j_ci95" not in blurred
    assert document(without_dram(modelled()))["energy_source"]["unavailable"] == ["dram"]


def test_csv_and_parquet_have_a_column_for_each() -> None:
    hot, blurred, *_ = csv.DictReader(io.StringIO(to_csv(modelled())))
    assert (hot["power_factor"], hot["power_factor_low95"]) == ("1.24", "1.1")
    assert (hot["energy_j_dram"], hot["energy_j_dram_high95"]) == ("2.0", "2.5")
    assert (blurred["shared_j"], blurred["energy_j_dram_low95"]) == ("", "")
    assert hot["calibrated"] == "yes"
    table = to_table(modelled()).to_pylist()
    assert table[0]["power_factor_high95"] == 1.40
    assert table[0]["energy_j_dram_low95"] == 1.5
    assert table[1]["shared_j"] is None


def test_the_drill_down_of_the_live_view_has_them() -> None:
    found = modelled()
    figures = dict(_figures(found.rows[0], found))
    assert figures["power / weight"] == f"1.24{TIMES} [1.10, 1.40]"
    assert figures["ran alone"] == f"2.10 s, which makes the factor 3.00{TIMES} as certain"
    assert figures["of it shared"] == "1.00 J"
    assert figures["energy, dram"] == "2.00 ± 0.50 J"
    assert "ran alone" not in dict(_figures(found.rows[1], found))
    assert "of it shared" not in dict(_figures(found.rows[1], found))


def test_the_live_header_doubts_a_calibration_that_does_not_fit() -> None:
    fits = dataclasses.replace(CALIBRATED, calibration_flags=())
    assert _calibration(modelled()) == ("calibrated, in doubt", "warn")
    assert _calibration(dataclasses.replace(modelled(), model=fits)) == ("calibrated", "dim")
    assert _calibration(typical()) == ("not calibrated", "dim")
