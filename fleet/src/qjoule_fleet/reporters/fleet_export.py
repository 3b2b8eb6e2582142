# SPDX-License-Identifier: Apache-2.0
"""`qjoule fleet top` as JSON (`qjoule.fleet/1`), CSV and Parquet.

CSV and Parquet have a line for everything that the total consists of, so that `energy_nj` of the
lines of one grade and policy adds up to that of its line `total`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa

from qjoule.api import QjouleError
from qjoule.api.arrow import pq
from qjoule.api.screen import csv_text
from qjoule.api.screen import format as fmt
from qjoule_fleet.times import iso
from qjoule_fleet.top import Row, Top, Total

SCHEMA = "qjoule.fleet/1"


def to_json(found: Top) -> str:
    return json.dumps(document(found), indent=1, allow_nan=False) + "\n"


def document(found: Top) -> dict[str, Any]:
    """The document as plain objects. An unknown is null; energies in nJ are exact."""
    read = found.read
    return {
        "schema": SCHEMA,
        "from": iso(found.range.begin_s),
        "to": iso(found.range.end_s),
        "by": list(found.by.keys),
        "sort": found.sort,
        "rows": [_row(row) for row in found.rows],
        "other_rows": found.hidden,
        "totals": [_total(one) for one in found.totals],
        "read": {
            "parts": read.parts,
            "bytes": read.bytes,
            "hosts": read.hosts,
            "refused": [{"path": one.path, "reason": one.reason} for one in read.refused],
            "missing_hours": [{"host": host, "hour": iso(hour)} for host, hour in read.missing],
            "hosts_without_rows": list(read.silent),
        },
        "notes": found.notes,
    }


def _row(row: Row) -> dict[str, Any]:
    ends = row.energy_nj_ci95
    return {
        **row.keys,
        **({"shape": row.text, "ids": row.ids} if "fingerprint" in row.keys else {}),
        "grade": row.grade,
        "policy": row.policy,
        "energy_nj": row.energy_nj,
        "energy_j": fmt.in_joules(row.energy_nj),
        "energy_j_ci95": None if ends is None else [ends[0] / 1e9, ends[1] / 1e9],
        "share": row.share,
        "calls": row.calls,
        "j_per_call": row.j_per_call,
        "j_per_call_ci95": row.j_per_call_ci95,
        "cpu_ns": row.cpu_ns,
        "latency_ns_mean": row.latency_ns_mean,
        "latency_ns_p50": row.latency_ns_p50,
        "latency_ns_p95": row.latency_ns_p95,
        "hosts": row.hosts,
        "shapes": row.shapes,
        "flags": list(row.flags),
    }


def _total(one: Total) -> dict[str, Any]:
    return {
        "grade": one.grade,
        "policy": one.policy,
        "hosts": one.hosts,
        "measured_nj": one.node_nj,
        "total_error": one.total_error,
        **({"error_in_rows": one.error_in_rows} if one.total_error else {}),
        "rows_nj": one.rows_nj,
        "other_queries_nj": one.others_nj,
        "parts_nj": one.parts_nj,
        "unaccounted_nj": one.unaccounted_nj,
        "calls": one.calls,
        "cpu_ns": one.cpu_ns,
        "lost_records": one.lost_records,
        "lost_cpu_ns": one.lost_cpu_ns,
    }


def flat_rows(found: Top) -> list[dict[str, Any]]:
    """All lines with the same columns. `kind`: `queries` of a row, `other queries`, an owner's
    kind, or `total`."""
    of_class = {(total.grade, total.policy): _error(total) for total in found.totals}
    records = [
        _flat(found, "queries", row) | of_class.get((row.grade, row.policy), {})
        for row in found.rows
    ]
    for total in found.totals:
        lines = {"other queries": total.others_nj, **total.parts_nj}
        if total.unaccounted_nj:
            lines["not accounted for"] = total.unaccounted_nj
        lines["total"] = total.node_nj
        for kind, energy_nj in lines.items():
            record = _flat(found, kind, None)
            record |= {"grade": total.grade, "policy": total.policy, "energy_nj": energy_nj}
            record |= {"energy_j": fmt.in_joules(energy_nj)} | _error(total)
            if kind == "total":
                record |= {"calls": total.calls, "cpu_ns": total.cpu_ns, "hosts": total.hosts}
                record |= {"lost_records": total.lost_records, "lost_cpu_ns": total.lost_cpu_ns}
            records.append(record)
    return records


def _flat(found: Top, kind: str, row: Row | None) -> dict[str, Any]:
    keys = [key for key in found.by.keys if key not in ("grade", "policy")]
    values = _row(row) if row is not None else {}
    energy = values.get("energy_j_ci95") or (None, None)
    per_call = values.get("j_per_call_ci95") or (None, None)
    plain = (
        *("grade", "policy", "energy_nj", "energy_j", "share", "calls", "j_per_call", "cpu_ns"),
        *("latency_ns_mean", "latency_ns_p50", "latency_ns_p95", "hosts", "shapes"),
    )
    return {
        "kind": kind,
        **{key: values.get(key) for key in keys},
        "shape": values.get("shape"),
        **{name: values.get(name) for name in plain},
        "energy_j_low95": energy[0],
        "energy_j_high95": energy[1],
        "j_per_call_low95": per_call[0],
        "j_per_call_high95": per_call[1],
        "flags": " ".join(values.get("flags", [])),
        "lost_records": None,
        "lost_cpu_ns": None,
        "total_error": None,
        "error_in_rows": "",
        "from": iso(found.range.begin_s),
        "to": iso(found.range.end_s),
        "refused_parts": len(found.read.refused),
        "missing_hours": len(found.read.missing),
    }


def _error(total: Total) -> dict[str, Any]:
    return {
        "total_error": total.total_error,
        "error_in_rows": "yes" if total.error_in_rows else "no",
    }


def to_csv(found: Top) -> str:
    """RFC 4180 with a header line."""
    return csv_text(flat_rows(found))


_COUNTS = ("calls", "cpu_ns", "hosts", "shapes", "lost_records", "lost_cpu_ns")
_WHOLE = ("refused_parts", "missing_hours")
_FRACTIONS = ("energy_j", "j_per_call", "latency_ns", "share", "total_error")


def write_parquet(found: Top, path: Path) -> None:
    """The lines of the CSV; metadata `qjoule.fleet/1` has the rest of the JSON document.

    `energy_nj` is a decimal, because the sum over a fleet may exceed 64 bits.
    """
    records = flat_rows(found)
    head = {key: value for key, value in document(found).items() if key != "rows"}
    fields = [pa.field(name, _type(name)) for name in records[0]]
    schema = pa.schema(fields, {SCHEMA: json.dumps(head)})
    try:
        pq.write_table(pa.Table.from_pylist(records, schema), path)
    except OSError as error:
        raise QjouleError(f"cannot write {path}: {error.strerror or error}") from error


def _type(name: str) -> pa.DataType:
    if name == "energy_nj":
        return pa.decimal128(38, 0)
    if name in _COUNTS or name in _WHOLE:
        return pa.int64()
    return pa.float64() if name.startswith(_FRACTIONS) else pa.string()
