# SPDX-License-Identifier: Apache-2.0
"""Checks by its footer that a file is the part that its path names.

The dataset's writers are not trusted: every size is bounded before it is used, and a refused part
does not prevent reading others.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa

from qjoule.api.command import pq
from qjoule.api.rollups import (
    FORMER_NAMES,
    HELPERS,
    HOUR_S,
    ROWS,
    SLOW_COLUMNS,
    TAG_ROWS,
    WAITS,
    Part,
)
from qjoule.api.rollups import rollup_layout as layout
from qjoule_fleet.files import File, Files, Refused

#: A host's busiest hour has some megabytes and 60 times 20,000 rows.
MOST_BYTES, MOST_ROWS, MOST_ROW_GROUPS, MOST_COLUMNS = 1 << 28, 10_000_000, 10_000, 1_000
_LEAST_BYTES = 12
#: Columns that a part may lack, because earlier schemas do not have them.
_LATER = {"host_id", "policy", *WAITS, *HELPERS}
_BYTES_OF_TEXT = 1 << 20
#: Metadata key of parts that include the rows of the hour's part of schema 1, which may still
#: exist.
_INCLUDES_KEY = "qjoule.includes"
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


@dataclass(frozen=True, slots=True)
class Checked:
    """A readable part. `columns`: columns that we know, by their names in the file.

    `includes`: the part includes the rows of the host's part of schema 1 of the same hour.
    `closed`: its hour is over.
    """

    path: str
    part: Part
    size: int
    rows: int
    columns: tuple[str, ...]
    includes: bool = False
    closed: bool = False


def part_of_path(file: File) -> Part | Refused:
    """Returns the part that a path names."""
    part = layout.part_at(file.path)
    host = next((name[5:] for name in file.path.split("/") if name.startswith("host=")), "")
    if part is None:
        return Refused(file.path, "its name is not that of a part", host)
    if file.size < _LEAST_BYTES:
        return Refused(file.path, f"it is truncated: it has {file.size} bytes", part.host)
    if file.size > MOST_BYTES:
        return Refused(file.path, f"it has more than {MOST_BYTES >> 20} MiB", part.host)
    return part


def check(files: Files, file: File, part: Part) -> Checked | Refused:
    """Reads the file's footer and compares it with its path."""
    try:
        with files.open(file.path) as opened:
            parquet = pq.ParquetFile(
                opened,
                thrift_string_size_limit=_BYTES_OF_TEXT * 8,
                thrift_container_size_limit=_BYTES_OF_TEXT,
            )
            return _checked(file, part, parquet.metadata, parquet.schema_arrow)
    except FileNotFoundError:
        return Refused(file.path, "it is listed, but not there", part.host)
    except OSError as error:
        if error.errno:
            return Refused(file.path, f"it cannot be read: {os.strerror(error.errno)}", part.host)
        return Refused(file.path, _damaged(error), part.host)
    except (pa.ArrowException, ValueError, TypeError, OverflowError, MemoryError) as error:
        return Refused(file.path, _damaged(error), part.host)


def _damaged(error: Exception) -> str:
    text = (str(error) or type(error).__name__).splitlines()[0][:160]
    return f"it is truncated or damaged: {text}"


def _checked(file: File, part: Part, footer: Any, schema: pa.Schema) -> Checked | Refused:
    metadata = layout.decoded(footer.metadata)
    reason = _wrong_metadata(part, metadata) or _wrong_size(footer)
    ours: tuple[str, ...] = ()
    if not reason:
        reason, ours = _columns(part.table, schema.remove_metadata())
    if not reason and part.hour_s is not None:
        reason = _wrong_minutes(footer, schema, part.hour_s)
    if reason:
        return Refused(file.path, reason, part.host)
    return Checked(
        file.path,
        part,
        file.size,
        footer.num_rows,
        ours,
        _INCLUDES_KEY in metadata,
        metadata.get(layout.CLOSED_KEY) == "1",
    )


