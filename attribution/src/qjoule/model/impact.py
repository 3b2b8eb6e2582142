# SPDX-License-Identifier: Apache-2.0
"""Converts joules to electricity, money and carbon: kWh, cost and gCO2e, in total and per call.

Carbon per call is the Software Carbon Intensity of ISO/IEC 21031:2024 (Green Software Foundation):
SCI = ((E * I) + M) per R, with R = one call. E is a row's energy times PUE (the site's energy per
energy of its machines). I is the carbon intensity of the electricity. M is the embodied carbon of
the machine over the trace; each row gets the share that it has in the measured energy.

Factors are the same for every joule of a trace, so the costs of rows add up to the cost of the
total.

A time series of prices or carbon intensities is CSV, parsed strictly, or refused by its line:

    time,gco2e_per_kwh
    2026-01-01T00:00:00+01:00,412
    2026-01-01T01:00:00+01:00,398
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

import numpy as np

from qjoule.errors import QjouleError
from qjoule.model.arrays import F64
from qjoule.model.energy import I64
from qjoule.model.gpsup import Interval

NJ_PER_KWH = 3.6e15
CARBON, PRICE = "gco2e_per_kwh", "price_per_kwh"
#: Larger values are mistakes: lignite alone emits about 1,100 g, and even in currencies with small
#: units a kWh costs less than a million.
LARGEST = {CARBON: 5_000.0, PRICE: 1_000_000.0}
#: A step longer than this many usual ones is a gap. (Months are 28 to 31 days.)
_GAP = 1.5
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")


@dataclass(frozen=True)
class Factor:
    """What a kWh costs, or emits. `source`: where it is from, for people."""

    per_kwh: float
    source: str


@dataclass(frozen=True)
class Embodied:
    """M: `grams` of CO2e for all traces together. `source`: how it was given."""

    grams: float
    source: str


@dataclass(frozen=True)
class Factors:
    """What joules are multiplied by. None: not requested.

    `currency` is a code of ISO 4217, empty where none was named.
    """

    pue: float = 1.0
    price: Factor | None = None
    currency: str = ""
    carbon: Factor | None = None
    embodied: Embodied | None = None

    @property
    def with_carbon(self) -> bool:
        return self.carbon is not None or self.embodied is not None


@dataclass(frozen=True)
class Amount:
    """A figure with its 95 % interval, in total and for one call; None without calls."""

    value: float
    ci95: Interval
    per_call: float | None
    per_call_ci95: Interval | None


@dataclass(frozen=True)
class Impact:
    """The impact of one row. `gco2e` is E * I + M; per call it is the SCI score. None: no factor
    given."""

    kwh: Amount  #: at the site's meter: with PUE
    cost: Amount | None
    gco2e: Amount | None
    operational_gco2e: float | None  #: E * I
    embodied_gco2e: float | None  #: the row's part of M


def impact(
    energy_nj: float, ci95_nj: Interval, calls: int, measured_nj: int, factors: Factors
) -> Impact:
    """The impact of an energy, from a trace that measured `measured_nj` in total.

    The intervals are the energy's. A part of M is never more than M.
    """
    ends = (energy_nj, *ci95_nj)
    kwh = [nj / NJ_PER_KWH * factors.pue for nj in ends]
    cost = [energy_kwh * factors.price.per_kwh for energy_kwh in kwh] if factors.price else None
    operational = (
        [energy_kwh * factors.carbon.per_kwh for energy_kwh in kwh] if factors.carbon else None
    )
    embodied = None
    if factors.embodied:
        shares = [min(nj / measured_nj, 1.0) if measured_nj else 0.0 for nj in ends]
        embodied = [factors.embodied.grams * share for share in shares]
    parts = [part for part in (operational, embodied) if part]
    grams = [sum(values) for values in zip(*parts, strict=True)]
    return Impact(
        _amount(kwh, calls),
        _amount(cost, calls) if cost else None,
        _amount(grams, calls) if grams else None,
        operational[0] if operational else None,
        embodied[0] if embodied else None,
    )


def _amount(figures: Sequence[float], calls: int) -> Amount:
    value, low, high = figures
    if not calls:
        return Amount(value, (low, high), None, None)
    return Amount(value, (low, high), value / calls, (low / calls, high / calls))


@dataclass(frozen=True)
class Steps:
    """A factor that changes: `values[i]` holds from `times_ns[i]` (since 1970) to the next time.

    The last value holds for `step_ns`.
    """

    times_ns: I64
    values: F64
    step_ns: int

    @property
    def end_ns(self) -> int:
        return int(self.times_ns[-1]) + self.step_ns

    def at(self, times_ns: I64) -> F64:
        """The values at these times, which must lie within the series."""
        return self.values[np.searchsorted(self.times_ns, times_ns, side="right") - 1]


def mean_factor(steps: Steps, boundaries_ns: I64, energy_nj: F64) -> float:
    """The mean of the factor over windows, weighted by their energy.

    Args:
        steps: must cover the windows.
        boundaries_ns: of k windows, k + 1 times since 1970.
        energy_nj: of the windows (k,), never negative. If all are 0, windows count by length.
    """
    middles = (boundaries_ns[:-1] + boundaries_ns[1:]) // 2
    weights = energy_nj if energy_nj.sum() > 0 else np.diff(boundaries_ns).astype(np.float64)
    return float(np.average(steps.at(middles), weights=weights))


def embodied_grams(amount: float, *, per_hour: bool, duration_s: float) -> float:
    """M over the traces: a total is used as given, a rate is multiplied by their duration."""
    return amount * duration_s / 3600 if per_hour else amount


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
    usual_ns = int(np.median(steps))
    for line, step in zip(lines[1:], steps, strict=True):
        if step <= 0:
            raise QjouleError(f"{where}, line {line}: its time is not after that of the line above")
    for line, step in zip(lines[1:], steps, strict=True):
        if step > _GAP * usual_ns:
            raise QjouleError(
                f"{where}, line {line}: a gap of {step / 1e9:,.0f} s before it, where other times "
                f"are {usual_ns / 1e9:,.0f} s apart"
            )
    return usual_ns
