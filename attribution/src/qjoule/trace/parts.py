# SPDX-License-Identifier: Apache-2.0
"""The files of one table: lists them, drops covered ones, and reads one without trusting it.

A table is a folder of `part-NNNNNN.parquet`. Merging parts 3 to 9 gives
`part-000003-000009.parquet`, which is renamed into place before the merged parts are removed. A
reader that finds both uses the range and ignores what it covers. Names that begin with a dot are
unfinished files.

`in_time_order` merges segments from row groups that may overlap, in bounded memory. Row groups are
read in order of their earliest segment. Once group i has been read, everything that begins before
group i + 1 is final. A recorded trace is already in order, so only one row group is held at a time.
A trace written in another order costs as much memory as its groups overlap.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa

from qjoule.lazy_import import pq
from qjoule.trace.columns import numpy_view, view
from qjoule.trace.meta_file import check_version
from qjoule.trace.vocabulary import FORMAT_VERSION, VERSION_KEY
from qjoule.typed_json import FORMER_NAMES

_NAME = re.compile(r"part-(\d{6,9})(?:-(\d{6,9}))?\.parquet")
#: Bounds of a decoded row group. Recordings write smaller ones, but a trace may be untrusted.
MOST_ROWS, MOST_BYTES = 10_000_000, 1 << 30
#: Raised by pyarrow on a damaged or hostile Parquet file; MemoryError from absurd sizes.
PARQUET_ERRORS = (pa.ArrowException, OSError, ValueError, KeyError, OverflowError, MemoryError)
_END = np.iinfo(np.int64).max


@dataclass(frozen=True, order=True)
class Part:
    """Parts `first` to `last` of a table; a table in a single file is part 0."""

    first: int
    last: int
    path: Path


def part_name(first: int, last: int | None = None) -> str:
    """File name of a part, or of the merged parts `first` to `last`."""
    return f"part-{first:06d}.parquet" if last is None else f"part-{first:06d}-{last:06d}.parquet"


def list_parts(trace: Path, name: str) -> list[Part]:
    """The parts of table `name` without covered ones, in order: `name.parquet`, or the folder's."""
    single = trace / f"{name}.parquet"
    if single.is_file():
        return [Part(0, 0, single)]
    folder = trace / name
    if not folder.is_dir():
        return []
    parts = []
    for path in folder.iterdir():
        if match := _NAME.fullmatch(path.name):
            first = int(match[1])
            parts.append(Part(first, int(match[2] or first), path))
    return _uncovered(parts)


def _uncovered(parts: list[Part]) -> list[Part]:
    uncovered: list[Part] = []
    for part in sorted(parts, key=lambda part: (part.first, -part.last)):
        if not uncovered or part.last > uncovered[-1].last:
            uncovered.append(part)
    return uncovered


def missing_parts(parts: list[Part]) -> int:
    """How many part numbers are absent before the last one present."""
    return (parts[-1].last + 1 - sum(p.last - p.first + 1 for p in parts)) if parts else 0


@dataclass(frozen=True)
class Footer:
    """A part whose footer has been read. No file is kept open: a trace may have many parts."""

    part: Part
    columns: tuple[str, ...]
    texts: tuple[str, ...]  #: text columns, whose values may be large and repeat
    metadata: Any  #: pyarrow.parquet.FileMetaData

    @property
    def rows(self) -> int:
        return int(self.metadata.num_rows)

    @property
    def groups(self) -> range:
        return range(self.metadata.num_row_groups)


def read_footer(part: Part) -> Footer:
    """Raises one of PARQUET_ERRORS, or `NewerFormat`."""
    if not stat.S_ISREG(part.path.stat().st_mode):  # a pipe would make us wait
        raise ValueError("no regular file")
    with pq.ParquetFile(part.path) as file:
        schema = file.schema_arrow
        version = (schema.metadata or {}).get(VERSION_KEY)
        if version is not None:
            check_version(int(version))
        groups = (file.metadata.row_group(group) for group in range(file.metadata.num_row_groups))
        if any(
            group.num_rows > MOST_ROWS or group.total_byte_size > MOST_BYTES for group in groups
        ):
            raise ValueError("a row group is too large")
        texts = tuple(field.name for field in schema if pa.types.is_string(field.type))
        return Footer(part, tuple(schema.names), texts, file.metadata)


def with_version(table: pa.Table) -> pa.Table:
    """`table` marked with the format version that its writer followed."""
    return table.replace_schema_metadata({VERSION_KEY: str(FORMAT_VERSION).encode()})


