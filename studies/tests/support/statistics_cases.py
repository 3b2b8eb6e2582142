# SPDX-License-Identifier: Apache-2.0
"""Published data sets, R's results for them (studies/fast/golden), and tables of runs."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from qjoule.report.study_runs import FACTOR, FILE
from qjoule_studies.statistics.design import Design, blocks_of, encode

GOLDEN = Path(__file__).parents[1] / "fast/golden/statistics"


def load(name: str) -> pd.DataFrame:
    return pd.read_csv(GOLDEN / "data" / f"{name}.csv", encoding="utf-8")


@cache
def _golden() -> pd.DataFrame:
    return pd.read_csv(GOLDEN / "reference.csv", dtype=str)


def golden(data: str, test: str) -> dict[str, dict[str, float]]:
    """R's results: term -> statistic -> value."""
    table = _golden()
    results: dict[str, dict[str, float]] = {}
    for row in table[(table["data"] == data) & (table["test"] == test)].itertuples():
        results.setdefault(str(row.term), {})[str(row.statistic)] = float(str(row.value))
    assert results
    return results


def golden_cases() -> list[tuple[str, str]]:
    """All (data set, test) that R computed."""
    return list(dict.fromkeys(zip(_golden()["data"], _golden()["test"], strict=True)))


def design_of(table: pd.DataFrame, factors: Sequence[str], block: str | None = None) -> Design:
    encoded = [encode(table[name].tolist()) for name in factors]
    return Design(
        tuple(factors),
        tuple(levels for _, levels in encoded),
        np.column_stack([codes for codes, _ in encoded]),
        blocks_of(table[block].tolist()) if block else None,
    )


def runs_of(
    table: pd.DataFrame, response: str, factors: Sequence[str], column: str = "j_per_operation"
) -> pd.DataFrame:
    """A study's table of runs (`qjoule.report.study_runs.read_runs`) with these values."""
    rows = []
    for number, row in enumerate(table.to_dict("records"), 1):
        levels = {FACTOR + name: row[name] for name in factors}
        rows.append(run(number, **{column: float(row[response])}) | levels)
    return pd.DataFrame(rows)


def run(number: int, **fields: Any) -> dict[str, Any]:
    """A finished run with 3 J and 1 s for 1000 operations, unless `fields` say otherwise."""
    return {
        "run": number,
        "block": 1,
        "replication": 1,
        "status": "done",
        "problem": "",
        "flags": [],
        "start": "2024-05-06T07:08:09+00:00",
        "wall_s": 1.0 + number % 7 / 100,
        "operations": 1000,
        "errors": 0,
        "energy_j": 3.0 + number % 5 / 10,
        "j_per_operation": 0.003,
        "j_per_operation_low": None,
        "j_per_operation_high": None,
        "grade": "simulated",
        "idle_policy": "separate",
        "energy_source": "test",
        "machine": "host A",
        "client": "qjoule",
        "trace": f"runs/{number}",
    } | fields


def write_study(folder: Path, table: pd.DataFrame) -> Path:
    """Writes a table of runs to `runs.jsonl`, as `qjoule bench` does."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / FILE).open("w", encoding="utf-8") as file:
        for row in table.to_dict("records"):
            factors = {
                str(name)[len(FACTOR) :]: row.pop(name)
                for name in list(row)
                if str(name).startswith(FACTOR)
            }
            columns = {
                str(name): None if isinstance(value, float) and math.isnan(value) else value
                for name, value in row.items()
            }
            file.write(json.dumps({**columns, "factors": factors}) + "\n")
    return folder
