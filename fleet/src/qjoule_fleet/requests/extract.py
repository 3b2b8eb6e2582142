# SPDX-License-Identifier: Apache-2.0
"""Extracts requests from one trace: the energy of each, by server, and the times of its queries."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

import numpy as np
import pyarrow as pa

from qjoule.api.attribution import AttributionContext, AttributionRequest, recorded, total_errors
from qjoule.api.command import pc
from qjoule.api.model import BY_CALLS, I64, NONE_LABEL, TOTAL_ERROR, EnergyErrors, Ledger
from qjoule.api.traces import Trace, text_scalar, view

ERRORS = tuple(field.name for field in fields(EnergyErrors))
#: A row per request and server. Energies are exact; errors as in `qjoule.model.interval`.
COSTS = pa.schema(
    [
        *(("id", pa.string()), ("trace", pa.string()), ("host", pa.string())),
        *(("server", pa.string()), ("grade", pa.string()), ("policy", pa.string())),
        *((name, pa.int64()) for name in ("energy_nj", "cpu_ns", "calls")),
        *((name, pa.float64()) for name in ERRORS),
    ]
)
#: A row per request, span and side: begin of the first query and end of the last, by the host's
#: clock, ns since 1970. `client`: the times are those of calls at the client.
CALLS = pa.schema(
    [
        *(("id", pa.string()), ("span", pa.string()), ("host", pa.string())),
        ("client", pa.bool_()),
        *((name, pa.int64()) for name in ("begin_ns", "end_ns", "calls")),
    ]
)


@dataclass(frozen=True)
class Extract:
    """One trace's requests. `measured_nj`: energy of the trace; `untagged_nj`: of queries without
    an id; None without energy. `total_error`: relative error of `measured_nj`."""

    trace: str
    host: str
    grade: str
    costs: pa.Table
    calls: pa.Table
    measured_nj: int | None
    untagged_nj: int | None
    total_error: float = 0.0
    notes: tuple[str, ...] = ()


def extract(trace: Trace, name: str, request: AttributionRequest, tag: str) -> Extract:
    """Attributes a trace by request and server, ignoring `request.by`. `tag`: identifies a
    request."""
    host = trace.meta.host or f"(host of {name})"
    by = (f"tag:{tag}", "server")
    recording = recorded.read(trace)
    terms = AttributionContext(recording, replace(request, by=by))
    ledger = terms.run()
    summary = recorded.summary(trace, recording)
    ledger.grow(len(terms.labels))
    has_energy = bool(ledger.domain_names)
    grade = trace.meta.energy.grade if has_energy else "none"
    of_queries = [g for g, label in enumerate(terms.labels) if label.kind == "queries"]
    ids = [dict(terms.labels[g].keys).get(by[0], NONE_LABEL) for g in of_queries]
    tagged = np.array([request_id != NONE_LABEL for request_id in ids], bool)
    groups = np.array(of_queries, np.int64)
    calls = terms.grouped.queries.stats(len(terms.labels)).calls
    some = groups[tagged]
    energy_nj = (
        ledger.domains[ledger.main].energy_nj if has_energy else np.zeros(ledger.groups, np.int64)
    )
    by_grade = TOTAL_ERROR.get(grade, TOTAL_ERROR["estimated"])
    error = total_errors(trace.meta).get(ledger.main, by_grade) if has_energy else 0.0
    columns = {
        "id": [request_id for request_id in ids if request_id != NONE_LABEL],
        "trace": [name] * len(some),
        "host": [host] * len(some),
        "server": [terms.labels[g].server for g in some.tolist()],
        "grade": [grade] * len(some),
        "policy": [request.idle] * len(some),
        "energy_nj": energy_nj[some],
        "cpu_ns": ledger.cpu_ns[some],
        "calls": np.asarray(calls)[some].astype(np.int64),
        **_errors(summary, ledger, some, (grade, error)),
    }
    untagged = int(energy_nj[groups[~tagged]].sum()) if has_energy else None
    return Extract(
        name,
        host,
        grade,
        pa.table(columns, schema=COSTS),
        _calls(trace, host, tag),
        ledger.domains[ledger.main].measured_nj if has_energy else None,
        untagged,
        error,
        summary.notes,
    )


def _errors(
    summary: recorded.ReadSummary, ledger: Ledger, groups: I64, total: tuple[str, float]
) -> dict[str, np.typing.NDArray[np.float64]]:
    grade, total_error = total
    if not ledger.domain_names:
        return {name: np.zeros(len(groups)) for name in ERRORS}
    errors = ledger.error_parts(
        ledger.main,
        total_error=total_error,
        record_loss=recorded.record_loss(summary, ledger),
        estimated=grade == "estimated",
    )
    return {name: np.asarray(getattr(errors, name))[groups] for name in ERRORS}


def _calls(trace: Trace, host: str, tag: str) -> pa.Table:
    """Returns the table `CALLS` of a trace; empty if its clock's offset from 1970 is unknown."""
    offset_ns = trace.meta.realtime_offset_ns
    parts = list(_call_parts(trace, tag)) if offset_ns is not None else []
    if not parts or offset_ns is None:
        return CALLS.empty_table()
    summed = _summed(pa.concat_tables(parts))
    columns = {
        "id": summed.column("id"),
        "span": summed.column("span"),
        "host": pa.array([host] * summed.num_rows, pa.string()),
        "client": summed.column("client"),
        "begin_ns": _moved(summed.column("begin_ns"), offset_ns),
        "end_ns": _moved(summed.column("end_ns"), offset_ns),
        "calls": summed.column("calls"),
    }
    return pa.table(columns, schema=CALLS)


def _call_parts(trace: Trace, tag: str) -> Iterator[pa.Table]:
    """Yields a table per row group, so that records are not all in memory."""
    for group in trace.row_groups("queries"):
        table = group.read(["begin_ns", "end_ns", "tags", "attach_mode"])
        if table is None or not table.num_rows:
            continue
        ids = pc.map_lookup(table.column("tags"), text_scalar(tag), "first")
        table = table.append_column("id", ids).filter(pc.is_valid(ids))
        spans = pc.map_lookup(table.column("tags"), text_scalar("span"), "first")
        attach_mode = table.column("attach_mode").cast(pa.string())
        client = pc.fill_null(pc.equal(attach_mode, text_scalar(BY_CALLS)), pa.scalar(False))
        yield _summed(
            pa.table(
                {
                    "id": table.column("id").cast(pa.string()),
                    "span": pc.fill_null(spans.cast(pa.string()), text_scalar("")),
                    "client": client,
                    "begin_ns": table.column("begin_ns"),
                    "end_ns": table.column("end_ns"),
                    "calls": pa.array(np.ones(table.num_rows, np.int64)),
                }
            )
        )


def _summed(table: pa.Table) -> pa.Table:
    sums = [("begin_ns", "min"), ("end_ns", "max"), ("calls", "sum")]
    sums_by_key = table.group_by(["id", "span", "client"], use_threads=False).aggregate(sums)
    keys = ["id", "span", "client"]
    chosen = sums_by_key.select([*keys, *(f"{name}_{how}" for name, how in sums)])
    return chosen.rename_columns([*keys, *(name for name, _ in sums)])


def _moved(column: pa.ChunkedArray, offset_ns: int) -> I64:
    # Times of a hostile trace may wrap around; their requests then do not match others.
    return view(column).astype(np.int64) + np.int64(offset_ns)
