# SPDX-License-Identifier: Apache-2.0
"""Merges the parts of a table into fewer and larger ones, and says how parts are written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from qjoule.lazy_import import pq
from qjoule.trace.durable import hidden, publish, sync
from qjoule.trace.parts import (
    Part,
    list_parts,
    newest_owners,
    part_name,
    read_footer,
    read_group,
    with_version,
)
from qjoule.trace.schema import TABLES

#: Parts of this size or larger are not merged: that would cost more than it helps.
LARGE_BYTES = 512 << 10
#: Parts are merged until the file has about this size.
FILE_BYTES = 16 << 20
GROUP_ROWS = 1 << 18


def _options(schema: pa.Schema) -> dict[str, Any]:
    """Times and ids grow slowly, and neighbouring counts have similar sizes, so their differences
    are stored, in as few bits as they need. That takes less time than compression, and reading is
    three times as fast. Names, hashes and small ids repeat, so they become dictionaries. Snappy
    costs least while recording.
    """
    hashes = [name for name in ("shape",) if name in schema.names]
    differences = [
        field.name
        for field in schema
        if field.type in (pa.int64(), pa.uint64()) and field.name not in hashes
    ]
    dictionaries = [field.name for field in schema if pa.types.is_dictionary(field.type)]
    small = [name for name in ("cpu", "package", "owner", "server") if name in schema.names]
    return {
        "compression": "snappy",
        "use_dictionary": dictionaries + small + hashes,
        "column_encoding": dict.fromkeys(differences, "DELTA_BINARY_PACKED"),
        "write_page_checksum": True,
        # Queries filter by the minimum and maximum of these columns only.
        "write_statistics": [name for name in ("t0_ns", "t1_ns", "t_ns") if name in schema.names],
    }


#: How the parts of each table are written.
PARQUET_OPTIONS = {name: _options(schema) for name, schema in TABLES.items()}


def merge_oldest(trace: Path, name: str) -> int:
    """Merges the oldest run of unmerged parts. Returns the number of parts.

    For use while recording: each row is merged at most once, FILE_BYTES at a time.
    """
    fresh = [part for part in list_parts(trace, name) if part.first == part.last]
    group = next((group for group in _groups(fresh) if len(group) > 1), [])
    _merge(trace / name, name, group)
    return len(group)


def merge_all(trace: Path, name: str) -> None:
    """Merges a table into few files; `owners` into one, with one row per owner."""
    parts = list_parts(trace, name)
    if name == "owners":
        _merge(trace / name, name, parts, newest_owners)
        return
    for group in list(_groups(parts)):
        _merge(trace / name, name, group)


def _groups(parts: list[Part]) -> Iterator[list[Part]]:
    """Runs of neighbouring parts of at most FILE_BYTES together; a large part is its own run."""
    group: list[Part] = []
    group_bytes = 0
    for part in parts:
        part_bytes = part.path.stat().st_size
        if part.first == part.last and part_bytes >= LARGE_BYTES:
            part_bytes = FILE_BYTES
        if group and (group_bytes + part_bytes > FILE_BYTES or group[-1].last + 1 != part.first):
            yield group
            group, group_bytes = [], 0
        group.append(part)
        group_bytes += part_bytes
    if group:
        yield group


def count_rows(trace: Path, name: str) -> int:
    """Rows of a table according to its files' footers."""
    return sum(read_footer(part).rows for part in list_parts(trace, name))


def _merge(
    folder: Path,
    name: str,
    parts: list[Part],
    reduce: Callable[[pa.Table], pa.Table] | None = None,
) -> None:
    if len(parts) < 2:
        return
    path = folder / part_name(parts[0].first, parts[-1].last)
    unfinished = hidden(path)
    try:
        schema = with_version(TABLES[name].empty_table()).schema
        options = PARQUET_OPTIONS[name] | {"compression": "zstd"}
        with pq.ParquetWriter(unfinished, schema, **options) as writer:
            _copy(parts, writer, reduce)
        sync(unfinished)
        publish(unfinished, path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    for part in parts:
        part.path.unlink()


def _copy(parts: list[Part], writer: Any, reduce: Callable[[pa.Table], pa.Table] | None) -> None:
    """Copies all rows in row groups of about GROUP_ROWS; `reduce` gets all rows at once."""
    pending: list[pa.Table] = []
    rows = 0
    for part in parts:
        footer = read_footer(part)
        for group in footer.groups:
            pending.append(read_group(footer, group))
            rows += pending[-1].num_rows
            if rows >= GROUP_ROWS and reduce is None:
                writer.write_table(_joined(pending), row_group_size=rows)
                pending, rows = [], 0
    if pending:
        joined = _joined(pending)
        writer.write_table(reduce(joined) if reduce else joined, row_group_size=max(rows, 1))


def _joined(tables: list[pa.Table]) -> pa.Table:
    return pa.concat_tables(tables).unify_dictionaries().combine_chunks()
