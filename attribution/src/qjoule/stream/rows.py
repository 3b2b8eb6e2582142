# SPDX-License-Identifier: Apache-2.0
"""Converts records of the stream to rows of the dataset: pure functions on arrays.

Each takes records of one kind (`qjoule.contract`) and returns a table of `qjoule.trace.schema`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from qjoule.contract import (
    CHILD,
    COUNTER_NAMES,
    QUERY,
    STEAL_UNKNOWN,
    TRACER_CPU,
    WHOLE,
    OwnerKind,
    QueryFlag,
)
from qjoule.stream.context import Reading
from qjoule.tags.joins import tags_type
from qjoule.trace.columns import Array, Words, instants, names, numbers
from qjoule.trace.meta import DomainInfo
from qjoule.trace.schema import (
    CPU_TIME,
    ENERGY,
    HELPERS,
    LOSS,
    METER,
    MORE,
    NAME,
    QUERIES,
    SEGMENTS,
)
from qjoule.trace.vocabulary import ATTACH_MODES, CAUSES, COMMANDS, STATUSES, WAITS


def segment_rows(
    segments: Array,
    counters: Array | None,
    owners: Array,
    packages: Array,
    more: tuple[pa.Array, pa.Array] | None = None,
) -> pa.Table:
    """Rows of `segments`.

    `counters`: (n, 3), None if none were read; `packages[cpu]` is -1 where unknown. `more`: as
    `more_rows` returns them, None if no further counters were read.
    """
    cpu = segments["cpu"]
    package = packages[cpu]
    columns = [
        instants(segments["t0_ns"]),
        instants(segments["t1_ns"]),
        numbers(cpu),
        numbers(package.astype(np.uint16), package >= 0),
        numbers(owners),
        numbers(segments["query"], segments["owner_kind"] == OwnerKind.QUERY),
    ]
    if counters is None:
        columns += [pa.nulls(segments.size, pa.uint64()) for _ in COUNTER_NAMES]
        columns.append(pa.nulls(segments.size, pa.float32()))
    else:
        valid = segments["valid"]
        for bit in range(len(COUNTER_NAMES)):
            columns.append(numbers(counters[:, bit], (valid >> bit) & 1 == 1))
        share = segments["counted"].astype(np.float32) / np.float32(WHOLE)
        columns.append(numbers(share, valid != 0))
    columns += more or [pa.nulls(segments.size, SEGMENTS.field(name).type) for name in MORE]
    return pa.Table.from_arrays(columns, schema=SEGMENTS)


def more_rows(records: Array, count: int) -> tuple[pa.Array, pa.Array]:
    """The first `count` further counters of each segment as lists, and the shares counted.

    A counter that did not count is null, with share 0.
    """
    shares = records["shares"][:, :count].reshape(-1)
    counts = numbers(records["more"][:, :count].reshape(-1), shares > 0)
    offsets = pa.array(np.arange(records.size + 1, dtype=np.int32) * np.int32(count))
    counted_shares = pa.array(shares.astype(np.float32) / np.float32(WHOLE))
    of_counts = pa.ListArray.from_arrays(offsets, counts)
    return of_counts, pa.ListArray.from_arrays(offsets, counted_shares)


def query_rows(
    queries: Array,
    fingerprints: pa.DictionaryArray,
    whose: tuple[Words, Words, Words],
    *,
    tags: pa.Array | None = None,
    transactions: Array,
    children: tuple[Array, pa.DictionaryArray] | None = None,
) -> pa.Table:
    """Rows of `queries`.

    The outcome is known if the reply was seen or the query was cut off. `whose`: user, database and
    application. `transactions`: ids, 0: none. `children`: set if the records are parts of queries;
    holds the ids of these queries, and the fingerprints of what the parts executed.
    """
    users, databases, applications = (words.column() for words in whose)
    nobody = pa.nulls(queries.size, NAME)
    parents, executed = children or (np.zeros(queries.size, np.uint64), nobody)
    status = np.full(queries.size, -1, np.int64)
    outcomes = (QueryFlag.OK, "ok"), (QueryFlag.ERROR, "error"), (QueryFlag.OPEN, "unfinished")
    for flag, outcome in outcomes:
        status[queries["flags"] & flag != 0] = STATUSES.index(outcome)
    by_name = {
        "begin_ns": instants(queries["begin_ns"]),
        "end_ns": instants(queries["end_ns"]),
        "server": numbers(queries["server"], queries["server"] != 0),
        "session": numbers(queries["session"], queries["session"] != 0),
        "fingerprint": fingerprints,
        "shape": numbers(queries["shape"], queries["shape"] != 0),
        "command": names(queries["command"], COMMANDS),
        "status": names(status, STATUSES),
        "tags": pa.nulls(queries.size, tags_type()) if tags is None else tags,
        "attach_mode": names(queries["attach_mode"], ATTACH_MODES),
        "statement_bytes": numbers(
            queries["statement_bytes"], queries["flags"] & QueryFlag.NO_TEXT == 0
        ),
        "database": databases,
        "user": users,
        "application": applications,
        "rows": numbers(queries["rows"], queries["flags"] & QueryFlag.ROWS != 0),
        "sqlstate": _sqlstates(queries["sqlstate"]),
        "transaction": numbers(transactions, transactions != 0),
        "parent": numbers(parents, parents != 0),
        "child": executed,
    }
    recorded = queries["flags"] & QueryFlag.WAITS != 0
    for kind, name in enumerate(WAITS):
        by_name[name] = numbers(queries["wait_ns"][:, kind], recorded)
    columns = [by_name.get(name) for name in QUERIES.names]
    return pa.Table.from_arrays(
        [
            numbers(queries[name]) if column is None else column
            for name, column in zip(QUERIES.names, columns, strict=True)
        ],
        schema=QUERIES,
    )


def _sqlstates(states: Array) -> pa.DictionaryArray:
    """Codes of five capitals and digits (ISO 9075, "SQLSTATE"); null if there is none."""
    codes = np.zeros(states.size, np.int64)
    present = states != b""
    distinct_states, codes[present] = np.unique(states[present], return_inverse=True)
    codes[~present] = -1
    return names(codes, [state.decode("ascii", "replace") for state in distinct_states.tolist()])


def as_queries(children: Array) -> Array:
    """Children as records of queries, with the shape of their query and without executions.

    Whether a child's own text was cut is recorded in `shapes`, not for its query.
    """
    queries = np.zeros(children.size, QUERY)
    for name in set(QUERY.names or ()) & set(CHILD.names or ()) - {"reserved"}:
        queries[name] = children[name]
    queries["query"], queries["shape"] = children["child"], children["query_shape"]
    queries["flags"] &= ~np.uint32(QueryFlag.TRUNCATED)
    return queries


def helper_rows(helpers: Array) -> pa.Table:
    times = (instants(helpers[name]) for name in ("begin_ns", "end_ns"))
    threads = (numbers(helpers[name]) for name in ("pid", "tgid"))
    waits = (numbers(helpers["wait_ns"][:, kind]) for kind in range(len(WAITS)))
    columns = [numbers(helpers["query"]), *times, *threads, *waits]
    return pa.Table.from_arrays(columns, schema=HELPERS)


def meter_rows(readings: Sequence[Reading]) -> pa.Table:
    """Readings of an external meter."""
    rows = [
        {"t_ns": reading.t_ns, "stamp_ns": reading.stamp_ns, "raw": reading.raw}
        for reading in readings
    ]
    return pa.Table.from_pylist(rows, METER)


def energy_rows(readings: Array, domains: Mapping[int, DomainInfo]) -> pa.Table:
    """Energy readings of announced counters; `domains` by the contract's domain index."""
    size = max(domains, default=-1) + 1
    ranges = np.zeros(size, np.uint64)
    units_j = np.zeros(size)
    dies = np.full(size, -1, np.int64)
    domain_names: list[str | None] = [None] * size
    for place, domain in domains.items():
        ranges[place] = domain.range or 0
        units_j[place] = domain.unit_j
        domain_names[place] = domain.name
        dies[place] = -1 if domain.die is None else domain.die
    index = readings["domain"]
    columns = [
        instants(readings["t_ns"]),
        numbers(readings["half_width_ns"]),
        numbers(readings["package"]),
        names(index, domain_names),
        numbers(readings["raw"], readings["status"] == 0),
        numbers(units_j[index]),
        numbers(ranges[index], ranges[index] != 0),
        numbers(readings["status"]),
        numbers(dies[index].astype(np.uint16), dies[index] >= 0),
    ]
    return pa.Table.from_arrays(columns, schema=ENERGY)


