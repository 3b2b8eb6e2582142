# SPDX-License-Identifier: Apache-2.0
"""Converts raw energy counters to integer nanojoules per window, or to the cause of a missing
value.

Nothing is clamped and nothing is dropped: a window whose energy cannot be known carries a `Cause`
instead, and no sum includes its energy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from fractions import Fraction

import numpy as np
import numpy.typing as npt

I64 = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]

#: More than this is an error of the counter: the largest server packages draw about 500 W.
MAX_PLAUSIBLE_W = {
    "package": 2000.0,
    "core": 2000.0,
    "uncore": 500.0,
    "dram": 500.0,
    "psys": 1e4,
    "wall": 1e4,
    "one_core": 200.0,
}
#: A domain that is never powered off draws at least this. Core and uncore may be gated to zero.
MIN_AWAKE_W = {"package": 0.5, "psys": 0.5, "dram": 0.05, "wall": 0.5}
STOPPED_NS = 100_000_000  #: a counter of a domain that is awake moves within this time
UPDATE_PERIOD_NS = 1_000_000  #: RAPL counters move about once per millisecond
SLOW_NS = 10_000_000  #: a counter that moves less often than this has windows of its own
_LONGEST_PERIOD_NS = 60_000_000_000  #: windows are held in memory for this long
ONE_CORE = "one_core"  #: domain of a counter of a single core, which is part of its package
WALL = "wall"  #: domain of a meter outside the machine, which has its own clock


class Cause(IntEnum):
    """What is known about a window's energy. Only the first two causes have an energy."""

    NONE = 0  #: read at both ends
    INTERPOLATED = 1  #: a reading failed; the energy around it is spread evenly over time
    EDGE = 2  #: before the first reading of the trace, or after the last
    MISSING = 3  #: the domain has no usable reading around the window
    GAP = 4  #: so long that the counter may have wrapped more than once
    RESET = 5  #: the counter went back by more than a wrap explains
    STOPPED = 6  #: the counter stood still although the domain was powered
    IMPLAUSIBLE = 7  #: more power than a machine can draw, or not a value of this counter
    PART = 8  #: no figure of its own: part of a longer window, whose last part has its energy


@dataclass(frozen=True)
class Series:
    """One counter: `unit_j` joules per count; wraps after `range` counts, or never if 0.

    `period_ns`: how often it moves; 0 if unknown. `is_power`: computed from power readings, each
    the mean since the previous one.
    """

    package: int
    domain: str
    unit_j: float
    range: int = 0
    period_ns: int = 0
    is_power: bool = False

    def __post_init__(self) -> None:
        bounded = min(max(self.period_ns, 0), _LONGEST_PERIOD_NS)
        object.__setattr__(self, "period_ns", bounded)

    @property
    def is_slow(self) -> bool:
        """Whether its windows are longer than the windows between readings."""
        return self.period_ns > SLOW_NS or self.has_own_clock

    @property
    def has_own_clock(self) -> bool:
        """Whether it is read separately from the machine's own counters."""
        return self.domain == WALL

    @property
    def has_unit(self) -> bool:
        """Whether `unit_j` is possible: not NaN, not 0, and at most a kilojoule."""
        return 0 < self.unit_j < 1000

    @property
    def max_w(self) -> float:
        return MAX_PLAUSIBLE_W.get(self.domain, MAX_PLAUSIBLE_W["package"])


@dataclass(frozen=True)
class Readings:
    """Counter readings in the order in which they were made, all of length n.

    `series` indexes a list of `Series`; `raw` is undefined where `ok` is false.
    """

    t_ns: I64
    raw: npt.NDArray[np.uint64]
    ok: Bool
    half_width_ns: I64
    series: npt.NDArray[np.int64]


@dataclass(frozen=True)
class WindowEnergy:
    """Energy of k windows between k + 1 boundaries, one row per series.

    `energy_nj` is 0 where `cause` marks it as unknown: check `known` first. `half_width_ns`:
    uncertainty of the time of the readings around each window.
    """

    series: tuple[Series, ...]
    boundaries_ns: I64
    energy_nj: I64
    cause: npt.NDArray[np.uint8]
    half_width_ns: I64

    @property
    def known(self) -> Bool:
        return self.cause <= Cause.INTERPOLATED

    def slice(self, first: int, last: int) -> WindowEnergy:
        """Windows `first` to `last` - 1."""
        return WindowEnergy(
            self.series,
            self.boundaries_ns[first : last + 1],
            self.energy_nj[:, first:last],
            self.cause[:, first:last],
            self.half_width_ns[:, first:last],
        )


