# SPDX-License-Identifier: Apache-2.0
"""Formats `qjoule fleet top` as JSON (`qjoule.fleet/1`), CSV and Parquet.

CSV and Parquet have a line for every part of the total, so that `energy_nj` of the lines of one
grade and policy adds up to that of its line `total`.
"""

from __future__ import annotations

from decimal import Decimal
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any

from qjoule.api.rollups import HELPERS, WAITS
from qjoule.api.screen import format as fmt
from qjoule.api.screen import writers
from qjoule_fleet.times import iso
from qjoule_fleet.top import Row, Top, Total

SCHEMA = "qjoule.fleet/1"


def _waited(row: Row, at: int) -> int | None:
    return None if row.waits is None else row.waits[at]


def _helped(row: Row, at: int) -> int | None:
    return None if row.helpers is None else row.helpers[at]


#: Columns of a row, beside its keys. Only rows by fingerprint have a text and ids.
_FIGURES: writers.DataColumns[Row] = writers.DataColumns(
    (
        writers.field("grade", str),
        writers.field("policy", str),
        writers.field("energy_nj", Decimal),
        writers.DataColumn(
            "energy_j",
            float,
            lambda row: fmt.in_joules(row.energy_nj),
            lambda row: row.energy_nj_ci95 and [end / 1e9 for end in row.energy_nj_ci95],
        ),
        writers.field("share", float),
        writers.field("calls", int),
        writers.field("j_per_call", float, ci95=attrgetter("j_per_call_ci95")),
        writers.field("cpu_ns", int),
        writers.field("latency_ns_mean", float),
        writers.field("latency_ns_p50", float),
        writers.field("latency_ns_p95", float),
        *(writers.DataColumn(name, int, partial(_waited, at=at)) for at, name in enumerate(WAITS)),
        *(
            writers.DataColumn(name, int, partial(_helped, at=at))
            for at, name in enumerate(HELPERS)
        ),
        writers.field("hosts", int),
        writers.field("shapes", int),
    )
)
#: In CSV and Parquet, ends of intervals come after all values.
_IN_FILES = sorted(_FIGURES.types, key=lambda name: name.endswith(("_low95", "_high95")))
#: Loss of a class, error of its total, and the question's range and parts.
_ABOUT = {
    "lost_records": int,
    "lost_cpu_ns": int,
    "total_error": float,
    "error_in_rows": str,
    "from": str,
    "to": str,
    "refused_parts": int,
    "missing_hours": int,
}


def to_json(ranking: Top) -> str:
    return writers.json_text(document(ranking))


def document(ranking: Top) -> dict[str, Any]:
    """Returns the document as plain objects. Unknown values are null; energies in nJ are exact."""
    read = ranking.read
    return {
        "schema": SCHEMA,
        "from": iso(ranking.range.begin_s),
        "to": iso(ranking.range.end_s),
        "by": list(ranking.by.keys),
        "sort": ranking.sort,
        "rows": [_row(row) for row in ranking.rows],
        "other_rows": ranking.hidden,
        "totals": [_total(total) for total in ranking.totals],
        "read": {
            "parts": read.parts,
            "bytes": read.bytes,
            "hosts": read.hosts,
            "refused": [{"path": part.path, "reason": part.reason} for part in read.refused],
            "missing_hours": [{"host": host, "hour": iso(hour)} for host, hour in read.missing],
            "hosts_without_rows": list(read.silent),
        },
        "notes": ranking.notes,
    }


def _row(row: Row) -> dict[str, Any]:
    statement = {"shape": row.text, "ids": row.ids} if "fingerprint" in row.keys else {}
    return {**row.keys, **statement, **_FIGURES.json(row), "flags": list(row.flags)}


def _total(total: Total) -> dict[str, Any]:
    return {
        "grade": total.grade,
        "policy": total.policy,
        "hosts": total.hosts,
        "measured_nj": total.node_nj,
        "total_error": total.total_error,
        **({"error_in_rows": total.error_in_rows} if total.total_error else {}),
        "rows_nj": total.rows_nj,
        "other_queries_nj": total.others_nj,
        "parts_nj": total.parts_nj,
        "unaccounted_nj": total.unaccounted_nj,
        "calls": total.calls,
        "cpu_ns": total.cpu_ns,
        "lost_records": total.lost_records,
        "lost_cpu_ns": total.lost_cpu_ns,
    }


def flat_table(ranking: Top) -> writers.FlatTable:
    """Returns all lines with the same columns. `kind`: `queries`, `other queries`, an owner's kind,
    or `total`."""
    keys = [key for key in ranking.by.keys if key not in ("grade", "policy")]
    types: dict[str, type] = {"kind": str, **dict.fromkeys(keys, str), "shape": str}
    types |= {name: _FIGURES.types[name] for name in _IN_FILES} | {"flags": str} | _ABOUT
    blank = dict.fromkeys(types) | {"flags": "", "error_in_rows": ""}
    blank |= {
        "from": iso(ranking.range.begin_s),
        "to": iso(ranking.range.end_s),
        "refused_parts": len(ranking.read.refused),
        "missing_hours": len(ranking.read.missing),
    }
    of_class = {(total.grade, total.policy): _error(total) for total in ranking.totals}
    records = [
        blank
        | {"kind": "queries", "shape": row.text if "fingerprint" in row.keys else None}
        | {key: row.keys.get(key) for key in keys}
        | _FIGURES.flat(row)
        | {"flags": " ".join(row.flags)}
        | of_class.get((row.grade, row.policy), {})
        for row in ranking.rows
    ]
    for total in ranking.totals:
        lines = {"other queries": total.others_nj, **total.parts_nj}
        if total.unaccounted_nj:
            lines["not accounted for"] = total.unaccounted_nj
        lines["total"] = total.node_nj
        for kind, energy_nj in lines.items():
            record = blank | {"kind": kind, "grade": total.grade, "policy": total.policy}
            record |= {"energy_nj": energy_nj, "energy_j": fmt.in_joules(energy_nj)}
            record |= _error(total)
            if kind == "total":
                record |= {"calls": total.calls, "cpu_ns": total.cpu_ns, "hosts": total.hosts}
                record |= {"lost_records": total.lost_records, "lost_cpu_ns": total.lost_cpu_ns}
            records.append(record)
    return writers.FlatTable(types, records)


def _error(total: Total) -> dict[str, Any]:
    return {
        "total_error": total.total_error,
        "error_in_rows": "yes" if total.error_in_rows else "no",
    }


def to_csv(ranking: Top) -> str:
    """Returns RFC 4180 CSV with a header line."""
    return flat_table(ranking).csv()


def write_parquet(ranking: Top, path: Path) -> None:
    """Writes the lines of the CSV; metadata `qjoule.fleet/1` has the rest of the JSON document.

    `energy_nj` is a decimal, because the sum over a fleet may exceed 64 bits.
    """
    head = {key: value for key, value in document(ranking).items() if key != "rows"}
    writers.write_arrow(flat_table(ranking).arrow(SCHEMA, head), path)
