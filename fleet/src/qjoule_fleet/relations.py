# SPDX-License-Identifier: Apache-2.0
"""DuckDB over the checked parts. It can read only these and the dataset's directory.

Parts of different schemas become one relation: missing columns are null, and unknown columns are
ignored. `host` and `host_id` come from a part's path, which was compared with its metadata, and not
from its rows.
"""

from __future__ import annotations

import os
import tempfile
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from qjoule.api import QjouleError
from qjoule.api.rollups import FORMER_NAMES, HELPERS, WAITS
from qjoule_fleet import views
from qjoule_fleet.catalog import Selection
from qjoule_fleet.files import Files, RemoteFiles
from qjoule_fleet.footers import Checked
from qjoule_fleet.times import Range, iso
from qjoule_fleet.views import PART_COLUMNS, text

if TYPE_CHECKING:
    import duckdb

_TYPES = {
    "minute": "timestamptz", "valid_from": "timestamptz", "valid_to": "timestamptz",
    "latency": "bigint[]", "seconds": "float",
    **dict.fromkeys(("calls", "cpu_ns", "energy_nj", "latency_ns"), "bigint"),
    **dict.fromkeys(("lost_records", "lost_cpu_ns", *WAITS, *HELPERS), "bigint"),
}  # fmt: skip
_FLOATS = ("_nj", "_nj2")
#: Memory of a row in a DuckDB table, with its histogram, and the share of the memory for such
#: tables: the rest is for sums.
_ROW_BYTES, _HELD = 400, 0.5
BATCH_ROWS = 10_000


@dataclass(frozen=True)
class Limits:
    """Limits of DuckDB; beyond its memory it spills to a temporary directory."""

    memory_mb: int = 1000
    threads: int = 0  #: 0: one per CPU that we may use

    @property
    def cpus(self) -> int:
        return self.threads or len(os.sched_getaffinity(0))


@dataclass(frozen=True)
class Source:
    """Parts of one relation; `minutes`: range of the rows that count."""

    relation: str
    parts: Sequence[Checked]
    minutes: Range | None = None


