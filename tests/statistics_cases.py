"""Published data sets, what R says of them (tests/golden/statistics), and tables of runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from qjoule.studies.statistics.design import Design, blocks_of, encode

GOLDEN = Path(__file__).parent / "golden" / "statistics"


def load(name: str) -> pd.DataFrame:
    return pd.read_csv(GOLDEN / "data" / f"{name}.csv")


def reference(columns: Mapping[str, Any]) -> pd.DataFrame:
    return pd.DataFrame(dict(columns))


@cache
def _golden() -> pd.DataFrame:
    return pd.read_csv(GOLDEN / "reference.csv", dtype=str)


def golden(data: str, test: str) -> dict[str, dict[str, float]]:
    """What R says: term -> statistic -> value."""
    table = _golden()
    found: dict[str, dict[str, float]] = {}
    for row in table[(table["data"] == data) & (table["test"] == test)].itertuples():
        found.setdefault(str(row.term), {})[str(row.statistic)] = float(str(row.value))
    assert found
    return found


def golden_letters(data: str) -> dict[str, str]:
    table = _golden()
    table = table[(table["data"] == data) & (table["test"] == "letters")]
    return dict(zip(table["term"], table["value"], strict=True))


def design_of(table: pd.DataFrame, factors: Sequence[str], block: str | None = None) -> Design:
    encoded = [encode(table[name].tolist()) for name in factors]
    return Design(
        tuple(factors),
        tuple(levels for _, levels in encoded),
        np.column_stack([codes for codes, _ in encoded]),
        blocks_of(table[block].tolist()) if block else None,
    )
