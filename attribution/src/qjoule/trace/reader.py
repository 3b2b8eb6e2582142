# SPDX-License-Identifier: Apache-2.0
"""Opens a trace. Damaged data is skipped and reported; the rest can be read.

trace = Trace("shop.qjoule")
trace.meta.host, trace.complete, trace.problems
trace.table("queries")            # pyarrow
trace.pandas("owners")
for segments in trace.iter_segments():   # pyarrow tables in order of time
    ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from qjoule.errors import QjouleError
from qjoule.lazy_import import pc
from qjoule.trace import schema
from qjoule.trace.columns import view
from qjoule.trace.meta import Meta
from qjoule.trace.meta_file import NewerFormat, read_meta
from qjoule.trace.parts import (
    PARQUET_ERRORS,
    Footer,
    Group,
    Part,
    RowGroup,
    in_time_order,
    list_parts,
    missing_parts,
    newest_owners,
    read_footer,
    read_group,
    stated_range,
)
from qjoule.trace.schema import TABLES, Mismatch, conform

if TYPE_CHECKING:
    import pandas as pd

BATCH_ROWS = 1 << 16


class Trace:
    """A trace directory, read as `TRACE_FORMAT.md` describes it.

    Raises `QjouleError` if there is no trace at `path`, or if a newer qjoule wrote it.
    `problems` grows as damage is found: footers are checked on opening, data when it is read.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.problems: list[str] = []
        if not self.path.is_dir():
            raise QjouleError(f"{self.path} is not a trace: give the directory that was recorded")
        self._parts = {name: list_parts(self.path, name) for name in TABLES}
        self._tables: dict[str, pa.Table] = {}
        self.meta = self._read_meta()
        self._footers = {name: self._open_parts(name) for name in TABLES}
        self._check_rows()

    @property
    def complete(self) -> bool:
        """True if the recording ended on purpose and no problem has been found so far."""
        return self.meta.complete and not self.problems

    def rows(self, name: str) -> int:
        """Rows of a table according to the footers of its readable parts."""
        return sum(footer.rows for footer in self._footers[name])

    def table(self, name: str) -> pa.Table:
        """A whole table in its schema (`qjoule.trace.schema.TABLES`), with one chunk per column.

        `owners` has one row per owner, the newest. `queries` has the fingerprints of shapes
        whose text came late. `segments` is in order of time; prefer `iter_segments`.
        """
        if name not in self._tables:
            self._tables[name] = self._load(name)
        return self._tables[name]

    def pandas(self, name: str) -> pd.DataFrame:
        """A whole table as a DataFrame with Arrow-backed columns, so that null stays null."""
        import pandas as pd  # noqa: PLC0415 - slow to import, and no command needs it

        frame: pd.DataFrame = self.table(name).to_pandas(types_mapper=pd.ArrowDtype)
        return frame

    def iter_table(self, name: str, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Yields a table by row group, in the order in which it was written."""
        wanted = list(columns) if columns is not None else None
        for footer in self._footers[name]:
            for group in footer.groups:
                table = self._read_group(name, wanted, footer, group)
                if table is not None and table.num_rows:
                    yield table

    def row_groups(self, name: str) -> list[RowGroup]:
        """The row groups of a table, which can be read in any order and repeatedly."""
        return [
            RowGroup(partial(self._read_row_group, name, footer, group))
            for footer in self._footers[name]
            for group in footer.groups
        ]

    def iter_segments(
        self,
        batch_rows: int = BATCH_ROWS,
        columns: Sequence[str] | None = None,
    ) -> Iterator[pa.Table]:
        """Yields segments by t0_ns, in tables of at most `batch_rows` rows, one chunk per column.

        `columns` restricts the columns; t0_ns and t1_ns are always included.
        """
        wanted = list(TABLES["segments"].names if columns is None else columns)
        wanted += [name for name in ("t0_ns", "t1_ns") if name not in wanted]
        groups = []
        for footer in self._footers["segments"]:
            for index in footer.groups:
                stated_ns = self._range(footer, index, "t0_ns")
                if stated_ns is not None:
                    read = partial(self._read_group, "segments", wanted, footer, index)
                    groups.append(Group(stated_ns[0], read))
        yield from in_time_order(groups, batch_rows, self._report_late_rows)

    @cached_property
    def begin_ns(self) -> int:
        """Begin of the trace (CLOCK_MONOTONIC), from the data if meta.json has none."""
        return self._span_ns[0] if self.meta.begin_ns is None else self.meta.begin_ns

    @cached_property
    def end_ns(self) -> int:
        """End of the trace, from the data if it was cut off."""
        return self._span_ns[1] if self.meta.end_ns is None else self.meta.end_ns

    @cached_property
    def loss(self) -> dict[str, int]:
        """Records lost, by cause; causes without losses are left out."""
        return self._loss_sum("count")

    @cached_property
    def lost_cpu_ns(self) -> int:
        """CPU time whose segments were lost."""
        return sum(self._loss_sum("lost_ns").values())

    # ---- reading ----------------------------------------------------------------------------

    def _read_meta(self) -> Meta:
        try:
            meta = read_meta(self.path)
            if meta.captured is not None:
                self.problems.append("it is captured and not converted: run `qjoule convert`")
            return meta
        except (ValueError, OSError) as error:
            if not any(self._parts.values()):
                raise QjouleError(
                    f"{self.path} is not a trace: it has no readable meta.json and no tables"
                ) from error
            what = "it cannot be read" if isinstance(error, OSError) else str(error)
            self.problems.append(f"meta.json: {what}; host, topology and servers are unknown")
            return Meta()

    def _open_parts(self, name: str) -> list[Footer]:
        opened = []
        for part in self._parts[name]:
            try:
                opened.append(read_footer(part))
            except NewerFormat:
                raise
            except PARQUET_ERRORS:
                self._problem(part, "is damaged or cut off; skipped")
        if missing := missing_parts(self._parts[name]):
            self.problems.append(f"{name}: {missing} part(s) are missing")
        return opened

    def _check_rows(self) -> None:
        for name, rows in self.meta.rows.items():
            if name in TABLES and self.rows(name) != rows:
                self.problems.append(
                    f"{name}: {self.rows(name)} rows can be read of {rows} that were written"
                )

    def _read_group(
        self, name: str, columns: list[str] | None, footer: Footer, group: int
    ) -> pa.Table | None:
        try:
            threads = pa.cpu_count() > 1
            read = read_group(footer, group, columns, use_threads=threads, repeats=True)
            table = conform(name, read, columns)
            table.validate(full=True)
        except Mismatch as error:
            self._problem(footer.part, f"does not follow the trace format: {error}; skipped")
            return None
        except PARQUET_ERRORS:
            self._problem(footer.part, f"is damaged in row group {group}; skipped")
            return None
        return self._without_backward_segments(footer.part, table) if name == "segments" else table

    def _read_row_group(
        self, name: str, footer: Footer, group: int, columns: Sequence[str]
    ) -> pa.Table | None:
        table = self._read_group(name, list(dict.fromkeys(columns)), footer, group)
        late = table is not None and name == "queries" and {"fingerprint", "shape"} <= set(columns)
        return self._late_fingerprints(table) if late else table

    def _without_backward_segments(self, part: Part, table: pa.Table) -> pa.Table:
        """`table` without segments that end before they begin."""
        if not {"t0_ns", "t1_ns"} <= set(table.column_names):
            return table
        backward = pc.less(table.column("t1_ns"), table.column("t0_ns"))
        if count := pc.sum(backward).as_py():
            self._problem(part, f"has {count} segments that end before they begin; skipped")
            return table.filter(pc.invert(backward))
        return table

    def _load(self, name: str) -> pa.Table:
        source = self.iter_segments() if name == "segments" else self.iter_table(name)
        tables = list(source)
        if not tables:
            return schema.empty(name)
        table = pa.concat_tables(tables).unify_dictionaries().combine_chunks()
        finish: dict[str, Callable[[pa.Table], pa.Table]] = {
            "owners": newest_owners,
            "queries": self._late_fingerprints,
        }
        return finish[name](table) if name in finish else table

    def _late_fingerprints(self, queries: pa.Table) -> pa.Table:
        fingerprint = queries.column("fingerprint")
        shapes = self.table("shapes")
        if not fingerprint.null_count or not shapes.num_rows:
            return queries
        row = pc.index_in(queries.column("shape"), value_set=shapes.column("shape"))
        late = shapes.column("fingerprint").cast(pa.string()).take(row)
        filled = pc.coalesce(fingerprint.cast(pa.string()), late)
        index = queries.column_names.index("fingerprint")
        encoded = filled.dictionary_encode().combine_chunks()
        return queries.set_column(index, queries.schema.field(index), encoded)

    @cached_property
    def _span_ns(self) -> tuple[int, int]:
        """Earliest and latest time among energy readings and segments; (0, 0) if there are none."""
        bounds: list[int] = []
        if self.table("energy").num_rows:
            bounds += pc.min_max(self.table("energy").column("t_ns")).as_py().values()
        for footer in self._footers["segments"]:
            for group in footer.groups:
                for column in ("t0_ns", "t1_ns"):
                    bounds += self._range(footer, group, column) or ()
        return (min(bounds), max(bounds)) if bounds else (0, 0)

    def _range(self, footer: Footer, group: int, column: str) -> tuple[int, int] | None:
        """Minimum and maximum of a column of segments in a row group; None if unreadable."""
        if (stated := stated_range(footer, group, column)) is not None:
            return stated
        table = self._read_group("segments", [column], footer, group)
        if table is None or not table.num_rows:
            return None
        values = view(table.column(column))
        return int(values.min()), int(values.max())

    def _loss_sum(self, column: str) -> dict[str, int]:
        """Total by cause: the largest running sum per (cpu, cause), added over CPUs."""
        last: dict[tuple[int | None, str], int] = {}
        for row in self.table("loss").select(["cpu", "cause", column]).to_pylist():
            key = (row["cpu"], row["cause"])
            last[key] = max(last.get(key, 0), row[column])
        total: dict[str, int] = {}
        for (_, cause), value in sorted(last.items(), key=lambda item: item[0][1]):
            if value:
                total[cause] = total.get(cause, 0) + value
        return total

    def _problem(self, part: Part, what: str) -> None:
        text = f"{part.path.relative_to(self.path)} {what}"
        if text not in self.problems:
            self.problems.append(text)

    def _report_late_rows(self, rows: int) -> None:
        self.problems.append(f"segments: {rows} rows begin before their file says; skipped")