class Session:
    """A DuckDB connection as a context manager. Raises `QjouleError` for errors of DuckDB."""

    def __init__(self, files: Files, limits: Limits) -> None:
        self._files, self._limits = files, limits
        self._spill = tempfile.TemporaryDirectory(prefix="qjoule-fleet-")
        self._held = set[str]()
        self._connection = _connect(limits, self._spill.name)
        if isinstance(files, RemoteFiles):
            self._connection.register_filesystem(files.filesystem)
        directories = f"[{text(files.root + '/')}, {text(self._spill.name + '/')}]"
        self._connection.execute(f"set allowed_directories = {directories}")
        for name in ("enable_external_access", "autoinstall_known_extensions"):
            self._connection.execute(f"set {name} = false")

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()
        self._spill.cleanup()

    def define(self, selection: Selection, sources: Sequence[Source]) -> None:
        """Defines the relations of `sources`, and all views on them."""
        hosts = selection.hosts
        every = {checked.path: checked.part for source in sources for checked in source.parts}
        address = [f"{self._files.root}/{path}" for path in every]
        columns = {
            "filename": pa.array(address, pa.string()),
            "host": pa.array([hosts.label(checked) for checked in every.values()], pa.string()),
            "host_id": pa.array([hosts.key(checked) for checked in every.values()], pa.string()),
        }
        self.put("part_hosts", pa.table(columns))
        of: dict[str, list[str]] = defaultdict(list)
        for source in sources:
            of[source.relation] += self._selects(source)
        for relation in PART_COLUMNS:
            selects = of[relation] or [_empty_select(relation)]
            self.run(f"create view {relation} as\n" + "\nunion all\n".join(selects))
        for statement in views.definitions():
            self.run(statement)

    def hold(self, sources: Sequence[Source]) -> None:
        """Loads the parts of these relations into memory for several questions, if they fit.

        Opening thousands of small files takes longer than summing their rows.
        """
        free_bytes = self._limits.memory_mb * 1e6 * _HELD
        for source in sources:
            size = sum(checked.rows for checked in source.parts) * _ROW_BYTES
            if source.relation in self._held or not source.minutes or size > free_bytes:
                continue
            free_bytes -= size
            self._held.add(source.relation)
            self.keep(f"held_{source.relation}", f"select * from {source.relation}")
            select = f"select * from held_{source.relation}"
            self.run(f"create or replace view {source.relation} as {select}")

    def lock(self) -> None:
        """Forbids later statements to change a limit."""
        self.run("set lock_configuration = true")

    def put(self, name: str, table: pa.Table) -> None:
        """Copies `table` into a DuckDB table."""
        self._connection.register("given", table)
        self.run(f"create or replace temp table {name} as select * from given")
        self._connection.unregister("given")

    def run(self, statement: str) -> None:
        with _duckdb_errors():
            self._connection.execute(statement)

    def keep(self, name: str, select: str) -> None:
        """Stores the rows of a SELECT as a table."""
        self.run(f"create or replace temp table {name} as\n{select}")

    def table(self, select: str) -> pa.Table:
        with _duckdb_errors():
            return self._connection.sql(select).to_arrow_table()

    def batches(self, select: str) -> Iterator[pa.Schema | pa.RecordBatch]:
        """Yields the schema of a SELECT's rows, then batches: they are never all in memory."""
        with _duckdb_errors():
            reader = self._connection.sql(select).to_arrow_reader(BATCH_ROWS)
        yield reader.schema
        while True:
            with _duckdb_errors():
                batch = next(iter(reader), None)
            if batch is None:
                return
            yield batch

    def only_reads(self, statement: str) -> None:
        """Raises `QjouleError` unless the text is one SELECT statement."""
        import duckdb  # noqa: PLC0415

        with _duckdb_errors():
            statements = self._connection.extract_statements(statement)
        if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
            raise QjouleError("give one SELECT statement: nothing else is run")

    def _selects(self, source: Source) -> list[str]:
        """Returns a SELECT for the parts of each set of columns."""
        alike: dict[tuple[str, ...], list[str]] = defaultdict(list)
        for checked in source.parts:
            alike[checked.columns].append(f"{self._files.root}/{checked.path}")
        where = ""
        if source.minutes is not None:
            begin, end = iso(source.minutes.begin_s), iso(source.minutes.end_s)
            where = f"\nwhere p.minute >= {_time(begin)} and p.minute < {_time(end)}"
        selects = []
        for columns, paths in alike.items():
            names = [_column_sql(name, columns) for name in PART_COLUMNS[source.relation]]
            listed = f"[{', '.join(map(text, paths))}]"
            selects.append(
                f"select {', '.join(names)}, h.host, h.host_id\n"
                f"from read_parquet({listed}, filename = true, hive_partitioning = false) p\n"
                f"join part_hosts h on p.filename = h.filename{where}"
            )
        return selects


def _connect(limits: Limits, spill: str) -> duckdb.DuckDBPyConnection:
    try:
        import duckdb  # noqa: PLC0415 (an extra)
    except ImportError:
        raise QjouleError("DuckDB is missing: pip install 'qjoule-fleet'") from None
    connection = duckdb.connect(
        config={
            "memory_limit": f"{limits.memory_mb}MB",
            "threads": limits.cpus,
            "temp_directory": spill,
            "preserve_insertion_order": False,
            "enable_external_file_cache": False,
            "python_enable_replacements": False,
        }
    )
    connection.execute("set TimeZone = 'UTC'")
    return connection


def _column_sql(name: str, columns: Collection[str]) -> str:
    """Returns the SQL that reads one of our columns from a part with these columns."""
    if (former := FORMER_NAMES.get(name)) in columns:
        return f"p.{former} as {name}"
    return f"p.{name}" if name in columns else f"null::{_type(name)} as {name}"


def _empty_select(relation: str) -> str:
    names = [f"null::{_type(name)} as {name}" for name in PART_COLUMNS[relation]]
    return f"select {', '.join(names)}, '' as host, '' as host_id where false"


def _type(name: str) -> str:
    return _TYPES.get(name) or ("float" if name.endswith(_FLOATS) else "varchar")


def _time(iso_text: str) -> str:
    return f"timestamptz {text(iso_text)}"


class _duckdb_errors:
    """Converts DuckDB's errors to ours."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        import duckdb  # noqa: PLC0415

        if isinstance(error, duckdb.Error):
            message = " ".join(str(error).split())[:500]
            if isinstance(error, duckdb.OutOfMemoryException):
                message += " (--memory gives it more)"
            raise QjouleError(message) from None
