# SPDX-License-Identifier: Apache-2.0
"""Columns of the hourly tables, how rows of an earlier schema become rows of this one, and how rows
of minutes are added up to the rows of their hour.

Within one host and series, errors add up as those of recordings do (`interval.of_recordings`):
the variances of random errors, and all other errors as they are, because they may be the same in
every minute.

The rows of an hour by tag are limited, because applications choose the values.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from qjoule.lazy_import import pc
from qjoule.model.energy import I64
from qjoule.model.interval import EnergyErrors
from qjoule.trace import vocabulary

#: The parts of an energy's 95 % interval.
ERRORS = tuple(field.name for field in fields(EnergyErrors))
#: Columns: the latency of the calls whose waits are recorded, and their waits (`Waits`).
WAITS = ("waits_latency_ns", *vocabulary.WAITS)
#: The same for the threads that helped these calls in parallel: first the time they helped.
HELPERS = ("helpers_ns", *(f"helpers_{name}" for name in vocabulary.WAITS))
#: Integers that add up exactly.
AMOUNTS = (
    *("calls", "cpu_ns", "energy_nj", "latency_ns", "lost_records", "lost_cpu_ns"),
    *(*WAITS, *HELPERS),
)
#: Columns that identify a row within a minute.
KEYS = ("kind", "server", "database", "name", "fingerprint", "grade", "policy", "host_id")

#: `rollups`: a row per minute and series. `hours`: the same, a row per hour and series; `minute` is
#: the hour's start.
ROWS = pa.schema(
    [
        ("minute", pa.timestamp("ms", "UTC")),
        ("seconds", pa.float32()),  # of the minute that were traced, by a clock without steps
        ("kind", pa.string()),  # node, or one of the owners' kinds
        ("server", pa.string()),
        ("database", pa.string()),
        ("name", pa.string()),  # a role, a process; of the node: a domain
        ("fingerprint", pa.string()),
        ("grade", pa.string()),
        ("policy", pa.string()),  # who pays for power at rest
        ("host_id", pa.string()),
        ("calls", pa.int64()),
        ("cpu_ns", pa.int64()),
        ("energy_nj", pa.int64()),
        *((name, pa.float32()) for name in ERRORS),
        ("latency_ns", pa.int64()),
        # Calls by half octave from 1 us, without trailing zeros.
        ("latency", pa.list_(pa.field("element", pa.int64()))),
        ("lost_records", pa.int64()),  # of the node
        ("lost_cpu_ns", pa.int64()),
        *((name, pa.int64()) for name in (*WAITS, *HELPERS)),  # null where not recorded
    ]
)

#: `tags`: a row per hour, statement and value of a tag that the configuration names.
TAG_ROWS = pa.schema([*ROWS, ("tag", pa.string()), ("value", pa.string())])

#: `samples`: a row per query that was drawn at random. See `qjoule_fleet.samples`.
SAMPLE_ROWS = pa.schema(
    [
        ("time", pa.timestamp("us", "UTC")),  # at which it ended
        ("server", pa.string()),
        ("fingerprint", pa.string()),
        ("database", pa.string()),  # this and the next three: null where not known
        ("user", pa.string()),
        ("application", pa.string()),
        ("client", pa.string()),  # its address; unix
        ("calls", pa.int64()),  # statements that it executed
        ("latency_ns", pa.int64()),
        ("cpu_ns", pa.int64()),
        *((name, pa.int64()) for name in WAITS[1:]),  # null where not recorded
        ("energy_nj", pa.int64()),  # its share of its statement's, by CPU time
        ("error_nj", pa.float32()),  # of that, at 95 %
        ("rows", pa.int64()),
        ("outcome", pa.string()),  # ok, error; null where not known
        ("probability", pa.float64()),  # of the draw; a weight of 1 / probability
        ("grade", pa.string()),
        ("policy", pa.string()),  # who pays for power at rest
        ("host_id", pa.string()),
    ]
)

#: Columns of each table that changes slowly: the key, and the others. All are texts. `valid_from`,
#: `valid_to` (timestamps) and `host_id` follow.
SLOW_COLUMNS = {
    "shapes": (("fingerprint", "server", "database"), ("text", "attach_mode", "ids")),
    "servers": (("server",), ("kind", "version", "exe", "attach_mode")),
}
#: Bits of a float32's fraction that are dropped; 7 of 23 stay.
_DROPPED = 16
#: Seconds over which `thinned` adds up the minutes of rare statements.
SPAN_S = 600
_STATEMENT = ("kind", "server", "database", "fingerprint")


def as_written_now(table: pa.Table, schema: pa.Schema = ROWS) -> pa.Table:
    """Returns a part's rows with the columns of `schema`, in its order and types.

    Columns that the part lacks are null; columns that `schema` lacks are dropped. Raises
    `pa.ArrowException` if a column's type is another.
    """
    columns = []
    for field in schema:
        if field.name in table.schema.names:
            columns.append(table[field.name].cast(field.type))
        else:
            columns.append(pa.nulls(table.num_rows, field.type))
    return pa.Table.from_arrays(columns, schema=schema)


def of_hour(rows: pa.Table, hour_s: int, keys: tuple[str, ...] = KEYS) -> pa.Table:
    """A row for each series, with the columns of `rows` (`ROWS`, or further texts).

    `hour_s`: their `minute`, a Unix time.

    Amounts are exact. An amount is null if all of its minutes' are, and an error if any is: an
    unknown error does not become a known one. `keys`: the columns that name a series.
    """
    if not rows.num_rows:
        return rows
    group, first = _groups(rows, keys)
    order = np.argsort(group, kind="stable")
    starts = np.flatnonzero(np.diff(group[order], prepend=-1))
    columns: dict[str, Any] = {name: rows[name].take(pa.array(first)) for name in keys}
    columns["minute"] = pa.array(np.full(len(first), hour_s * 1000), pa.int64())
    columns["minute"] = columns["minute"].cast(ROWS.field("minute").type)
    columns["seconds"] = pa.array(_seconds(rows, first, order, starts), pa.float32())
    for name in AMOUNTS:
        values, present = _numbers(rows[name], np.int64)
        total = np.add.reduceat(values[order], starts)
        some = np.logical_or.reduceat(present[order], starts)
        columns[name] = pa.array(total, pa.int64(), mask=~some)
    for name in ERRORS:
        errors, present = _numbers(rows[name], np.float64)
        total = np.add.reduceat(errors[order], starts)
        every = np.logical_and.reduceat(present[order], starts)
        columns[name] = pa.array(rounded_up(total), pa.float32(), mask=~every)
    columns["latency"] = _latency(rows["latency"], group, len(first))
    return pa.Table.from_arrays([columns[name] for name in rows.schema.names], schema=rows.schema)


def thinned(rows: pa.Table, most: int) -> pa.Table:
    """Keeps an hour's rows by minute only for the `most` statements with most energy; the rows of
    each other statement are added up over `SPAN_S`.

    Rows of rare statements are most of an hour's rows and little of its energy. All sums stay the
    same, over the hour and over each span.
    """
    if not rows.num_rows:
        return rows
    statement, first = _groups(rows, _STATEMENT)
    energy_nj = np.zeros(len(first), np.int64)
    np.add.at(energy_nj, statement, _numbers(rows["energy_nj"], np.int64)[0])
    is_query = pc.equal(rows["kind"], "queries").fill_null(False).to_numpy()
    ours = np.flatnonzero(is_query[first])
    rare = np.zeros(len(first), np.bool_)
    rare[ours[np.argsort(-energy_nj[ours], kind="stable")][most:]] = True
    goes = rare[statement]
    if not goes.any():
        return rows
    marked = rows.append_column("goes", pc.if_else(pa.array(goes), "1", ""))
    start_s = rows["minute"].cast(pa.int64()).to_numpy() // 1000 // SPAN_S * SPAN_S
    tables = [rows.filter(pa.array(~goes))]
    for span_s in np.unique(start_s[goes]).tolist():
        sums = of_hour(marked.filter(pa.array(start_s == span_s)), span_s, (*KEYS, "goes"))
        tables.append(sums.filter(pc.equal(sums["goes"], "1")).select(rows.schema.names))
    return pa.concat_tables(tables)


def rounded_up(values: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """Numbers of which two digits are kept, rounded away from zero.

    An interval made of them is never narrower than it was, and at most 0.8 % wider.
    """
    near = values.astype(np.float32)
    short = np.abs(near.astype(np.float64)) < np.abs(values)
    near[short] = np.nextafter(near[short], np.float32(np.inf) * np.sign(near[short]))
    bits = near.view(np.uint32)
    truncated = bits >> _DROPPED << _DROPPED
    truncated = truncated + ((truncated != bits).astype(np.uint32) << _DROPPED)
    rounded: npt.NDArray[np.float32] = truncated.view(np.float32)
    return rounded


def _groups(rows: pa.Table, keys: tuple[str, ...]) -> tuple[I64, I64]:
    """The number of each row's series, and the first row of each series."""
    codes = np.zeros(rows.num_rows, np.int64)
    for name in keys:
        column = rows[name].combine_chunks().dictionary_encode(null_encoding="encode")
        its = column.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        codes = codes * (int(its.max()) + 1) + its
        codes = np.unique(codes, return_inverse=True)[1].reshape(-1).astype(np.int64)
    _, first = np.unique(codes, return_index=True)
    return codes, first.astype(np.int64)


