# SPDX-License-Identifier: Apache-2.0
"""Descriptions of a result's columns, and writers of JSON, CSV and Parquet that use them.

A result describes each column once, as a `DataColumn`: `result_columns` has those of an
attribution. `DataColumns` makes rows of a JSON document, and rows of a CSV or Parquet file, in
which an interval takes two columns.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from operator import attrgetter
from pathlib import Path
from typing import Any, Generic, TypeVar

from qjoule.errors import QjouleError
from qjoule.lazy_import import pa, pq
from qjoule.reporters import format as fmt

R = TypeVar("R")

#: Beginnings of formulas in spreadsheets.
_FORMULA = ("=", "+", "-", "@")


@dataclass(frozen=True)
class InTable:
    """How a table shows a column: its title, and its text.

    If the table is too wide, the column with the highest `rank` is dropped first.
    """

    title: str
    rank: int
    text: Callable[[Any], str]


@dataclass(frozen=True)
class DataColumn(Generic[R]):
    """One column of rows of the type `R`, in every output.

    `type` is the type of values, which may also be None (unknown): `str`, `int` or `float` (64
    bits), `Decimal` (38 digits, for integers beyond 64 bits), or `list`: words, which are a list in
    JSON and joined by blanks elsewhere. `ci95` returns both ends of the value's 95 % interval.
    """

    name: str  #: includes the unit
    type: type
    value: Callable[[R], Any]
    ci95: Callable[[R], Sequence[float] | None] | None = None
    energy: bool = False  #: unknown without an energy source
    optional: bool = False  #: left out of a JSON row if the value is None
    in_table: InTable | None = None

    def of(self, row: R, energy_known: bool) -> Any:
        """Returns a row's value; None if unknown. `energy_known`: false makes energies None."""
        return self.value(row) if energy_known or not self.energy else None


def field(name: str, kind: type, **options: Any) -> DataColumn[Any]:
    """Makes a column from the rows' field of this name."""
    return DataColumn(name, kind, attrgetter(name), **options)


class DataColumns(Generic[R]):
    """A sequence of columns, for rows of JSON documents and of flat files."""

    def __init__(self, columns: Iterable[DataColumn[R]]) -> None:
        self.types: dict[str, type] = {}  #: types of a CSV or Parquet file's columns, by name
        self._json: list[tuple[str, Callable[[R], Any], bool, bool]] = []
        self._flat: list[tuple[tuple[str, ...], Callable[[R], Any], bool]] = []
        for column in columns:
            name, flags = column.name, (column.energy, column.optional)
            self.types[name] = column.type
            self._json.append((name, column.value, *flags))
            self._flat.append(((name,), column.value, column.energy))
            if column.ci95:
                ends = (f"{name}_low95", f"{name}_high95")
                self.types |= dict.fromkeys(ends, float)
                self._json.append((f"{name}_ci95", column.ci95, *flags))
                self._flat.append((ends, column.ci95, column.energy))

    def json(self, row: R, energy_known: bool = True) -> dict[str, Any]:
        """Returns a row for JSON; an interval is the field `NAME_ci95`. `energy_known`: as in
        `of`."""
        out: dict[str, Any] = {}
        for name, value, energy, optional in self._json:
            content = value(row) if energy_known or not energy else None
            if content is not None or not optional:
                out[name] = content
        return out

    def flat(self, row: R, energy_known: bool = True) -> dict[str, Any]:
        """Returns a row for CSV and Parquet; an interval's ends are `NAME_low95`, `NAME_high95`."""
        out: dict[str, Any] = {}
        for names, value, energy in self._flat:
            content = value(row) if energy_known or not energy else None
            if len(names) > 1:
                out[names[0]], out[names[1]] = content or (None, None)
            else:
                out[names[0]] = " ".join(content) if isinstance(content, list) else content
        return out


@dataclass(frozen=True)
class FlatTable:
    """Rows of a CSV or Parquet file. `types`: by column name, in order."""

    types: dict[str, type]
    records: list[dict[str, Any]]

    def csv(self) -> str:
        """Returns RFC 4180 CSV with a header line; unknown values are empty. Every value is made
        safe (`cell`)."""
        return _csv(self.records, self.types)

    def arrow(self, schema: str, head: Mapping[str, Any]) -> pa.Table:
        """Returns an Arrow table. `head`: the rest of the document, which becomes metadata
        `schema`."""
        arrow_types = {
            str: pa.string(),
            list: pa.string(),
            int: pa.int64(),
            float: pa.float64(),
            Decimal: pa.decimal128(38, 0),
        }
        fields = [pa.field(name, arrow_types[kind]) for name, kind in self.types.items()]
        return pa.Table.from_pylist(self.records, pa.schema(fields, {schema: json.dumps(head)}))


def write_arrow(table: pa.Table, path: Path) -> None:
    """Writes a Parquet file. Raises `QjouleError` if it cannot be written."""
    try:
        pq.write_table(table, path)
    except OSError as error:
        raise QjouleError(f"cannot write {path}: {error.strerror or error}") from error


def json_text(document: Mapping[str, Any]) -> str:
    """Returns a document as text with a newline at its end. The bytes depend on the document
    only."""
    return json.dumps(document, indent=1, allow_nan=False) + "\n"


def finite(value: Any) -> Any:
    """Replaces infinities and NaN, for which JSON has no numbers, by None."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def csv_text(records: Sequence[Mapping[str, Any]]) -> str:
    """Formats records with the same keys (at least one record) like `FlatTable.csv`."""
    return _csv(records, records[0])


def _csv(records: Sequence[Mapping[str, Any]], names: Iterable[str]) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, list(names))
    writer.writeheader()
    for record in records:
        writer.writerow({name: cell(value) for name, value in record.items()})
    return out.getvalue()


def cell(value: Any) -> Any:
    """Makes a value safe for a CSV file: text on one line, and nothing that a spreadsheet executes.

    Applications choose the values of tags. An apostrophe makes a cell text (OWASP, "CSV
    Injection").

    >>> cell("=1+1"), cell(-1.5)
    ("'=1+1", -1.5)
    """
    if not isinstance(value, str):
        return value
    line = fmt.one_line(value)
    return f"'{line}" if line.lstrip(" ").startswith(_FORMULA) else line