def window_energy(
    readings: Readings,
    series: Sequence[Series],
    begin_ns: int | None = None,
    end_ns: int | None = None,
) -> WindowEnergy:
    """Returns the windows between rounds of readings, with their energies.

    `begin_ns` and `end_ns`, if given, bound the trace: readings outside are not used, and the time
    before the first or after the last round becomes a window of cause EDGE. Without any usable
    reading the whole range is one such window. Bad readings raise nothing.
    """
    usable, index = _rounds(_in_rounds(readings, series), begin_ns, end_ns)
    firsts = np.flatnonzero(np.diff(index, prepend=-1)) if len(usable) else np.zeros(0, np.int64)
    times_ns = readings.t_ns[usable][firsts] if len(usable) else np.zeros(0, np.int64)
    energy = np.zeros((len(series), max(len(times_ns) - 1, 0)), np.int64)
    cause = np.full(energy.shape, Cause.MISSING, np.uint8)
    half_width_ns = np.zeros(energy.shape, np.int64)
    for s, counter in enumerate(series):
        if counter.is_slow:
            continue
        of_counter = readings.series[usable] == s
        rows = (energy[s], cause[s], half_width_ns[s])
        _series_energy(counter, times_ns, readings, (usable[of_counter], index[of_counter]), rows)
    return _with_edges(tuple(series), times_ns, (energy, cause, half_width_ns), begin_ns, end_ns)


def as_counted(energy: WindowEnergy, lag_ns: int) -> WindowEnergy:
    """Returns the windows with boundaries at the times when their energy was drawn instead of read.

    A reading shows energy that was drawn up to `lag_ns` earlier. The first and last boundary do not
    move.
    """
    bounds_ns = energy.boundaries_ns.copy()
    if len(bounds_ns) > 2 and lag_ns > 0:
        earlier = bounds_ns[1:-1] - lag_ns
        # Boundaries keep their order, each at least a nanosecond after the one before.
        least_ns = bounds_ns[0] + np.arange(1, len(bounds_ns) - 1)
        bounds_ns[1:-1] = np.maximum(earlier, least_ns)
    return replace(energy, boundaries_ns=bounds_ns)


def _rounds(
    readings: Readings, begin_ns: int | None, end_ns: int | None
) -> tuple[npt.NDArray[np.intp], I64]:
    """Readings with usable times, in time order, and the round that each belongs to.

    A round ends where a counter is read again, so it holds each counter at most once.
    """
    keep = readings.series >= 0
    if begin_ns is not None:
        keep &= readings.t_ns >= begin_ns
    if end_ns is not None:
        keep &= readings.t_ns <= end_ns
    previous = np.full(len(keep), -1, np.int64)
    for s in np.unique(readings.series[keep]):
        of_counter = np.flatnonzero(keep & (readings.series == s))
        t_ns = readings.t_ns[of_counter]
        latest_ns = np.maximum.accumulate(t_ns)
        # If the clock goes back or stands still, the reading cannot bound a window.
        keep[of_counter[1:]] = t_ns[1:] > latest_ns[:-1]
    usable = np.flatnonzero(keep)
    usable = usable[np.argsort(readings.t_ns[usable], kind="stable")]
    reading_series = readings.series[usable]
    for s in np.unique(reading_series):
        of_counter = np.flatnonzero(reading_series == s)
        previous[of_counter[1:]] = of_counter[:-1]
    index, start, current = np.zeros(len(usable), np.int64), 0, 0
    for i, previous_index in enumerate(previous[: len(usable)].tolist()):
        if previous_index >= start:
            start, current = i, current + 1
        index[i] = current
    return usable, index


def _in_rounds(readings: Readings, series: Sequence[Series]) -> Readings:
    """Only the readings that were made together with others, so that they bound windows."""
    own_clock = [s for s, counter in enumerate(series) if counter.has_own_clock]
    if not own_clock:
        return readings
    keep = ~np.isin(readings.series, own_clock)
    return replace(readings, series=np.where(keep, readings.series, -1))


