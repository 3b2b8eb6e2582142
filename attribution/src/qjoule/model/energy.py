# SPDX-License-Identifier: Apache-2.0
"""Energy counters, their readings, and the conversion of counts to integer nanojoules, or to the
cause of a missing value. `reading_windows` makes windows of them.

Nothing is clamped and nothing is dropped: a window whose energy cannot be known carries a `Cause`
instead, and no sum includes its energy.
"""

from __future__ import annotations

from dataclasses import dataclass
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