def _seconds(rows: pa.Table, first: I64, order: I64, starts: I64) -> npt.NDArray[np.float64]:
    """For how long each series' grade and policy were traced, also where it did nothing.

    Each minute has rows of the node, or of idle time, so some series has all of the time.
    """
    values, _ = _numbers(rows["seconds"], np.float64)
    own = np.add.reduceat(values[order], starts)
    kinds = rows.select(["grade", "policy"]).take(pa.array(first))
    kind, _ = _groups(kinds, ("grade", "policy"))
    most = np.zeros(int(kind.max()) + 1)
    np.maximum.at(most, kind, own)
    return most[kind]


def _numbers(column: pa.ChunkedArray, dtype: Any) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
    """A column's values, 0 where they are null, and where they are known."""
    present = pc.is_valid(column).to_numpy()
    values = pc.fill_null(column, 0).to_numpy().astype(dtype)
    return values, present


def _latency(column: pa.ChunkedArray, group: I64, groups: int) -> pa.Array:
    """Lists added up element by element; null where all are."""
    lists = column.combine_chunks()
    present = np.zeros(groups, np.bool_)
    np.logical_or.at(present, group, pc.is_valid(lists).to_numpy(zero_copy_only=False))
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    values = lists.flatten().to_numpy(zero_copy_only=False)
    longest = int(lengths.max(initial=0))
    sums = np.zeros((groups, longest), np.int64)
    owner = np.repeat(group, lengths)
    ends = np.cumsum(lengths)
    place = np.arange(len(values)) - np.repeat(ends - lengths, lengths)
    np.add.at(sums, (owner, place), values)
    width = np.zeros(groups, np.int64)
    np.maximum.at(width, group, lengths)
    inside = np.arange(longest) < width[:, None]
    offsets = np.concatenate([[0], np.cumsum(np.where(present, width, 0))]).astype(np.int32)
    made = pa.ListArray.from_arrays(
        pa.array(offsets, pa.int32(), mask=np.append(~present, False)), pa.array(sums[inside])
    )
    return made.cast(ROWS.field("latency").type)