def _series_energy(
    series: Series,
    times_ns: I64,
    readings: Readings,
    rounds: tuple[npt.NDArray[np.intp], I64],
    rows: tuple[I64, npt.NDArray[np.uint8], I64],
) -> None:
    """Fills one series' rows of energy, cause and half width from its readings."""
    energy, cause, half_width_ns = rows
    if not series.has_unit:
        cause[:] = Cause.IMPLAUSIBLE
        return
    usable, index = rounds
    is_valid = readings.ok[usable].astype(bool)
    if series.range:
        is_valid &= readings.raw[usable] < np.uint64(min(series.range, 2**64 - 1))
    usable, index = usable[is_valid], index[is_valid]
    if len(usable) < 2:
        return
    raw, t_ns = readings.raw[usable], readings.t_ns[usable]
    counts, span_cause = differences(series, raw, np.diff(t_ns))
    spans_nj = to_nj(series, raw[:-1], np.where(span_cause == Cause.NONE, counts, np.uint64(0)))
    width_ns = np.maximum(readings.half_width_ns[usable][:-1], readings.half_width_ns[usable][1:])
    adjacent = np.diff(index) == 1
    window = index[:-1][adjacent]
    energy[window], cause[window], half_width_ns[window] = (
        spans_nj[adjacent],
        span_cause[adjacent],
        width_ns[adjacent],
    )
    for j in np.flatnonzero(~adjacent):
        first, last = int(index[j]), int(index[j + 1])
        edges = times_ns[first : last + 1] - times_ns[first]
        total, length = int(spans_nj[j]), int(edges[-1])
        cumulative = np.array([total * int(edge) // length for edge in edges], np.int64)
        energy[first:last] = np.diff(cumulative)
        cause[first:last] = span_cause[j] if span_cause[j] != Cause.NONE else Cause.INTERPOLATED
        half_width_ns[first:last] = width_ns[j]


def differences(
    series: Series, raw: npt.NDArray[np.uint64], dt_ns: I64
) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint8]]:
    """Counts between consecutive readings, modulo the range, and the cause if a count is wrong."""
    decreased = raw[1:] < raw[:-1]
    counts = raw[1:] - raw[:-1]  # modulo 2**64
    if series.range:
        counts = np.where(decreased, counts + np.uint64(series.range % 2**64), counts)
    joules = counts.astype(np.float64) * series.unit_j
    # A window may hold two updates more than its length implies, and two counts of truncation.
    period_ns = max(series.period_ns, UPDATE_PERIOD_NS)
    allowed = series.max_w * (dt_ns + 2 * period_ns) * 1e-9 + 2 * series.unit_j
    cause = np.zeros(len(counts), np.uint8)
    if not series.is_slow:
        cause[_stopped(series, counts, dt_ns)] = Cause.STOPPED
    cause[joules > allowed] = Cause.IMPLAUSIBLE
    cause[decreased & ((joules > allowed) | (series.range == 0))] = Cause.RESET
    if series.range:
        half_wrap_ns = series.range * series.unit_j / 2 / series.max_w * 1e9
        cause[dt_ns > half_wrap_ns] = Cause.GAP
    return counts, cause


def _stopped(series: Series, counts: npt.NDArray[np.uint64], dt_ns: I64) -> Bool:
    """Windows in which the counter stands still for longer than a powered domain allows."""
    is_still = counts == 0
    least_w = MIN_AWAKE_W.get(series.domain)
    if least_w is None or not is_still.any():
        return np.zeros(len(counts), bool)
    starts = np.flatnonzero(np.diff(is_still, prepend=not is_still[0]))
    lengths_ns = np.add.reduceat(dt_ns, starts)
    patience_ns = max(STOPPED_NS, 16 * series.unit_j / least_w * 1e9)
    too_long = np.repeat(lengths_ns >= patience_ns, np.diff(starts, append=len(counts)))
    result: Bool = is_still & too_long
    return result


def to_nj(
    series: Series, raw: npt.NDArray[np.uint64], counts: npt.NDArray[np.uint64]
) -> npt.NDArray[np.int64]:
    """Whole nanojoules of differences that start at `raw`, without drift.

    With f(x) = round(x * unit), a difference is f(x + counts) - f(x), so sums telescope and do not
    depend on where a recording is cut. Only raw modulo the unit's denominator matters.
    """
    # The source meant the shortest decimal of the double: 1e-06 is a microjoule.
    unit_nj = Fraction(repr(float(series.unit_j))) * 10**9
    num, den = unit_nj.numerator, unit_nj.denominator
    largest = (int(counts.max()) + den) * 2 * num if len(counts) else 0
    if largest >= 2**62:
        start = [int(r) % den for r in raw]
        pairs = zip(start, counts.tolist(), strict=True)
        rounded = [
            (2 * (x + c) * num + den) // (2 * den) - (2 * x * num + den) // (2 * den)
            for x, c in pairs
        ]
        return np.array(rounded, np.int64)
    x = (raw % np.uint64(den)).astype(np.int64)
    y = x + counts.astype(np.int64)
    ends: I64 = (2 * y * num + den) // (2 * den) - (2 * x * num + den) // (2 * den)
    return ends


def _with_edges(
    series: tuple[Series, ...],
    times_ns: I64,
    rows: tuple[I64, npt.NDArray[np.uint8], I64],
    begin_ns: int | None,
    end_ns: int | None,
) -> WindowEnergy:
    """Adds the time before the first and after the last round."""
    times = times_ns.tolist()
    has_lead = begin_ns is not None and (not times or begin_ns < times[0])
    if has_lead and begin_ns is not None:
        times.insert(0, begin_ns)
    has_tail = end_ns is not None and bool(times) and end_ns > times[-1]
    if has_tail and end_ns is not None:
        times.append(end_ns)
    # With a single boundary there is no window, so no edge window is added.
    count = max(len(times) - 1, 0)
    inner = rows[0].shape[1]
    lead = int(has_lead and count > inner)
    energy = np.zeros((len(series), count), np.int64)
    cause = np.full((len(series), count), Cause.EDGE, np.uint8)
    half_width_ns = np.zeros((len(series), count), np.int64)
    inside = slice(lead, lead + inner)
    energy[:, inside], cause[:, inside], half_width_ns[:, inside] = rows
    return WindowEnergy(series, np.array(times, np.int64), energy, cause, half_width_ns)
