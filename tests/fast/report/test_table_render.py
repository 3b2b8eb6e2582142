# SPDX-License-Identifier: Apache-2.0
"""The energy table: its appearance, its sums, the model's notes, and words for what is missing."""

from __future__ import annotations

import csv
import io
import json
import math
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
from qjoule.model.result import PARTS, AloneTime, Attribution, Domain, ModelInfo
from qjoule.reporters import format as fmt
from qjoule.reporters import missing
from qjoule.reporters.json_report import to_arrow, to_json
from qjoule.reporters.live_frame import _calibration
from qjoule.reporters.live_screen import compose
from qjoule.reporters.live_state import ViewState
from qjoule.reporters.missing import alarm_of
from qjoule.reporters.provenance import footing
from qjoule.reporters.result_columns import to_csv
from qjoule.reporters.table import render
from qjoule.snapshots import Snapshot
from qjoule.trace.vocabulary import CAUSES

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


@pytest.mark.parametrize("width", [80, 200])
def test_a_column_per_key_tells_rows_apart(width: int) -> None:
    names = [("shop_frontend", "orders"), ("shop_frontend", "stock"), ("postgres", "orders")]
    shapes = ("SELECT balance FROM accounts WHERE id = ?", "SELECT count(*) FROM orders")
    rows = [
        query_row(J, shape, keys={"fingerprint": "af" * 8, "user": user, "database": database})
        for user, database in names
        for shape in shapes
    ]
    result = attribution(tuple(rows), {"queries": 6 * J})
    state = ViewState(group="fingerprint,user,database")
    state.accept(Snapshot(result, result, 1.0))
    screen = [line.plain() for line in compose(state, width, 24)]
    for lines in (render(result, width=width).splitlines(), screen):
        shown = [line for line in lines if "SELECT " in line]
        for line, (user, database, shape) in zip(
            shown, [(*name, shape) for name in names for shape in shapes], strict=True
        ):
            assert user[:8] in line and database in line and shape[:16] in line


def test_without_an_energy_source_energies_are_unknown_and_not_zero() -> None:
    text = render(attribution((query_row(0, "SELECT ?"),), {}, grade="none"), width=120)
    assert "energies are unknown" in text
    row = next(line for line in text.splitlines() if line.startswith("SELECT"))
    assert row.count(fmt.UNKNOWN) >= 4
    assert not re.search(r"\b0\.000\b", text)


# ---- what is missing -----------------------------------------------------------------------------


def test_every_cause_of_loss_has_words() -> None:
    causes = {name for name in CAUSES if name} | {cause.name.lower() for cause in Loss}
    for cause in causes - {"max"}:
        text = missing.loss(typical(loss={cause: 1234}))
        assert text.startswith("1,234 ")
        assert f"1,234 {cause.replace('_', ' ')} ·" not in text, "the cause's bare name"


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


@pytest.mark.parametrize(
    ("loss", "counted", "begins"),
    [
        ({"framing": 5, "query": 6}, 989, "1.1 % of requests were lost (11, 989 seen)"),
        (
            *({"framing": 9, "query": 2}, 989),
            "1.1 % of requests were lost (11, 989 seen, mostly by framing: a client that",
        ),
        ({"opaque_session": 3}, 0, "no request was seen, and 3 sessions are hidden"),
        ({}, 0, ""),
        ({"framing": 1, "query": 9}, 990, ""),
        ({"switch": 1000, "multiplexed": 1000, "text": 10, "prepared": 5}, 10, ""),
    ],
)
def test_lost_requests_are_an_alarm_from_one_percent_on(
    loss: dict[str, int], counted: int, begins: str
) -> None:
    alarm = alarm_of(loss, counted)
    assert alarm.startswith(begins) and bool(alarm) == bool(begins)


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
        alone=AloneTime(2.1, 1.1),
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


def test_the_table_names_statements_that_draw_more_than_their_weight() -> None:
    text = render(modelled(), width=80)
    assert f"draws     1.24{TIMES} [1.10, 1.40] what its weight says: SELECT sort" in text
    assert text.count("what its weight says") == 1  # the other's interval contains 1
    assert "not_separable" in text
    assert all(cell_len(line) <= 80 for line in text.splitlines())
    assert "draws" not in render(typical(), width=120)  # no factor was learned


def test_notes_describe_the_calibration_and_its_doubts() -> None:
    text = "\n".join(f"{name}: {note}" for name, note in footing(modelled()))
    for phrase in (
        "weighted by hardware counters · calibrated: db1, 2026-11-01, Intel",
        "held-out error package 3.1 %, dram 8.0 %",
        "the calibration was made with another governor",
        "the calibration is 200 days old",
        "power drifted in 2 blocks",
    ):
        assert phrase in text
    fits = replace(CALIBRATED, calibration_flags=())
    assert _calibration(modelled()) == ("calibrated, in doubt", "warn")
    assert _calibration(replace(modelled(), model=fits)) == ("calibrated", "dim")


