# SPDX-License-Identifier: Apache-2.0
"""The energy table: its appearance, its sums, the model's notes, and words for what is missing."""

from __future__ import annotations

import csv
import io
import json
import os
import re
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from fake_attribution import attribution, query_row, typical
from qjoule.contract import Loss
from qjoule.model.arrays import Anomalies
from qjoule.model.energy import Cause
from qjoule.model.result import PARTS, Alone, Attribution, Domain, ModelInfo
from qjoule.reporters import format as fmt
from qjoule.reporters import missing, power
from qjoule.reporters.csv_report import to_csv
from qjoule.reporters.json_report import to_json
from qjoule.reporters.live_detail import _figures
from qjoule.reporters.live_header import _calibration
from qjoule.reporters.parquet_report import to_table
from qjoule.reporters.provenance import footing
from qjoule.reporters.table import render
from qjoule.trace.schema import CAUSES

GOLDEN = Path(__file__).parents[1] / "golden"
J = 10**9
TIMES = "\N{MULTIPLICATION SIGN}"


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_golden(width: int) -> None:
    """Run with QJOULE_UPDATE_GOLDEN=1 to accept a changed table."""
    path = GOLDEN / f"table_{width}.txt"
    text = render(typical(loss={"SEGMENT": 12, "TEXT": 3}, complete=False), width=width)
    if os.environ.get("QJOULE_UPDATE_GOLDEN"):
        path.write_text(text, "utf-8")
    assert text == path.read_text("utf-8")


def _energy_cells(text: str) -> list[Decimal]:
    """The energy column of the table, located by its heading; the total is last."""
    lines = text.splitlines()
    top = next(index for index, line in enumerate(lines) if "energy " in line and "query" in line)
    heading = re.search(r"energy \S?J", lines[top])
    assert heading
    body = lines[top + 1 : lines.index("", top)]
    cells = [line[: heading.end()].split()[-1] for line in body if not line.startswith("─")]
    return [Decimal(cell.replace(",", "")) for cell in cells]


@given(
    st.lists(st.integers(0, 10**14), max_size=30),
    st.lists(st.integers(0, 10**14), min_size=6, max_size=6),
    st.integers(0, 25),
)
def test_printed_energies_add_up_to_the_printed_total(
    energies: list[int], fixed: list[int], limit: int
) -> None:
    rows = tuple(query_row(energy, f"q{index}") for index, energy in enumerate(energies))
    parts = dict(zip(PARTS[1:], fixed, strict=True))
    text = render(attribution(rows, parts), width=120, limit=limit)
    *lines, total = _energy_cells(text)
    assert sum(lines) == total
    expected = min(limit, len(rows)) + len(fixed)
    assert len(lines) in (expected, expected + 1)


def test_energy_that_no_row_has_is_shown() -> None:
    whole = typical()
    main = replace(whole.main, measured_nj=whole.main.measured_nj + 7 * J)
    text = render(replace(whole, domains=(main,)), width=120)
    assert re.search(r"NOT ACCOUNTED FOR +7\.000", text)


def test_without_an_energy_source_energies_are_unknown_and_not_zero() -> None:
    text = render(attribution((query_row(0, "SELECT ?"),), {}, grade="none"), width=120)
    assert "energies are unknown" in text
    row = next(line for line in text.splitlines() if line.startswith("SELECT"))
    assert row.count(fmt.UNKNOWN) >= 4
    assert not re.search(r"\b0\.000\b", text)


def test_flags_are_explained_and_markup_is_text() -> None:
    row = query_row(10**9, "[red]SELECT[/red]", flags=("below_resolution", "[bold]flag"))
    text = render(attribution((row,), {}), width=120)
    assert "a below_resolution" in text
    assert "[bold]flag" in text
    assert any(line.startswith("[red]SELECT[/red]") and " a" in line for line in text.splitlines())


# ---- what is missing -----------------------------------------------------------------------------


def test_every_cause_of_loss_has_words() -> None:
    causes = {name for name in CAUSES if name} | {cause.name.lower() for cause in Loss}
    for cause in causes - {"max"}:
        text = missing.loss(typical(loss={cause: 1234}))
        assert text.startswith("1,234 ")
        assert f"1,234 {cause.replace('_', ' ')} ·" not in text, "the cause's bare name"
    counts = {"switch": 59, "query": 1, "text": 0}
    report = typical(loss=counts)
    assert missing.lost(counts, report.trace.lost_cpu_ns) == missing.loss(report)


def test_unknown_windows_and_anomalies_have_words_and_units() -> None:
    for cause in set(Cause) - {Cause.NONE}:
        name = cause.name.lower()
        text = missing.windows(replace(typical(), window_causes={f"dram {name}": 3}))
        assert text.startswith("of 625: 3 ") and text.endswith("(dram)")
        assert f"3 {name} (" not in text
    for name in vars(Anomalies()):
        text = missing.anomalies(replace(typical(), anomalies={name: 5 * J}))
        assert text.startswith("5.00 s " if name.endswith("_ns") else "5.00 G ")
        assert name.replace("_", " ") not in text
    negligible = replace(typical(), anomalies={"overlap_ns": 11_000, "outside_ns": 10**8})
    assert missing.anomalies(negligible) == ""


