# SPDX-License-Identifier: Apache-2.0
"""Questions to small datasets, and parts that are changed afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import fleet_dataset
from qjoule.agent.rollup_layout import HOUR_S
from qjoule_fleet.catalog import Catalog, Selection
from qjoule_fleet.files import dataset
from qjoule_fleet.questions import parse_by
from qjoule_fleet.reader import Engine, InProcess, Question, Reader
from qjoule_fleet.relations import Limits
from qjoule_fleet.times import Range
from qjoule_fleet.top import Top, top

BEGIN_S = fleet_dataset.begin_s()


def hours(first: float = 0, last: float = 3) -> Range:
    return Range(BEGIN_S + int(first * HOUR_S), BEGIN_S + int(last * HOUR_S))


def selected(root: Path, within: Range | None = None) -> Selection:
    return Catalog(dataset(str(root))).sums(within or hours())


def top_of(
    root: Path | str,
    by: str = "host",
    within: Range | None = None,
    *,
    limit: int | None = 20,
    latency: bool = False,
    absolute: bool = False,
    engine: Engine | None = None,
) -> Top:
    reader = Reader(dataset(str(root)), Limits(200, 1), engine or InProcess())
    question = Question(parse_by(by), limit=limit, latency=latency, absolute=absolute)
    return top(reader, within or hours(), question)


def energies(answer: Top) -> dict[str, int]:
    return {" ".join(row.keys.values()): row.energy_nj for row in answer.rows}


def totals(answer: Top) -> dict[tuple[str, str], tuple[int, ...]]:
    return {
        (total.grade, total.policy): (total.node_nj, total.calls, total.cpu_ns, total.lost_records)
        for total in answer.totals
    }


def assert_same(first: Top, second: Top) -> None:
    """Integers are equal, intervals to the rounding of sums."""
    assert totals(first) == totals(second) and first.count == second.count
    for a, b in zip(first.rows, second.rows, strict=True):
        exact = ("keys", "grade", "policy", "energy_nj", "calls", "cpu_ns", "hosts", "shapes")
        for name in (*exact, "text", "texts", "ids", "latency_ns_p95", "waits", "helpers"):
            assert getattr(a, name) == getattr(b, name)
        assert b.energy_nj_ci95 == pytest.approx(a.energy_nj_ci95, rel=1e-9)


def rewritten(path: Path, *, metadata: dict[str, str] | None = None, **columns: Any) -> None:
    """Changes a part: keys of its metadata, and columns by functions of its rows; None: gone."""
    table = pq.read_table(path, partitioning=None)
    keys = {key.decode(): value.decode() for key, value in table.schema.metadata.items()}
    for name, values in columns.items():
        if name in table.schema.names:
            table = table.drop_columns([name])
        if values is not None:
            table = table.append_column(name, values(table))
    new_metadata = {key: value for key, value in {**keys, **(metadata or {})}.items() if value}
    pq.write_table(table.replace_schema_metadata(new_metadata), path)
