# SPDX-License-Identifier: Apache-2.0
"""Columns of the hourly tables, and how rows of an earlier schema become rows of this one."""

from __future__ import annotations

from dataclasses import fields

import pyarrow as pa

from qjoule.model.interval import EnergyErrors

#: The parts of an energy's 95 % interval.
ERRORS = tuple(one.name for one in fields(EnergyErrors))
#: Integers that add up exactly.
AMOUNTS = ("calls", "cpu_ns", "energy_nj", "latency_ns", "lost_records", "lost_cpu_ns")
#: What two rows of one minute cannot have in common.
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
        # Calls by half octave from 1 us, without zeros behind.
        ("latency", pa.list_(pa.field("element", pa.int64()))),
        ("lost_records", pa.int64()),  # of the node
        ("lost_cpu_ns", pa.int64()),
    ]
)

#: `tags`: a row per hour, statement and value of a tag that the configuration names.
TAG_ROWS = pa.schema([*ROWS, ("tag", pa.string()), ("value", pa.string())])

#: `samples`: a row per query that was drawn at random. See `qjoule_fleet.sampling`.
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

#: Of each table that changes slowly: the columns that say what a row is about, and the others. All
#: are texts. `valid_from`, `valid_to` (timestamps) and `host_id` follow.
SLOW_COLUMNS = {
    "shapes": (("fingerprint", "server", "database"), ("text", "attach_mode", "ids")),
    "servers": (("server",), ("kind", "version", "exe", "attach_mode")),
}


def as_written_now(table: pa.Table, schema: pa.Schema = ROWS) -> pa.Table:
    """A part's rows with the columns of `schema`, in its order and types.

    Columns that an earlier version does not have are null.
    Columns that it does not know are left out. Raises `pa.ArrowException` if a column's type is
    another.
    """
    columns = []
    for field in schema:
        if field.name in table.schema.names:
            columns.append(table[field.name].cast(field.type))
        else:
            columns.append(pa.nulls(table.num_rows, field.type))
    return pa.Table.from_arrays(columns, schema=schema)
