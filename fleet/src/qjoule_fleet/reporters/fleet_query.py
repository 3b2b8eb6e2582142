# SPDX-License-Identifier: Apache-2.0
"""Writes rows of a SQL query as a table, JSON, CSV or Parquet, batch by batch."""

from __future__ import annotations

import csv
import json
import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
from rich.table import Table
from rich.text import Text

from qjoule.api import QjouleError
from qjoule.api.command import pq, shorten
from qjoule.api.screen import Page, page_width, ruled_table, writers
from qjoule.api.screen import format as fmt

_TABLE_ROWS = 500
_CELL = 120  #: maximum characters of a table cell
_FALLBACK = 140


def write(parts: Iterator[Any], form: str, output: Path | None) -> None:
    """`parts`: the schema, then batches. Raises `QjouleError` if `output` cannot be written."""
    schema = next(parts)
    try:
        if form == "parquet" and output is not None:
            _parquet(schema, parts, output)
            return
        with _opened(output) as file:
            {"json": _json, "csv": _csv, "table": _table}[form](schema, parts, file)
    except OSError as error:
        if isinstance(error, BrokenPipeError) or output is None:
            raise
        raise QjouleError(f"cannot write {output}: {error.strerror or error}") from error


@contextmanager
def _opened(output: Path | None) -> Iterator[IO[str]]:
    if output is None:
        yield sys.stdout
        return
    with output.open("w", encoding="utf-8", newline="") as file:
        yield file


def _rows(parts: Iterator[Any]) -> Iterator[list[Any]]:
    """Yields the values of each row as a list, since columns may have equal names."""
    for batch in parts:
        yield from map(list, zip(*(column.to_pylist() for column in batch.columns), strict=True))


def _parquet(schema: pa.Schema, parts: Iterator[Any], output: Path) -> None:
    with pq.ParquetWriter(output, schema, compression="zstd") as writer:
        for batch in parts:
            writer.write_batch(batch)


def _json(schema: pa.Schema, parts: Iterator[Any], file: IO[str]) -> None:
    """Writes an array of objects; integers are exact."""
    before = "["
    for row in _rows(parts):
        values = dict(zip(schema.names, map(_plain, row), strict=True))
        file.write(f"{before}\n {json.dumps(values, allow_nan=False)}")
        before = ","
    file.write("[]\n" if before == "[" else "\n]\n")


def _csv(schema: pa.Schema, parts: Iterator[Any], file: IO[str]) -> None:
    writer = csv.writer(file)
    writer.writerow(map(writers.cell, schema.names))
    for row in _rows(parts):
        writer.writerow(writers.cell(_flat(value)) for value in row)


def _table(schema: pa.Schema, parts: Iterator[Any], file: IO[str]) -> None:
    table = ruled_table()
    for field in schema:
        number = pa.types.is_integer(field.type) or pa.types.is_decimal(field.type)
        number = number or pa.types.is_floating(field.type)
        table.add_column(
            Text(shorten(fmt.one_line(field.name), _CELL)), justify="right" if number else "left"
        )
    shown = _fill(table, parts)
    page = Page(page_width(None, 60, _FALLBACK), color=False)
    page.print(table)
    page.print()
    page.print(Text(shown or "no rows"))
    file.write(page.text())


def _fill(table: Table, parts: Iterator[Any]) -> str:
    count = 0
    for row in _rows(parts):
        if count == _TABLE_ROWS:
            return f"the first {_TABLE_ROWS:,} rows; --format csv has all"
        cells = (shorten(fmt.one_line(str(_flat(value))), _CELL) for value in row)
        table.add_row(*map(Text, cells))
        count += 1
    return "" if not count else f"{count:,} row{'s' if count > 1 else ''}"


def _plain(value: Any) -> Any:
    """Converts a value for JSON: infinity and NaN become null, integers are exact."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if value is None or isinstance(value, (bool, int, str)):
        return value
    return _iso(value) if isinstance(value, datetime) else str(value)


def _iso(value: datetime) -> str:
    if value.tzinfo is None:
        return value.isoformat()
    return value.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _flat(value: Any) -> Any:
    """Converts a value to text on one line."""
    if value is None:
        return ""
    if isinstance(value, (dict, list, tuple)):
        return json.dumps(_plain(value))
    return _plain(value)
