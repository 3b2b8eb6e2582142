# SPDX-License-Identifier: Apache-2.0
"""The tables of a trace as Arrow schemas. `TRACE_FORMAT.md` describes them for people.

Every writer of a trace must fill the fields that are not nullable. A nullable field may be left out
or null. Null means unknown or not applicable; an unknown value is never written as zero. All times
are CLOCK_MONOTONIC nanoseconds of the traced machine.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from qjoule.lazy_import import LazyModule
from qjoule.tags.joins import tags_type
from qjoule.trace.vocabulary import WAITS

pc: Any = LazyModule("pyarrow.compute")
#: Bound of one text column of a row group, with repetitions: such as 60,000 statements of 4 KiB.
MOST_TEXT_BYTES = 256 << 20
NAME = pa.dictionary(pa.int32(), pa.string())


def _table(*fields: tuple[str, pa.DataType] | tuple[str, pa.DataType, str]) -> pa.Schema:
    """A schema; a third item `"?"` makes the field nullable."""
    return pa.schema([pa.field(f[0], f[1], nullable=len(f) > 2) for f in fields])


_i64, _u64, _u32, _u16 = pa.int64(), pa.uint64(), pa.uint32(), pa.uint16()

#: One row per reading of one energy counter.
ENERGY = _table(
    ("t_ns", _i64),  # middle of the read
    ("half_width_ns", _u32),  # the read began and ended this far from t_ns
    ("package", _u16),
    ("domain", NAME),  # package, core, uncore, dram, psys, rest
    ("raw", _u64, "?"),  # null: the read failed, see status
    ("unit_j", pa.float64()),  # joules per raw count
    ("range", _u64, "?"),  # raw runs from 0 to range - 1; null: it does not wrap
    ("status", _u32),  # 0, or errno of the failed read
    ("die", _u16, "?"),  # of the package that it covers; null: the whole package
)
#: One row per segment: one thread on one CPU for one owner. Sorted by t0_ns.
SEGMENTS = _table(
    ("t0_ns", _i64),
    ("t1_ns", _i64),
    ("cpu", _u16),
    ("package", _u16, "?"),
    ("owner", _u32),
    ("query", _u64, "?"),  # only if the owner's kind is query
    ("cycles", _u64, "?"),
    ("instructions", _u64, "?"),
    ("llc_misses", _u64, "?"),
    ("counted", pa.float32(), "?"),  # share of the segment that the counters counted
    # Further counters, in the order of meta.json's `more_counters`, and the share of each.
    ("more", pa.list_(_u64), "?"),
    ("more_counted", pa.list_(pa.float32()), "?"),
)
#: The columns of further counters.
MORE = ("more", "more_counted")
#: One row per thread, kind of work, and server.
OWNERS = _table(
    ("owner", _u32),
    ("kind", NAME),  # OWNER_KINDS
    ("pid", _u32, "?"),
    ("tgid", _u32, "?"),
    ("comm", NAME, "?"),
    ("process_comm", NAME, "?"),
    ("server", _u16, "?"),  # id in meta.json's servers
    ("role", NAME, "?"),  # of a server's own threads
    ("t0_ns", _i64, "?"),  # null: began before the trace, or unknown
    ("t1_ns", _i64, "?"),  # null: alive at the end, or unknown
)
#: One row per query that ended (or was cut off: status unfinished), and one per child. A child is a
#: statement that a procedure, function or trigger executed within a query. Its row has the query's
#: labels, and its segments carry the child's id.
QUERIES = _table(
    ("query", _u64),
    ("begin_ns", _i64),
    ("end_ns", _i64),
    ("server", _u16, "?"),
    ("session", _u64, "?"),
    ("fingerprint", NAME, "?"),
    ("shape", _u64, "?"),
    ("command", NAME, "?"),  # COMMANDS
    ("status", NAME, "?"),  # STATUSES
    ("tags", tags_type(), "?"),
    ("attach_mode", NAME, "?"),  # ATTACH_MODES
    ("executions", _u32, "?"),  # statements that the server counts for it; null: one
    ("flags", _u32, "?"),  # bits of qjoule.contract.QueryFlag
    ("statement_bytes", _u32, "?"),
    ("pid", _u32, "?"),
    ("tgid", _u32, "?"),
    ("database", NAME, "?"),
    ("user", NAME, "?"),
    ("application", NAME, "?"),  # the name that it gives itself
    ("rows", _u64, "?"),  # returned or changed, according to the reply
    ("sqlstate", NAME, "?"),  # of an error
    ("transaction", _u64, "?"),  # that it belongs to; null: to none, or not known
    ("parent", _u64, "?"),  # of a child: the query that it is a part of
    ("child", NAME, "?"),  # of a child: the fingerprint of its own statement
    # What its thread waited for between begin_ns and end_ns, by qjoule.contract.Wait; the rest of
    # that time it ran. Null: not recorded.
    *((name, _u64, "?") for name in WAITS),
)
#: One row per time in which another thread worked for a query and waited (a parallel worker, say).
HELPERS = _table(
    ("query", _u64),
    ("begin_ns", _i64),
    ("end_ns", _i64),  # may be later than the query's
    ("pid", _u32),
    ("tgid", _u32),
    *((name, _u64) for name in WAITS),  # during the rest of that time the thread ran
)
#: One row per transaction of several statements, if replies reveal them (`stream.transactions`).
TRANSACTIONS = _table(
    ("transaction", _u64),  # id of its first query
    ("begin_ns", _i64),
    ("end_ns", _i64),
    ("session", _u64),
    ("server", _u16, "?"),
    ("outcome", NAME),  # committed, rolled back, unfinished
    ("statements", _u32),
    ("text", NAME),  # its statements' shapes; equal ones in a row appear once
    ("last", _u64, "?"),  # the query that ended the transaction, if a query of its own did
    ("commit_ns", _i64, "?"),  # duration of that query, if it was COMMIT or ROLLBACK
)
#: One row per shape hash; several hashes may share a fingerprint.
SHAPES = _table(
    ("shape", _u64),
    ("fingerprint", NAME),
    ("text", pa.string()),  # the statement without its literals
    ("dialect", NAME, "?"),  # DIALECTS
    ("server", _u16, "?"),  # the first server that received it
    ("truncated", pa.bool_(), "?"),
)
#: Only with --ids: ids of statements in other tools. A shape may have several ids, for different
#: versions of a server.
IDS = _table(
    ("shape", _u64),
    ("name", NAME),
    ("id", pa.string(), "?"),  # null: none is certain
    ("of", NAME),  # the tool, or the server and its version, that uses the id
    ("why", NAME, "?"),  # without an id: the reason
)
#: Events of connections: opened, becoming opaque (TLS, compression), about to change user or
#: database. `kept`: the server refused the preceding change. `met`: first seen after login, or
#: never logs in.
SESSIONS = _table(
    ("session", _u64),
    ("t_ns", _i64),
    ("event", NAME),  # SESSION_EVENTS
    ("server", _u16, "?"),
    ("pid", _u32, "?"),
    ("tgid", _u32, "?"),
    ("user", NAME, "?"),
    ("database", NAME, "?"),
    ("application", NAME, "?"),
    ("address", NAME, "?"),  # the client's; null: unix socket, or unknown
    ("connection", NAME, "?"),  # both ends, or the inode of the client's socket
)
#: Running sums since the trace began: the last row of a (cpu, cause) is the total.
LOSS = _table(
    ("t_ns", _i64),
    ("cpu", _u32, "?"),  # null: counted outside the kernel
    ("cause", NAME),  # CAUSES
    ("count", _u64),
    ("lost_ns", _u64),
)
#: Running sums of each CPU's time, counted in the kernel independently of the segments. `steal_ns`:
#: CPU time that a virtual machine's host took; null: unknown.
CPU_TIME = _table(
    ("t_ns", _i64),
    ("cpu", _u32),
    ("busy_ns", _u64),
    ("idle_ns", _u64),
    ("steal_ns", _u64, "?"),
)
#: Only with --stacks: where a server's thread was at one moment.
SAMPLES = _table(
    ("t_ns", _i64),
    ("cpu", _u16),
    ("owner", _u32),
    ("query", _u64, "?"),  # only if the owner's kind is query
    ("frame", _u64, "?"),  # the innermost; null: unknown
    ("kernel", pa.bool_()),  # the thread was in the kernel, called from that frame
    ("whole", pa.bool_()),  # the stack is complete to the thread's entry
)
#: Only with --stacks: where a thread began to wait within its query. Waits were drawn at random, so
#: each row stands for 1 / `probability` of them.
SAMPLED_WAITS = _table(
    ("t_ns", _i64),
    ("cpu", _u16),
    ("owner", _u32),
    ("query", _u64),
    ("frame", _u64, "?"),  # the innermost; null: unknown
    ("whole", pa.bool_()),  # the stack is complete to the thread's entry
    ("probability", pa.float64()),
    # Null: its end was lost.
    ("ns", _i64, "?"),  # how long it waited; until the trace's end, if it still did
    ("run_queue_ns", _i64, "?"),  # the part in which it could have run
    ("kind", NAME, "?"),  # of the rest: WAIT_KINDS
)
#: Frames of stacks: each is a place in code, and its caller. A frame may have several equal rows.
FRAMES = _table(
    ("frame", _u64),
    ("caller", _u64, "?"),  # null: the outermost known frame
    ("module", _u32),  # of meta.json's modules
    ("offset", _u64),  # address in the file's numbering
)
#: Names of code that a JVM had compiled and still had when the recording ended.
CODE = _table(
    ("module", _u32),  # of meta.json's modules
    ("offset", _u64),  # of frames in this code
    ("name", pa.string()),  # class and method, or the JVM's name of a stub
)
#: One row per reading of an external meter.
METER = _table(
    ("t_ns", _i64),  # when it arrived
    ("stamp_ns", _i64, "?"),  # the meter's own clock; null: it has none
    ("raw", _u64),  # a counter in units of meta.json's `meter`
)
#: Only with --capture-literals: one full statement per shape hash.
STATEMENTS = _table(
    ("shape", _u64),
    ("t_ns", _i64),
    ("server", _u16, "?"),
    ("statement_bytes", _u32),
    ("text", pa.binary()),
)

#: Every table by the name of its folder, in the order in which a batch is written: a table comes
#: before those that refer to it.
TABLES: MappingProxyType[str, pa.Schema] = MappingProxyType(
    {
        "shapes": SHAPES,
        "ids": IDS,
        "statements": STATEMENTS,
        "sessions": SESSIONS,
        "owners": OWNERS,
        "loss": LOSS,
        "cpu_time": CPU_TIME,
        "energy": ENERGY,
        "meter": METER,
        "transactions": TRANSACTIONS,
        "queries": QUERIES,
        "helpers": HELPERS,
        "segments": SEGMENTS,
        "code": CODE,
        "frames": FRAMES,
        "samples": SAMPLES,
        "waits": SAMPLED_WAITS,
    }
)


class Mismatch(ValueError):
    """A table does not fit its schema; the text names the column and the reason."""


def empty(name: str) -> pa.Table:
    """An empty table of the given name."""
    return pa.Table.from_batches([], TABLES[name])  # `empty_table` would import pandas


def conform(name: str, table: pa.Table, columns: Iterable[str] | None = None) -> pa.Table:
    """Returns `table` with exactly the columns (all, or `columns`) and types of table `name`.

    Nullable columns that are missing become null; other integer widths and plain strings are
    cast where every value fits. Raises `Mismatch` otherwise.
    """
    schema = TABLES[name]
    fields = list(schema) if columns is None else [schema.field(column) for column in columns]
    arrays = [_conform_column(table, field) for field in fields]
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def _bytes_as_texts(column: pa.ChunkedArray) -> int:
    """Bytes of a dictionary column's values, counting repetitions."""
    total = 0
    for chunk in column.chunks:
        lengths = pc.binary_length(chunk.dictionary.cast(pa.binary())).cast(pa.int64())
        total += pc.sum(lengths.take(chunk.indices)).as_py() or 0
    return total


def _conform_column(table: pa.Table, field: pa.Field) -> pa.ChunkedArray:
    if field.name not in table.column_names:
        if not field.nullable:
            raise Mismatch(f"column {field.name} is missing")
        return pa.chunked_array([pa.nulls(table.num_rows, field.type)])
    column = table.column(field.name)
    if column.null_count and not field.nullable:
        raise Mismatch(f"column {field.name} has nulls")
    if column.type == field.type:
        return column
    if pa.types.is_dictionary(column.type) and _bytes_as_texts(column) > MOST_TEXT_BYTES:
        raise Mismatch(f"column {field.name} has more than {MOST_TEXT_BYTES >> 20} MiB of text")
    try:
        if pa.types.is_dictionary(field.type):
            return column.cast(pa.string()).dictionary_encode().cast(field.type)
        return column.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        plain = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        raise Mismatch(f"column {field.name} is {plain}, not {field.type}") from error
