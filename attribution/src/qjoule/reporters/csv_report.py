# SPDX-License-Identifier: Apache-2.0
"""Attribution as CSV: one line per row, fixed rows included, so that `energy_j` adds up."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

from qjoule.model.result import Attribution, Row
from qjoule.reporters import changes, impact
from qjoule.reporters import format as fmt
from qjoule.reporters.labels import id_cell, id_names
from qjoule.reporters.missing import alarm

#: What a formula begins with.
_FORMULA = ("=", "+", "-", "@")


def to_csv(attribution: Attribution) -> str:
    """Every row of a result."""
    return csv_text(flat_rows(attribution))


def csv_text(records: Sequence[Mapping[str, Any]]) -> str:
    """RFC 4180 with a header line; an unknown is empty. Every value is made safe (`cell`)."""
    out = io.StringIO()
    writer = csv.DictWriter(out, list(records[0]))
    writer.writeheader()
    for record in records:
        writer.writerow({name: cell(value) for name, value in record.items()})
    return out.getvalue()


def cell(value: Any) -> Any:
    """A value made safe for a CSV file: text on one line, and nothing that a spreadsheet executes.

    Applications choose the values of tags. An apostrophe keeps a cell text (OWASP, "CSV
    Injection").

    >>> cell("=1+1"), cell(-1.5)
    ("'=1+1", -1.5)
    """
    if not isinstance(value, str):
        return value
    shown = fmt.one_line(value)
    return f"'{shown}" if shown.lstrip(" ").startswith(_FORMULA) else shown


def flat_rows(attribution: Attribution) -> list[dict[str, Any]]:
    """Every row with the same columns; None is unknown. Each row has the grade, the idle policy
    and what the trace lost."""
    keys = [key for key in attribution.policy["by"].split(",") if key != "server"]
    rows = (*attribution.rows, *attribution.fixed)
    return [_flat(attribution, row, keys) for row in rows]


def _flat(attribution: Attribution, row: Row, keys: list[str]) -> dict[str, Any]:
    known = bool(attribution.domains)
    ends = row.energy_nj_ci95 if known else (None, None)
    per_call = (row.j_per_call_ci95 if known else None) or (None, None)
    factor = row.power_factor or (None, None, None)
    record: dict[str, Any] = {key: row.keys.get(key) for key in keys}
    record |= {
        "kind": row.kind,
        "shape": row.shape,
        "server": row.keys.get("server", row.server),
        "calls": row.calls,
        "energy_j": fmt.in_joules(row.energy_nj) if known else None,
        "energy_j_low95": None if ends[0] is None else ends[0] / 1e9,
        "energy_j_high95": None if ends[1] is None else ends[1] / 1e9,
        "j_per_call": row.j_per_call if known else None,
        "j_per_call_low95": per_call[0],
        "j_per_call_high95": per_call[1],
        "share": row.share if known else None,
        "shared_j": fmt.in_joules(row.shared_nj) if known and row.shared_nj is not None else None,
        "cpu_ns": row.cpu_ns,
        "latency_ns_mean": row.latency_ns_mean,
        "latency_ns_p50": row.latency_ns_p50,
        "latency_ns_p95": row.latency_ns_p95,
        "latency_ns_p99": row.latency_ns_p99,
        "cycles": row.cycles,
        "instructions": row.instructions,
        "llc_misses": row.llc_misses,
        "power_factor": factor[0],
        "power_factor_low95": factor[1],
        "power_factor_high95": factor[2],
        "attach_mode": row.attach_mode,
        "flags": " ".join(row.flags),
    }
    record |= {name: id_cell(row, name) for name in id_names(attribution)}
    if "transaction" in keys:
        commit_nj = row.commit_nj if known else None
        record["commit_j"] = None if commit_nj is None else fmt.in_joules(commit_nj)
        record["commit_ns_mean"] = row.commit_ns_mean
    for domain in attribution.domains[1:]:
        low, high = row.energy_by_domain_ci95.get(domain.name, (None, None))
        record |= {
            f"energy_j_{domain.name}": fmt.in_joules(row.energy_by_domain_nj.get(domain.name, 0)),
            f"energy_j_{domain.name}_low95": None if low is None else low / 1e9,
            f"energy_j_{domain.name}_high95": None if high is None else high / 1e9,
        }
    record |= impact.flat_row(row, attribution)
    record["domain"] = attribution.energy_source.main_domain
    record["grade"] = attribution.energy_source.grade
    if attribution.energy_source.total_error:
        record["total_error"] = attribution.energy_source.total_error
        record["error_in_rows"] = "yes" if attribution.energy_source.error_in_rows else "no"
    record["calibrated"] = "yes" if attribution.model.calibrated else "no"
    record["idle_policy"] = attribution.policy["idle"]
    loss = sorted(attribution.trace.loss.items())
    record["loss"] = " ".join(f"{cause.lower()}={count}" for cause, count in loss)
    record["alarm"] = alarm(attribution)
    record["complete"] = "yes" if attribution.trace.complete else "no"
    record["servers_not_seen"] = "; ".join(changes.lines(attribution))
    if left_out := attribution.energy_source.left_out:
        record["domains_left_out"] = "; ".join(f"{name}: {why}" for name, why in left_out.items())
    if "where" in attribution.policy:
        record["where"] = attribution.policy["where"]
    if attribution.parts:
        record["traces"] = len(attribution.parts)
    return record
