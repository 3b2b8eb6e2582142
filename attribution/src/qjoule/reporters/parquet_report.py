# SPDX-License-Identifier: Apache-2.0
"""Attribution as a Parquet file: the rows of the CSV, and the JSON document's head as metadata."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa

from qjoule.errors import QjouleError
from qjoule.model.result import Attribution
from qjoule.reporters.csv_report import flat_rows
from qjoule.reporters.json_report import SCHEMA, document
from qjoule.trace.arrow import pq

_INTEGERS = ("calls", "cpu_ns", "traces")
#: Prefixes of the columns of `reporters.impact` that are numbers.
_IMPACT = ("kwh", "cost", "gco2e", "pue", "price_per_kwh", "i_gco2e", "m_gco2e")


def write_parquet(attribution: Attribution, path: Path) -> None:
    """Writes the file. Raises `QjouleError` if it cannot be written."""
    try:
        pq.write_table(to_table(attribution), path)
    except OSError as error:
        raise QjouleError(f"cannot write {path}: {error.strerror or error}") from error


def to_table(attribution: Attribution) -> pa.Table:
    """The rows as a table; metadata key `qjoule.attribution/1` has everything else."""
    records = flat_rows(attribution)
    head = {k: v for k, v in document(attribution).items() if k not in ("rows", "fixed")}
    fields = [pa.field(name, _type(name)) for name in records[0]]
    schema = pa.schema(fields, {SCHEMA: json.dumps(head)})
    return pa.Table.from_pylist(records, schema)


def _type(name: str) -> pa.DataType:
    if name in _INTEGERS:
        return pa.int64()
    numeric = name.startswith(("energy_j", "j_per_call", "latency_ns", "power_factor", "commit_"))
    numeric |= name.startswith(_IMPACT)
    numeric |= name in ("share", "shared_j", "cycles", "instructions", "llc_misses", "total_error")
    return pa.float64() if numeric else pa.string()
