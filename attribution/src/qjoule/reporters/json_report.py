# SPDX-License-Identifier: Apache-2.0
"""Formats an attribution as JSON, schema `qjoule.attribution/1`, and reads it for a comparison.

A Parquet file has the rows of the CSV, and everything else of the JSON document as metadata.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from qjoule.engine.keys import TRANSACTION
from qjoule.errors import QjouleError
from qjoule.lazy_import import pa
from qjoule.model.call_outcomes import Waits
from qjoule.model.gpsup import Form
from qjoule.model.repeated import MadeWith, RunForms
from qjoule.model.result import PARTS, Attribution, Domain, Row, TracePart
from qjoule.model.row_sums import added
from qjoule.reporters import format as fmt
from qjoule.reporters import impact, server_changes
from qjoule.reporters.missing import alarm, lost
from qjoule.reporters.provenance import unavailable
from qjoule.reporters.result_columns import flat_table, json_part, json_row
from qjoule.reporters.waits import latency_parts
from qjoule.reporters.writers import json_text, write_arrow
from qjoule.trace import vocabulary

SCHEMA = "qjoule.attribution/1"

_Key = tuple[str, tuple[tuple[str, str], ...]]


def to_json(attribution: Attribution) -> str:
    """Returns the document with a newline at its end. The bytes depend on the attribution only."""
    return json_text(document(attribution))


def document(attribution: Attribution) -> dict[str, Any]:
    """Returns the document as plain objects. Energies are in joules; unknown values are null, never
    0.

    With several traces, `traces` has the head of each, and each row's `by_trace` has its part from
    each trace.
    """
    rows_of = _JsonRows(attribution)
    rows = {"rows": rows_of(attribution.rows), "fixed": rows_of(attribution.fixed)}
    return {"schema": SCHEMA, **_head(attribution), **rows, **_by_domain_and_trace(attribution)}


def to_arrow(attribution: Attribution) -> pa.Table:
    """Returns the rows of the CSV; metadata key `qjoule.attribution/1` has the rest of the
    document."""
    rest = {"schema": SCHEMA, **_head(attribution), **_by_domain_and_trace(attribution)}
    return flat_table(attribution).arrow(SCHEMA, rest)


def write_parquet(attribution: Attribution, path: Path) -> None:
    """Writes `to_arrow`. Raises `QjouleError` if the file cannot be written."""
    write_arrow(to_arrow(attribution), path)


def _by_domain_and_trace(attribution: Attribution) -> dict[str, Any]:
    out: dict[str, Any] = {}
    if len(attribution.domains) > 1:
        out["domains_j"] = _domains(attribution)
    if attribution.parts:
        out["traces"] = [
            {"name": part.name, **_about(part.attribution), "domains_j": _domains(part.attribution)}
            for part in attribution.parts
        ]
    return out


def _head(attribution: Attribution) -> dict[str, Any]:
    return {**_about(attribution), **impact.head(attribution)}


def _about(attribution: Attribution) -> dict[str, Any]:
    """Returns the source of the figures, what is missing, and the totals."""
    trace, source, model = attribution.trace, attribution.energy_source, attribution.model
    return {
        "trace": {
            "host": trace.host,
            "kernel": trace.kernel,
            "cpu": trace.cpu,
            "start": trace.start,
            "duration_s": trace.duration_s,
            "complete": trace.complete,
            "loss": trace.loss,
            "lost_cpu_ns": trace.lost_cpu_ns,
            "alarm": alarm(attribution),
            "windows": attribution.windows,
            "unattributed_windows": attribution.unattributed_windows,
            "window_causes": attribution.window_causes,
            "anomalies": attribution.anomalies,
            **({"changes": server_changes.change_documents(attribution)} if trace.changes else {}),
        },
        "energy_source": {
            "name": source.name,
            "grade": source.grade,
            "reason": source.reason,
            "domains": list(source.domains),
            "unavailable": list(unavailable(attribution)),
            "main_domain": source.main_domain,
            "total_error": source.total_error,
            **({"cores": source.cores} if source.cores else {}),
            **({"left_out": source.left_out} if source.left_out else {}),
            **({"other_errors": source.other_errors} if source.other_errors else {}),
            **({"error_in_rows": source.error_in_rows} if source.total_error else {}),
        },
        "policy": attribution.policy,
        "model": {
            "weight": model.weight,
            "coefficients": model.coefficients,
            "calibrated": model.calibrated,
            "calibration": model.calibration,
            "calibration_flags": list(model.calibration_flags),
            "held_out_error": model.held_out_error,
            "held_out_errors": model.held_out_errors,
            "notes": list(model.notes),
            **({"memory": model.memory} if model.memory else {}),
        },
        "coverage": attribution.coverage,
        "coverage_by_server": {
            server.server: {
                "cpu_ns": server.cpu_ns,
                "named": server.named,
                "queries": server.queries_ns / server.cpu_ns,
                "roles": server.roles_ns / server.cpu_ns,
            }
            for server in attribution.servers
        },
        "totals_j": _totals(attribution.main if attribution.domains else None),
    }


def _domains(attribution: Attribution) -> dict[str, Any]:
    return {domain.name: _totals(domain) for domain in attribution.domains}


class _JsonRows:
    """Makes rows of the document, each with its costs and its part from each trace."""

    def __init__(self, attribution: Attribution) -> None:
        self._attribution = attribution
        self._energy_known = bool(attribution.domains)
        self._costs = impact.columns(attribution, parts=True) if attribution.impact else None
        self._in_parts = _rows_by_key(attribution.parts)

    def __call__(self, rows: Iterable[Row]) -> list[dict[str, Any]]:
        return [self._row(row) for row in rows]

    def _row(self, row: Row) -> dict[str, Any]:
        out = json_row(row, self._energy_known, self._attribution.energy_source.error_in_rows)
        if self._costs:
            out["impact"] = self._costs.json(
                impact.of_row(row, self._attribution), self._energy_known
            )
        if self._in_parts:
            parts = self._in_parts.get(_key(row), {}).items()
            out["by_trace"] = {
                name: json_part(part_row, energy_known) for name, (part_row, energy_known) in parts
            }
        return out


def _rows_by_key(parts: Sequence[TracePart]) -> dict[_Key, dict[str, tuple[Row, bool]]]:
    """Returns, by a row's kind and keys, each trace's row and whether its energy is known."""
    by_key: dict[_Key, dict[str, tuple[Row, bool]]] = {}
    for part in parts:
        attribution = part.attribution
        for row in (*attribution.rows, *attribution.fixed):
            by_name = by_key.setdefault(_key(row), {})
            # Rows of a trace that differ only in their attach mode are one row of the sum.
            before = by_name.get(part.name)
            total = added([before[0], row], row.keys, apart=False) if before else row
            by_name[part.name] = (total, bool(attribution.domains))
    return by_key


def _key(row: Row) -> _Key:
    return row.kind, tuple(sorted(row.keys.items()))


def _totals(domain: Domain | None) -> dict[str, float | None]:
    if domain is None:
        return dict.fromkeys(("measured", *PARTS))
    parts = {part: fmt.in_joules(domain.parts_nj[part]) for part in PARTS}
    return {"measured": fmt.in_joules(domain.measured_nj), **parts}


def forms_from_json(text: bytes, where: str) -> RunForms:
    """Reads the query forms of a document by fingerprint and possibly other keys, and their origin.

    Raises `QjouleError` if `text` is not such a document.
    """
    try:
        content = json.loads(text)
        if content["schema"] != SCHEMA:
            raise QjouleError(f"{where} has schema {str(content['schema'])!r}, not {SCHEMA}")
        return _run_forms(content, where)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise QjouleError(
            f"{where} is not an attribution by fingerprint: "
            "give a trace, or the output of `qjoule attribute --format json`"
        ) from error


def run_forms(attribution: Attribution, name: str) -> RunForms:
    """Returns the query forms of an attribution and their origin, called `name` in messages."""
    return _run_forms(document(attribution), name)


def forms(attribution: Attribution) -> list[Form]:
    """Returns the query forms of an attribution by fingerprint."""
    source, energy_known = attribution.energy_source, bool(attribution.domains)
    rows = [json_row(row, energy_known, source.error_in_rows) for row in attribution.rows]
    return [_form(row, 0.0 if source.error_in_rows else source.total_error) for row in rows]


def _run_forms(content: dict[str, Any], name: str) -> RunForms:
    trace, source, model = content["trace"], content["energy_source"], content["model"]
    # Older documents include the total's error in the rows.
    error = 0.0 if source.get("error_in_rows", True) else _total_error(source)
    made_with = MadeWith(
        grade=str(source["grade"]),
        idle_policy=str(content["policy"]["idle"]),
        energy_source=" ".join(filter(None, (str(source["name"]), str(source["main_domain"])))),
        machine=", ".join(filter(None, (str(trace["host"]), str(trace["cpu"])))),
        calibration=str(model["calibration"]) or f"none (weight: {model['weight']})",
    )
    by = str(content["policy"].get("by", "fingerprint"))
    return RunForms(
        name,
        [_form(row, error, by) for row in content["rows"]],
        made_with,
        start=str(trace["start"]),
        duration_s=float(trace["duration_s"]),
        selection=str(content["policy"].get("where", "")),
        by=by,
        problems=_problems(trace),
    )


def _total_error(source: dict[str, Any]) -> float:
    error = float(source["total_error"])
    if not 0 <= error < math.inf:
        raise ValueError(f"the error of its total is {error}")
    return error


def _problems(trace: dict[str, Any]) -> tuple[str, ...]:
    cut_off = () if trace["complete"] else ("cut off, its end is missing",)
    words = lost({str(k): int(v) for k, v in trace["loss"].items()}, int(trace["lost_cpu_ns"]))
    dark = tuple(str(change["text"]) for change in trace.get("changes", ()))
    return (*cut_off, *((f"lost: {words}",) if words else ()), *dark)


def _form(row: dict[str, Any], total_error: float, by: str = "fingerprint") -> Form:
    """`total_error`: relative error of the total, if the row's interval does not contain it."""
    keys = {key: str(row.get(key, "")) for key in by.split(",") if key != "fingerprint"}
    ends, energy_j = row["j_per_call_ci95"], row["energy_j"]
    same = row.get("j_per_call_same_total_ci95")
    if total_error and ends:
        more_j = total_error * row["j_per_call"]  # for a joined row, whose errors are unknown
        whole = (max(ends[0] - more_j, 0.0), ends[1] + more_j)
        same, ends = ends, row.get("j_per_call_absolute_ci95", whole)
    return Form(
        name="/".join((str(row["fingerprint"]), *keys.values())),
        shape=str(row["shape"]),
        calls=int(row["calls"]),
        j_per_call=_float(row["j_per_call"]),
        j_per_call_ci95=(float(ends[0]), float(ends[1])) if ends else None,
        latency_ns_mean=_float(row["latency_ns_mean"]),
        loss_share=float(row.get("loss_error_j", 0.0)) / energy_j if energy_j else 0.0,
        same_total_ci95=(float(same[0]), float(same[1])) if same else None,
        keys=keys,
        latency_parts_ns=latency_parts(_waits(row), _float(row["latency_ns_mean"])),
    )


def _waits(row: dict[str, Any]) -> Waits | None:
    """Returns None also for a transaction: its queries' latency is only a part of its own."""
    whole_ns = row.get("waits_latency_ns")
    if whole_ns is None or TRANSACTION in row:
        return None
    return Waits(int(whole_ns), *(int(row[name]) for name in vocabulary.WAITS))


def _float(value: Any) -> float | None:
    return None if value is None else float(value)