#: Replaces the values, and the statements, beyond the bound.
OTHER = "other"
#: Most rows of an hour by tag.
MAX_TAG_ROWS = 10_000


def bounded(rows: pa.Table, hour_s: int, most: int) -> pa.Table:
    """Bounds an hour's rows by tag. Only the `most` values of each tag with most energy keep their
    name, and only `MAX_TAG_ROWS` rows their value and statement. Sums stay the same."""
    by_value = rows.group_by(["tag", "value"]).aggregate([("energy_nj", "sum")])
    by_value = by_value.sort_by([("energy_nj_sum", "descending"), ("value", "ascending")])
    named_values: dict[str, set[str]] = {}
    for row in by_value.to_pylist():
        values = named_values.setdefault(row["tag"], set())
        if len(values) < most and row["value"] != OTHER:
            values.add(row["value"])
    pairs = zip(rows["tag"].to_pylist(), rows["value"].to_pylist(), strict=True)
    folds = np.array(
        [value != OTHER and value not in named_values[tag] for tag, value in pairs], np.bool_
    )
    energy_nj = pc.fill_null(rows["energy_nj"], 0).to_numpy()
    beyond = np.zeros(len(rows), np.bool_)
    beyond[np.argsort(-energy_nj, kind="stable")[MAX_TAG_ROWS:]] = True
    if not (folds | beyond).any():
        return rows
    rows = _as_other(rows, "value", pa.array(folds | beyond))
    rows = _as_other(rows, "fingerprint", pa.array(beyond))
    return of_hour(rows, hour_s, (*KEYS, "tag", "value"))


def _as_other(rows: pa.Table, name: str, goes: pa.Array) -> pa.Table:
    at = rows.schema.get_field_index(name)
    return rows.set_column(at, rows.schema.field(at), pc.if_else(goes, OTHER, rows[name]))
