# SPDX-License-Identifier: Apache-2.0
"""A time series of prices or carbon intensities, as CSV: parsed strictly, or refused by its line.

time,gco2e_per_kwh
2026-01-01T00:00:00+01:00,412
2026-01-01T01:00:00+01:00,398
"""

from __future__ import annotations

import csv
import io
import math
import re
from datetime import datetime
from itertools import pairwise

import numpy as np

from qjoule.errors import QjouleError
from qjoule.model.impact import Steps

CARBON, PRICE = "gco2e_per_kwh", "price_per_kwh"
#: Larger values are mistakes: lignite alone emits about 1,100 g, and even in currencies with small
#: units a kWh costs less than a million.
LARGEST = {CARBON: 5_000.0, PRICE: 1_000_000.0}
#: A step longer than this many usual ones is a gap. (Months are 28 to 31 days.)
_GAP = 1.5
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")


def parse_series(text: str, column: str, where: str) -> Steps:
    """The steps in the CSV `text`; `column` is CARBON or PRICE.

    Raises `QjouleError`, which names the line of `where`, for an invalid series: another header, a
    time without zone, lines out of order or missing, a value that is negative or absurd.
    """
    rows = csv.reader(io.StringIO(text.removeprefix("\ufeff")), strict=True)
    times: list[int] = []
    values: list[float] = []
    lines: list[int] = []
    try:
        header = next(rows, [])
        if [name.strip() for name in header] != ["time", column]:
            raise QjouleError(f"{where}, line 1: the header must be time,{column}")
        for row in rows:
            if not row:
                continue
            line = rows.line_num
            if len(row) != 2:
                raise QjouleError(f"{where}, line {line}: it must have two values, time,{column}")
            times.append(_time(row[0], f"{where}, line {line}"))
            values.append(parse_value(row[1], column, f"{where}, line {line}"))
            lines.append(line)
    except csv.Error as error:
        raise QjouleError(f"{where}, line {rows.line_num}: {error}") from error
    return Steps(np.array(times, np.int64), np.array(values), _step(times, lines, where))


def parse_value(text: str, column: str, where: str) -> float:
    """One factor. Raises `QjouleError` unless it is a number from 0 to the column's `LARGEST`."""
    text = text.strip()
    if text.startswith("-") and _NUMBER.fullmatch(text[1:]):
        raise QjouleError(f"{where}: {column} is negative ({text})")
    value = float(text) if _NUMBER.fullmatch(text) and text.isascii() else math.nan
    if math.isnan(value):
        raise QjouleError(f"{where}: {text[:40]!r} is no number")
    if value > LARGEST[column]:
        raise QjouleError(f"{where}: {column} is absurd ({text}): at most {LARGEST[column]:,.0f}")
    return value


def _time(text: str, where: str) -> int:
    """Nanoseconds since 1970 of an ISO 8601 time with a zone."""
    try:
        moment = datetime.fromisoformat(text.strip())
        if moment.tzinfo is None:
            raise QjouleError(f"{where}: {text.strip()[:40]!r} has no time zone: add Z or +HH:MM")
        return round(moment.timestamp()) * 1_000_000_000
    except (ValueError, OverflowError) as error:
        raise QjouleError(f"{where}: {text[:40]!r} is no time of ISO 8601") from error


def _step(times: list[int], lines: list[int], where: str) -> int:
    """The usual distance between its times."""
    if len(times) < 2:
        raise QjouleError(f"{where}: fewer than two times: give a constant instead")
    steps = [later - earlier for earlier, later in pairwise(times)]
    usual = int(np.median(steps))
    for line, step in zip(lines[1:], steps, strict=True):
        if step <= 0:
            raise QjouleError(f"{where}, line {line}: its time is not after that of the line above")
    for line, step in zip(lines[1:], steps, strict=True):
        if step > _GAP * usual:
            raise QjouleError(
                f"{where}, line {line}: a gap of {step / 1e9:,.0f} s before it, where other times "
                f"are {usual / 1e9:,.0f} s apart"
            )
    return usual