def stated_range(footer: Footer, group: int, column: str) -> tuple[int, int] | None:
    """Minimum and maximum of an integer column in a row group, according to the footer."""
    group_meta = footer.metadata.row_group(group)
    for index in range(group_meta.num_columns):
        chunk = group_meta.column(index)
        if chunk.path_in_schema == column:
            statistics = chunk.statistics
            if statistics is None or not statistics.has_min_max:
                return None
            least, greatest = statistics.min, statistics.max
            return (least, greatest) if isinstance(least, int) else None
    return None


def read_group(
    footer: Footer,
    group: int,
    columns: list[str] | None = None,
    *,
    use_threads: bool = False,
    repeats: bool = False,
) -> pa.Table:
    """Reads row group `group`. Columns that the file lacks are left out. Raises PARQUET_ERRORS.

    `repeats`: texts become dictionaries, so that a repeated text takes its memory once.
    `use_threads`: decode columns in parallel; not while recording, beside the traced servers. The
    file is not memory-mapped: if it were cut short, SIGBUS would kill the process.
    """
    former = {n: old for n, old in FORMER_NAMES.items() if old in footer.columns}
    file_columns = None if columns is None else [former.get(name, name) for name in columns]
    if file_columns is not None:
        file_columns = [name for name in file_columns if name in footer.columns]
    options = {
        "metadata": footer.metadata,
        "page_checksum_verification": True,
        "read_dictionary": footer.texts if repeats else None,
    }
    with pq.ParquetFile(footer.part.path, **options) as file:
        table = file.read_row_group(group, columns=file_columns, use_threads=use_threads)
    present = {old: name for name, old in former.items()}
    return cast(pa.Table, table.rename_columns([present.get(n, n) for n in table.column_names]))


@dataclass(frozen=True)
class RowGroup:
    """A row group. `read(columns)` returns None and notes the problem if it cannot be read.

    As in `Trace.table`, `queries` includes fingerprints of shapes whose text came late, if both
    `fingerprint` and `shape` are requested.
    """

    read: Callable[[Sequence[str]], pa.Table | None]


def newest_owners(owners: pa.Table) -> pa.Table:
    """The last row of each owner, sorted: a recorder repeats an owner when it learns more."""
    ids = numpy_view(owners.column("owner").combine_chunks(), np.uint32)
    _, from_end = np.unique(ids[::-1], return_index=True)
    if from_end.size == ids.size and bool(np.all(ids[1:] > ids[:-1])):
        return owners
    return owners.take(pa.array(ids.size - 1 - from_end)).combine_chunks()


@dataclass(frozen=True)
class Group:
    """A row group: its earliest t0_ns according to its file, and a function that reads it.

    `read` returns None, and reports the problem, if the group cannot be read.
    """

    first_t0_ns: int
    read: Callable[[], pa.Table | None]


def in_time_order(
    groups: Iterable[Group], batch_rows: int, late: Callable[[int], None]
) -> Iterator[pa.Table]:
    """The groups' rows by t0_ns (ties in the given order), in tables of at most `batch_rows`.

    `late(n)` is called for n rows that begin before their group's stated minimum, and are too late.
    """
    ordered = sorted(groups, key=lambda group: group.first_t0_ns)
    limits_ns = [*(group.first_t0_ns for group in ordered[1:]), _END]
    emitted_ns = np.iinfo(np.int64).min
    pending: pa.Table | None = None
    for group, limit_ns in zip(ordered, limits_ns, strict=False):
        if (table := group.read()) is None:
            continue
        t0_ns = view(table.column("t0_ns"))
        if (count := int(np.count_nonzero(t0_ns < emitted_ns))) > 0:
            late(count)
            table = table.filter(pa.array(t0_ns >= emitted_ns))
        pending = _sorted(table if pending is None else pa.concat_tables([pending, table]))
        del table, t0_ns  # so that only one group's rows are in memory
        ready = int(np.searchsorted(view(pending.column("t0_ns")), limit_ns))
        rest = pending.slice(ready) if ready < pending.num_rows else None
        done, pending = pending.slice(0, ready), rest
        yield from _slices(done, batch_rows)
        del done
        emitted_ns = limit_ns
    if pending is not None:
        yield from _slices(pending, batch_rows)


def _slices(table: pa.Table, rows: int) -> Iterator[pa.Table]:
    for start in range(0, table.num_rows, rows):
        yield table.slice(start, rows)


def _sorted(table: pa.Table) -> pa.Table:
    table = table.combine_chunks()
    t0_ns = view(table.column("t0_ns"))
    if t0_ns.size < 2 or bool(np.all(t0_ns[1:] >= t0_ns[:-1])):
        return table
    return table.take(pa.array(np.argsort(t0_ns, kind="stable")))