def test_the_table_says_what_is_missing_and_nothing_more() -> None:
    nothing = render(typical(), width=120)
    assert "\nwindows" not in nothing and "\noddities" not in nothing
    whole = replace(
        typical(loss={"switch": 2}), window_causes={"reset": 1}, anomalies={"late": 4, "new": 1}
    )
    flat = " ".join(render(whole, width=120).split())
    assert "loss 2 context switches not shown by the kernel · 1.50 ms of CPU time" in flat
    assert "windows of 625: 1 in which the counter was reset" in flat
    assert "oddities 4 segments came after their window was closed · 1 new" in flat


# ---- the model -----------------------------------------------------------------------------------

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
    return replace(base, model=CALIBRATED, domains=(*base.domains, Domain("dram", 4 * J, parts)))


def without_dram() -> Attribution:
    whole = modelled()
    source = replace(whole.energy_source, domains=("package",))
    return replace(whole, energy_source=source, domains=whole.domains[:1])


def notes(whole: Attribution) -> str:
    return "\n".join(f"{name}: {text}" for name, text in footing(whole))


def test_the_table_names_statements_that_draw_more_than_their_weight() -> None:
    text = render(modelled(), width=80)
    assert f"draws     1.24{TIMES} [1.10, 1.40] what its weight says: SELECT sort" in text
    assert text.count("what its weight says") == 1  # the other's interval contains 1
    assert "not_separable" in text
    assert all(cell_len(line) <= 80 for line in text.splitlines())
    assert "draws" not in render(typical(), width=120)  # no factor was learned


def test_notes_describe_the_calibration_and_its_doubts() -> None:
    text = notes(modelled())
    for words in (
        "weighted by hardware counters · calibrated: db1, 2026-11-01, Intel",
        "held-out error package 3.1 %, dram 8.0 %",
        "the calibration was made with another governor",
        "the calibration is 200 days old",
        "power drifted in 2 blocks",
    ):
        assert words in text
    assert "model: weighted by CPU time · not calibrated" in notes(typical())
    main_alone = replace(CALIBRATED, held_out_errors={}, calibration="")
    assert "calibrated · held-out error 3.1 %" in notes(replace(modelled(), model=main_alone))
    fits = replace(CALIBRATED, calibration_flags=())
    assert _calibration(modelled()) == ("calibrated, in doubt", "warn")
    assert _calibration(replace(modelled(), model=fits)) == ("calibrated", "dim")
    assert _calibration(typical()) == ("not calibrated", "dim")


def test_dram_without_a_counter_is_unavailable() -> None:
    assert "dram: unavailable" in notes(without_dram())
    assert "dram (its own ledger)" in notes(modelled())
    assert "unavailable" not in notes(modelled())
    assert power.unavailable(attribution((), {}, grade="none")) == ()


def test_files_have_the_model_and_what_it_says_of_each_row() -> None:
    document: dict[str, Any] = json.loads(to_json(modelled()))
    assert document["model"]["calibration"].startswith("db1")
    assert len(document["model"]["calibration_flags"]) == 2
    assert document["model"]["held_out_errors"] == {"package": 0.031, "dram": 0.08}
    assert document["energy_source"]["unavailable"] == []
    assert json.loads(to_json(without_dram()))["energy_source"]["unavailable"] == ["dram"]
    hot, blurred = document["rows"]
    assert (hot["power_factor"], hot["power_factor_ci95"]) == (1.24, [1.10, 1.40])
    assert (hot["alone_s"], hot["alone_information_nats"]) == (2.1, 1.1)
    assert (hot["shared_j"], hot["energy_by_domain_j_ci95"]) == (1, {"dram": [1.5, 2.5]})
    assert blurred["shared_j"] is None  # unknown is not 0
    assert not {"alone_s", "energy_by_domain_j_ci95"} & set(blurred)
    hot, blurred, *_ = csv.DictReader(io.StringIO(to_csv(modelled())))
    assert (hot["power_factor"], hot["power_factor_low95"]) == ("1.24", "1.1")
    assert (hot["energy_j_dram"], hot["energy_j_dram_high95"]) == ("2.0", "2.5")
    assert (blurred["shared_j"], blurred["energy_j_dram_low95"]) == ("", "")
    assert hot["calibrated"] == "yes"
    table = to_table(modelled()).to_pylist()
    assert (table[0]["power_factor_high95"], table[0]["energy_j_dram_low95"]) == (1.40, 1.5)
    assert table[1]["shared_j"] is None


def test_the_live_view_has_them_in_its_details() -> None:
    hot, blurred = (dict(_figures(row, modelled())) for row in modelled().rows)
    assert hot["power / weight"] == f"1.24{TIMES} [1.10, 1.40]"
    assert hot["ran alone"] == f"2.10 s, which makes the factor 3.00{TIMES} as certain"
    assert hot["of it shared"] == "1.00 J"
    assert hot["energy, dram"] == "2.00 ± 0.50 J"
    assert not {"ran alone", "of it shared"} & set(blurred)