def test_files_have_the_model_and_what_it_says_of_each_row() -> None:
    document: dict[str, Any] = json.loads(to_json(modelled()))
    assert document["model"]["calibration"].startswith("db1")
    assert len(document["model"]["calibration_flags"]) == 2
    assert document["model"]["held_out_errors"] == {"package": 0.031, "dram": 0.08}
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
    table = to_arrow(modelled()).to_pylist()
    assert (table[0]["power_factor_high95"], table[0]["energy_j_dram_low95"]) == (1.40, 1.5)
    assert table[1]["shared_j"] is None


# ---- figures -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0 J"),
        (1.5e-6, "1.50 µJ"),
        (0.9996, "1.00 J"),
        (12_345.0, "12.3 kJ"),
        (-0.002, "-2.00 mJ"),
        (None, fmt.UNKNOWN),
        (math.nan, fmt.UNKNOWN),
    ],
)
def test_joules(value: float | None, text: str) -> None:
    assert fmt.joules(value) == text


@pytest.mark.parametrize(
    ("value", "ci", "text"),
    [
        (1.234e-3, (1.194e-3, 1.274e-3), "1.23 ± 0.04 mJ"),
        (1.2, (1.1, 1.5), "1.20 +0.30 \N{MINUS SIGN}0.10 J"),
        (123.456, (123.416, 123.496), "123.46 ± 0.04 J"),
        (0.0, (0.0, 0.004), "0.0 +4.0 \N{MINUS SIGN}0 mJ"),
        (1.0, None, f"1.00 ± {fmt.UNKNOWN} J"),
        (math.nan, (0.0, 1.0), fmt.UNKNOWN),
    ],
)
def test_interval(value: float, ci: tuple[float, float] | None, text: str) -> None:
    assert fmt.with_interval(value, ci) == text


@given(
    st.floats(1e-9, 1e9),
    st.floats(0, 2),
)
def test_a_printed_interval_is_never_narrower_nor_zero(value: float, relative: float) -> None:
    half = value * relative
    text = fmt.with_interval(value, (value - half, value + half))
    figure, _, half_width = text.partition(" ± ")
    width, unit = half_width.split(" ")
    scale = {"n": 1e-9, "µ": 1e-6, "m": 1e-3, "J": 1, "k": 1e3, "M": 1e6, "G": 1e9}[unit[0]]
    assert float(width) * scale >= half * (1 - 1e-6) - value * 1e-6
    assert float(figure) * scale == pytest.approx(value, rel=0.006)


energies = st.integers(-(10**9), 10**16) | st.just(0)


@given(st.lists(energies, min_size=1, max_size=40))
def test_printed_energies_add_up_to_the_printed_total(parts_nj: list[int]) -> None:
    column = fmt.energy_column(parts_nj)
    figures, total = list(map(_decimal, column.figures)), _decimal(column.total)
    assert sum(figures) == total
    exponent = {"n": -9, "µ": -6, "m": -3, "J": 0, "k": 3, "M": 6, "G": 9}[column.unit[0]]
    quantum_nj = Decimal(10) ** (exponent + 9) * (
        Decimal(1).scaleb(total.as_tuple().exponent)  # type: ignore[arg-type]
    )
    for part_nj, figure in zip(parts_nj, figures, strict=True):
        assert abs(figure * Decimal(10) ** (exponent + 9) - part_nj) < quantum_nj
        if part_nj == 0:
            assert figure == 0


def _decimal(figure: str) -> Decimal:
    return Decimal(figure.replace(",", ""))


@pytest.mark.parametrize(
    ("parts_nj", "unit", "figures"),
    [
        ((14_105 * 10**9, 2 * 10**6), "J", ("14,105.000", "0.002")),
        ((2_000_000 * 10**9, 3 * 10**9), "kJ", ("2,000.000", "0.003")),
        ((5 * 10**8, 10**3), "mJ", ("500.000", "0.001")),
        ((-1_234_567 * 10**6, 0), "J", ("-1,234.567", "0.000")),
    ],
)
def test_small_parts_are_seen_beside_a_large_total(
    parts_nj: tuple[int, ...], unit: str, figures: tuple[str, ...]
) -> None:
    column = fmt.energy_column(parts_nj)
    assert (column.unit, column.figures) == (unit, figures)


@pytest.mark.parametrize("width", [60, 80])
def test_shares_come_first_where_the_total_is_an_estimate(width: int) -> None:
    result = typical()
    source = replace(result.energy_source, grade="estimated", total_error=0.4)
    text = render(replace(result, energy_source=source), width=width)
    heading = next(line for line in text.splitlines() if line.startswith("query "))
    assert heading.split()[1] == "share"
    idle = next(line for line in text.splitlines() if line.startswith("idle  ") and ":" not in line)
    assert "%" not in idle
    assert "without idle and residual" in " ".join(text.split())
