# SPDX-License-Identifier: Apache-2.0
"""Questions to small datasets, and parts that are changed afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import fleet_dataset as made
from qjoule.fleet.asked import InProcess, Question, Reader
from qjoule.fleet.catalog import Catalog, Selection
from qjoule.fleet.files import dataset
from qjoule.fleet.layout import HOUR_S
from qjoule.fleet.questions import parse_by
from qjoule.fleet.relations import Limits
from qjoule.fleet.times import Range
from qjoule.fleet.top import Top, top

BEGIN_S = made.begin_s()


def hours(first: float = 0, last: float = 3) -> Range:
    return Range(BEGIN_S + int(first * HOUR_S), BEGIN_S + int(last * HOUR_S))


def selected(root: Path, asked: Range | None = None) -> Selection:
    return Catalog(dataset(str(root))).sums(asked or hours())


def asked(root: Path, by: str = "host", found: Range | None = None) -> Top:
    reader = Reader(dataset(str(root)), Limits(200, 1), InProcess())
    return top(reader, found or hours(), Question(parse_by(by), latency=False))


def energies(found: Top) -> dict[str, int]:
    return {" ".join(row.keys.values()): row.energy_nj for row in found.rows}


def rewritten(path: Path, *, metadata: dict[str, str] | None = None, **columns: Any) -> None:
    table = pq.read_table(path, partitioning=None)
    keys = {key.decode(): value.decode() for key, value in table.schema.metadata.items()}
    for name, values in columns.items():
        at = table.schema.names.index(name)
        table = table.remove_column(at)
        if values is not None:
            table = table.append_column(name, values(table))
    found = {key: value for key, value in {**keys, **(metadata or {})}.items() if value}
    pq.write_table(table.replace_schema_metadata(found), path)