def loss_rows(losses: Array) -> pa.Table:
    columns = [
        instants(losses["t_ns"]),
        numbers(losses["cpu"], losses["cpu"] != TRACER_CPU),
        names(losses["cause"], CAUSES),
        numbers(losses["count"]),
        numbers(losses["lost_ns"]),
    ]
    return pa.Table.from_arrays(columns, schema=LOSS)


def loss_row(t_ns: int, cause: str, count: int) -> pa.Table:
    """A running count of records lost outside the kernel."""
    row = {"t_ns": t_ns, "cpu": None, "cause": cause, "count": count, "lost_ns": 0}
    return pa.Table.from_pylist([row], LOSS)


def cpu_time_rows(times: Array) -> pa.Table:
    columns = [
        instants(times["t_ns"]),
        numbers(times["cpu"]),
        numbers(times["busy_ns"]),
        numbers(times["idle_ns"]),
        numbers(times["steal_ns"], times["steal_ns"] != STEAL_UNKNOWN),
    ]
    return pa.Table.from_arrays(columns, schema=CPU_TIME)


class OwnLosses:
    """Losses that are counted outside the kernel. `written`: by cause, as last written."""

    def __init__(self) -> None:
        self.written: dict[str, int] = {}

    def added_to(self, table: pa.Table, t_ns: int, counts: Mapping[str, int]) -> pa.Table:
        """`table` with a row of `loss` for each of the running counts that has grown."""
        for cause, count in counts.items():
            if count > self.written.get(cause, 0):
                self.written[cause] = count
                table = pa.concat_tables([table, loss_row(t_ns, cause, count)])
        return table