def _wrong_metadata(part: Part, metadata: Mapping[str, str]) -> str:
    version = metadata.get(layout.VERSION_KEY)
    if version is None and part.hour_s is None and not part.host_id:
        return ""  # schema 1 has no metadata in these tables
    if reason := layout.unreadable(version):
        return reason
    if reason := part.contradicts(metadata):
        return reason
    first = str(version).partition(".")[0] == "1"
    if first and part.host_id:
        return "it is of schema 1, which has no host id, but its name has one"
    if not first:
        missing = [
            key
            for key in (layout.TABLE_KEY, layout.HOST_KEY, layout.HOST_ID_KEY, layout.HOUR_KEY)
            if key not in metadata and (key != layout.HOUR_KEY or part.hour_s is not None)
        ]
        if missing or not part.host_id:
            return f"it does not say {missing[0] if missing else 'its host id'}"
    return ""


def _wrong_size(footer: Any) -> str:
    if footer.num_rows > MOST_ROWS or footer.num_row_groups > MOST_ROW_GROUPS:
        return f"it has {footer.num_rows:,} rows, more than an hour can have"
    if footer.num_columns > MOST_COLUMNS:
        return f"it has {footer.num_columns:,} columns"
    return ""


def _expected_schema(table: str) -> pa.Schema:
    if table in SLOW_COLUMNS:
        names = [name for part in SLOW_COLUMNS[table] for name in part]
        time = ROWS.field("minute").type
        texts = [(name, pa.string()) for name in [*names, "host_id"]]
        return pa.schema([*texts, ("valid_from", time), ("valid_to", time)])
    return TAG_ROWS if table == layout.TAGS else ROWS


@lru_cache(64)
def _columns(table: str, schema: pa.Schema) -> tuple[str, tuple[str, ...]]:
    """Returns what is wrong with a part's columns, and the columns that we know."""
    if len(set(schema.names)) != len(schema.names):
        return "two of its columns have one name", ()
    wanted = _expected_schema(table)
    ours = []
    for field in wanted:
        name = field.name if field.name in schema.names else FORMER_NAMES.get(field.name, "")
        if name not in schema.names:
            if field.name not in _LATER:
                return f"it has no column {field.name}", ()
        elif not _castable(schema.field(name).type, field.type):
            return f"its column {name} is of type {schema.field(name).type}", ()
        else:
            ours.append(name)
    return "", tuple(ours)


def _castable(actual: pa.DataType, wanted: pa.DataType) -> bool:
    """Returns true if every value of type `actual` can be cast to `wanted`."""
    if pa.types.is_dictionary(actual):
        actual = actual.value_type
    if pa.types.is_list(wanted):
        return bool(pa.types.is_list(actual) and pa.types.is_integer(actual.value_type))
    if pa.types.is_timestamp(wanted):
        return bool(pa.types.is_timestamp(actual) and actual.tz is not None)
    for kind in (pa.types.is_integer, pa.types.is_floating):
        if kind(wanted):
            return bool(kind(actual)) and actual != pa.uint64()
    return bool(pa.types.is_string(actual) or pa.types.is_large_string(actual))


def _wrong_minutes(footer: Any, schema: pa.Schema, hour_s: int) -> str:
    """Returns '' if all rows are of `hour_s`, else the reason why some may not be.

    Rows of another hour would not be counted in the ranges to which they belong.
    """
    at = next(i for i in range(footer.num_columns) if footer.schema.column(i).path == "minute")
    per_second = _PER_SECOND[schema.field("minute").type.unit]
    for group in range(footer.num_row_groups):
        column = footer.row_group(group).column(at)
        statistics = column.statistics
        if statistics is None or not statistics.has_min_max:
            if column.num_values:
                return "it does not say which minutes it has"
            continue
        for limit in (statistics.min_raw, statistics.max_raw):
            if (
                not isinstance(limit, int)
                or not 0 <= limit - hour_s * per_second < HOUR_S * per_second
            ):
                return "it has rows of another hour"
        if statistics.null_count:
            return "it has rows without a minute"
    return ""
