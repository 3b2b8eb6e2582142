# SPDX-License-Identifier: Apache-2.0
"""The hardware counters of recorded traces, summed by shape, server or workload."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from qjoule.api import QjouleError
from qjoule.api.attribution import Grouped, QueryGroups, recorded, tables
from qjoule.api.command import pc
from qjoule.api.model import I64, GroupLabel
from qjoule.api.traces import MORE, Trace
from qjoule_studies.characterise import Event, MetricSums, Row, TraceAbout, metrics_of, most_used

BY = ("fingerprint", "server", "trace")
#: What the columns of `segments` are called by perf.
EVENT_NAMES = {"cycles": "cycles", "instructions": "instructions", "llc_misses": "cache-misses"}
_OTHERS = "(others)"
#: What `record --counters` may call an event; a trace may come from elsewhere.
_EVENT = re.compile(r"[A-Za-z][A-Za-z0-9_.:-]{0,63}")
_Key = tuple[str, str, str]  #: server, fingerprint, shape


@dataclass(frozen=True)
class Counted:
    """The rows of one trace, most CPU time first, those beyond `top` folded into the last."""

    about: TraceAbout
    rows: tuple[Row, ...]


def events_of(trace: Trace) -> tuple[str, ...]:
    """The events that a trace's meta.json lists, by perf's names."""
    always = [EVENT_NAMES[name] for name in trace.meta.counters if name in EVENT_NAMES]
    more = [name for name in trace.meta.more_counters if _EVENT.fullmatch(name)]
    return (*always, *(name for name in more if name not in always))


def count(
    name: str,
    trace: Trace,
    by: str,
    top: int,
    progress: Callable[[int], None] | None = None,
) -> Counted:
    """Sums the counters of a trace; the database servers' alone, not of other processes.

    Args:
        by: one of `BY`. Rows by fingerprint are of queries; by server and by trace, background
            work of the servers is in them too.

    Raises:
        QjouleError: the trace has no counters, or nothing of a server ran while they counted.
    """
    events = events_of(trace)
    metrics = metrics_of(events)
    if not metrics:
        counters = (
            f"no hardware counters but {', '.join(events)}" if events else "no hardware counters"
        )
        raise QjouleError(
            f"{name} has {counters}: record it with --counters where 'qjoule doctor' shows some"
        )
    grouped = Grouped(recorded.read(trace), ("server", "fingerprint"), counters=True)
    row_of, keys = _rows_of(grouped.labels, by)
    sums = MetricSums(metrics, len(keys))
    reader = grouped.reader
    more = trace.meta.more_counters
    for table in trace.iter_segments(columns=[*reader.columns, *(MORE if more else ())]):
        segments = reader.read(table)
        row = row_of[segments.group]
        ours = np.flatnonzero(row >= 0)
        lengths = (segments.t1_ns - segments.t0_ns)[ours].astype(np.float64)
        sums.add(row[ours], lengths, events_in(table.take(pa.array(ours)), more))
        if progress:
            progress(table.num_rows)
    calls = _calls(grouped.queries, row_of, len(keys))
    rows = _folded(name, keys, sums, calls, top)
    if not any(row.metrics for row in rows):
        raise QjouleError(_why_nothing(name, trace, by, sums))
    about = TraceAbout(
        name, trace.meta.host, trace.meta.cpu, trace.meta.kernel, events, dict(trace.loss)
    )
    return Counted(about, tuple(rows))


def _why_nothing(name: str, trace: Trace, by: str, sums: MetricSums) -> str:
    if sums.cpu_ns.sum() > 0:
        return f"{name}: its counters never counted while a server ran: see 'qjoule doctor'"
    if by == "fingerprint" and trace.rows("segments"):
        return f"{name} has no CPU time of queries: try --by server"
    return f"{name} has no CPU time of a database server"


def _rows_of(labels: Sequence[GroupLabel], by: str) -> tuple[I64, list[_Key]]:
    """The row of each group, -1 none, and the rows' keys."""
    rows: dict[_Key, int] = {}
    row_of = np.full(len(labels), -1, np.int64)
    kinds = ("queries",) if by == "fingerprint" else ("queries", "background")
    for group, label in enumerate(labels):
        if label.kind not in kinds:
            continue
        keys = dict(label.keys)
        key = {
            "fingerprint": (label.server, keys.get("fingerprint", ""), label.shape),
            "server": (label.server, "", ""),
            "trace": ("", "", ""),
        }[by]
        row_of[group] = rows.setdefault(key, len(rows))
    return row_of, list(rows)


def events_in(table: pa.Table, more: Sequence[str]) -> dict[str, Event]:
    """What was counted in segments, by event; `more`: names of the further counters."""
    values, valid, counted = tables.counters(table)
    share = counted.astype(np.float64)
    always = {
        EVENT_NAMES[column]: Event(values[:, i].astype(np.float64), valid[:, i], share)
        for i, column in enumerate(tables.COUNTER_COLUMNS)
    }
    return {**_more_events(table, more), **always} if more else always


def _more_events(table: pa.Table, names: Sequence[str]) -> dict[str, Event]:
    """Further counters. A segment whose lists are not of as many as `names` has none."""
    counts, shares = (table.column(name).combine_chunks() for name in MORE)
    complete = np.ones(table.num_rows, bool)
    for lists in (counts, shares):
        lengths = pc.fill_null(pc.list_value_length(lists), -1)
        complete &= lengths.to_numpy(zero_copy_only=False) == len(names)
    rows = np.flatnonzero(complete)
    flat = counts.take(pa.array(rows)).flatten()
    shape = (len(rows), len(names))
    values, share = np.zeros((2, table.num_rows, len(names)))
    valid = np.zeros(values.shape, bool)
    values[rows] = pc.fill_null(flat, 0).to_numpy(zero_copy_only=False).reshape(shape)
    valid[rows] = flat.is_valid().to_numpy(zero_copy_only=False).reshape(shape)
    known_shares = pc.fill_null(shares.take(pa.array(rows)).flatten(), 0.0)
    share[rows] = np.clip(known_shares.to_numpy(zero_copy_only=False).reshape(shape), 0, 1)
    columns = zip(values.T, valid.T, share.T, strict=True)
    return {name: Event(*column) for name, column in zip(names, columns, strict=True)}


def _calls(queries: QueryGroups, row_of: I64, rows: int) -> I64:
    """Queries that ended, by row."""
    calls = queries.stats(len(row_of)).calls
    return np.bincount(row_of[row_of >= 0], calls[row_of >= 0], rows).astype(np.int64)


def _folded(name: str, keys: Sequence[_Key], sums: MetricSums, calls: I64, top: int) -> list[Row]:
    place = most_used(sums.cpu_ns, top)
    rows = int(place.max(initial=-1)) + 1
    merged = sums.merged(place, rows)
    out = []
    for i in range(rows):
        members = np.flatnonzero(place == i)
        server, fingerprint, shape = keys[members[0]]
        others = i == top
        if others:
            server, fingerprint, shape = "", "", _OTHERS
        out.append(
            Row(
                name,
                server,
                fingerprint,
                shape,
                int(calls[members].sum()) if calls.any() else None,
                float(merged.cpu_ns[i]),
                merged.estimates(i),
                len(members) if others else 0,
            )
        )
    return out
