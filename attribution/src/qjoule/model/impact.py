# SPDX-License-Identifier: Apache-2.0
"""Joules as electricity, money and carbon: kWh, cost and gCO2e, in total and per call.

Carbon per call is the Software Carbon Intensity of ISO/IEC 21031:2024 (Green Software Foundation):
SCI = ((E * I) + M) per R, with R = one call. E is a row's energy times PUE (the site's energy per
energy of its machines). I is the carbon intensity of the electricity. M is the embodied carbon of
the machine over the trace; each row gets the share that it has in the measured energy.

Factors are the same for every joule of a trace, so the costs of rows add up to the cost of the
total.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from qjoule.model.arrays import F64
from qjoule.model.energy import I64
from qjoule.model.gpsup import Interval

NJ_PER_KWH = 3.6e15


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
    cost = [one * factors.price.per_kwh for one in kwh] if factors.price else None
    operational = [one * factors.carbon.per_kwh for one in kwh] if factors.carbon else None
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


def embodied_grams(given: float, *, per_hour: bool, duration_s: float) -> float:
    """M over the traces: a total is used as given, a rate is multiplied by their duration."""
    return given * duration_s / 3600 if per_hour else given
