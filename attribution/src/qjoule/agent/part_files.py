# SPDX-License-Identifier: Apache-2.0
"""The store's files: checked when read, written as a whole, removed oldest first.

Files are not synced: each sync would make a database on the same disk wait.

Parts are written as Parquet, small and readable by every engine. Their host id tells hosts apart,
also hosts of one name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pyarrow as pa

from qjoule.agent.hourly_tables import ROWS, as_written_now
from qjoule.agent.rollup_layout import (
    CLOSED_KEY,
    HOURLY,
    SAMPLES,
    VERSION_KEY,
    Part,
    decoded,
    part_at,
    unreadable,
)
from qjoule.lazy_import import pc, pq
from qjoule.trace.durable import write_whole

#: The Parquet column of the lists' elements.
_LATENCY = "latency.list.element"
#: Rows are ordered by these: equal values lie together.
_ORDER = ("kind", "server", "database", "fingerprint", "name", "minute")


def parquet(table: pa.Table, metadata: Mapping[str, str], *, closed: bool = False) -> pa.Buffer:
    """Encodes a part as Parquet. `metadata`: the file's key-value metadata.

    A `closed` part is written once and takes longer to compress. Pages have checksums.
    """
    keys = [name for name in _ORDER if name in table.schema.names]
    ordered = table
    if "minute" in keys:  # `sort_by` would import acero, which takes longer than all else here
        ordered = table.take(pc.sort_indices(table, [(name, "ascending") for name in keys]))
    # A dictionary of numbers that hardly repeat would make the file a third larger.
    texts = [field.name for field in table.schema if field.type == pa.string()]
    # Integers as differences take an eighth less space, and less time. Spark and DuckDB read them,
    # unlike floats as split streams of bytes, which Spark refuses.
    integers = [field.name for field in table.schema if pa.types.is_integer(field.type)]
    if "latency" in table.schema.names:
        integers.append(_LATENCY)
    sink = pa.BufferOutputStream()
    pq.write_table(
        ordered.replace_schema_metadata(dict(metadata)),
        sink,
        compression="zstd",
        compression_level=12 if closed else 3,
        write_page_checksum=True,
        use_dictionary=texts,
        column_encoding=dict.fromkeys(integers, "DELTA_BINARY_PACKED"),
    )
    return sink.getvalue()


_DAMAGED = ".damaged"
_DAY = re.compile(r"date=\d{4}-\d\d-\d\d\Z", re.ASCII)


class PartContent(NamedTuple):
    """A part's key-value metadata and rows; none of either if there is no (sound) part."""

    metadata: dict[str, str]
    rows: pa.Table

    @property
    def closed(self) -> bool:
        return self.metadata.get(CLOSED_KEY) == "1"


class PartFiles:
    """`damaged`: number of files that were put aside. Methods raise `OSError`."""

    def __init__(self, root: Path, host_id: str) -> None:
        self.root, self._host_id = root, host_id
        self.damaged = 0

    def path(self, part: Part) -> Path:
        return self.root / part.path

    def path_in_schema_1(self, part: Part) -> Path:
        """The part's path in schema 1."""
        return self.root / replace(part, host_id="").path

    def rows(self, path: Path, schema: pa.Schema = ROWS) -> PartContent:
        """Metadata and rows of a file, with the columns of `schema`. A file that cannot be read is
        put aside, and has no rows.
        """
        table = self.read(path)
        nothing = PartContent({}, schema.empty_table())
        if table is None:
            return nothing
        metadata = decoded(table.schema.metadata)
        try:
            if unreadable(metadata.get(VERSION_KEY)):
                raise ValueError
            rows = as_written_now(table, schema)
        except (pa.ArrowException, ValueError):
            self.put_aside(path)
            return nothing
        host_ids = pc.fill_null(rows["host_id"], self._host_id)
        rows = rows.set_column(schema.get_field_index("host_id"), schema.field("host_id"), host_ids)
        return PartContent(metadata, rows)

    def metadata(self, path: Path) -> dict[str, str] | None:
        """A file's key-value metadata; None if it had to be put aside."""
        try:
            return decoded(pq.read_metadata(path).metadata)
        except FileNotFoundError:
            return None
        except (OSError, pa.ArrowException, ValueError):
            self.put_aside(path)
            return None

    def read(self, path: Path) -> pa.Table | None:
        """A file's table; None if there is none, or it had to be put aside."""
        try:
            if not path.exists():
                return None
            return pq.ParquetFile(path).read()
        except (OSError, pa.ArrowException, ValueError):
            self.put_aside(path)
            return None

    def write(
        self,
        part: Part,
        rows: pa.Table,
        *,
        closed: bool = False,
        more: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """`more`: further metadata."""
        path = self.path(part)
        path.parent.mkdir(parents=True, exist_ok=True)
        content = parquet(rows, part.metadata(closed=closed) | dict(more), closed=closed)
        write_whole(path, content, durable=False)

    def put_aside(self, path: Path) -> None:
        self.damaged += 1
        with suppress(OSError):
            path.replace(path.with_name(path.name + _DAMAGED))

    def parts(self, table: str) -> Iterator[Part]:
        """The hourly parts that are there, oldest first."""
        for path, _ in self.sizes((table,)):
            part = part_at(path.relative_to(self.root).as_posix())
            if part is not None:
                yield part

    def sizes(self, tables: tuple[str, ...] = (*HOURLY, SAMPLES)) -> list[tuple[Path, int]]:
        """Hourly files and their bytes, oldest first, damaged ones too.

        Other files are not ours to remove.
        """
        files: list[tuple[Any, Path, int]] = []
        for table in tables:
            with suppress(FileNotFoundError):
                days = [
                    folder for folder in (self.root / table).iterdir() if _DAY.match(folder.name)
                ]
                for day in days:
                    for path in day.glob("host=*/hour-??*.parquet*"):
                        order = (day.name, path.name[: len("hour-00")], table)
                        files.append((order, path, path.stat().st_size))
        return [(path, size) for _, path, size in sorted(files)]

    def remove(self, path: Path) -> None:
        """Removes a file, and its directories if they are empty then."""
        path.unlink(missing_ok=True)
        for directory in (path.parent, path.parent.parent):
            with suppress(OSError):  # it is not empty
                directory.rmdir()
