# SPDX-License-Identifier: Apache-2.0
"""Converts a foreign clock to ours, from the arrival times of its timestamps.

A timestamp arrives late by its transmission delay, never early. So the line below all points
(stamp, arrival time - stamp) gives the clock's offset and drift, plus the smallest delay that
occurred: that constant cannot be separated from an offset.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from qjoule.model.energy import I64

_MAX_DRIFT = 1e-3  #: a quartz is within 100 ppm; a larger difference is not clock drift
_MIN_SPAN_NS = 60_000_000_000  #: over a shorter time, delays hide the drift
_MOST_LATE_NS = 60_000_000_000  #: if the delays vary by more, the clock jumps
_EARLY = 10.0  #: a point further below the others than this many median deviations is an outlier


@dataclass(frozen=True)
class ClockFit:
    """`offset_ns`: ours minus the foreign clock, at its first stamp. `drift`: how much faster ours
    is.

    `delay_ns`: the 95 % quantile of the delay, beyond the smallest. `half_width_ns`: half of the
    stamps' resolution. `followed` False: the clock jumps, so arrival times are used instead.
    """

    offset_ns: int
    drift: float
    delay_ns: int
    half_width_ns: int
    followed: bool


def fit_clock(stamp_ns: I64, t_ns: I64) -> ClockFit:
    """Fits the clock of n >= 1 stamps that arrived at `t_ns`; both are in order."""
    since_first_ns = (stamp_ns - stamp_ns[0]).astype(np.float64)
    late_ns = (t_ns - stamp_ns).astype(np.float64)
    median_ns = float(np.median(late_ns))
    deviation = max(_EARLY * float(np.median(np.abs(late_ns - median_ns))), 1e9)
    inliers = late_ns >= median_ns - deviation
    slope, height = _below(since_first_ns[inliers], late_ns[inliers] - median_ns)
    delay = late_ns - median_ns - (height + slope * since_first_ns)
    followed = bool(np.ptp(late_ns) <= _MOST_LATE_NS)
    return ClockFit(
        round(median_ns + height),
        slope,
        round(float(np.percentile(np.maximum(delay, 0), 95))),
        _resolution_ns(stamp_ns) // 2,
        followed,
    )


def to_ours(fit: ClockFit, stamp_ns: I64, t_ns: I64) -> I64:
    """Converts stamps to our clock; never later than their arrival."""
    if not fit.followed:
        return t_ns
    since_first_ns = stamp_ns - stamp_ns[0]
    our_ns = stamp_ns + fit.offset_ns + np.rint(fit.drift * since_first_ns).astype(np.int64)
    bounded_ns: I64 = np.minimum(our_ns, t_ns)
    return bounded_ns


def _below(x: npt.NDArray[np.float64], y: npt.NDArray[np.float64]) -> tuple[float, float]:
    """(slope, height at 0) of the line below all points with the smallest sum of distances.

    It is the edge of the lower convex hull at the points' mean.
    """
    if x[-1] - x[0] < _MIN_SPAN_NS:
        return 0.0, float(y.min())
    hull: list[tuple[float, float]] = []
    for point in zip(x.tolist(), y.tolist(), strict=True):
        while len(hull) > 1 and _turns(hull[-2], hull[-1], point) <= 0:
            hull.pop()
        hull.append(point)
    mean = float(x.mean())
    edge = min(max(int(np.searchsorted([p[0] for p in hull], mean)), 1), len(hull) - 1)
    (x0, y0), (x1, y1) = hull[edge - 1], hull[edge]
    slope = (y1 - y0) / (x1 - x0)
    if abs(slope) > _MAX_DRIFT:
        return 0.0, float(y.min())
    return slope, y0 - slope * x0


def _turns(a: tuple[float, float], b: tuple[float, float], c: tuple[float, float]) -> float:
    return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])


def _resolution_ns(stamp_ns: I64) -> int:
    """The largest decimal unit, up to a second, of which all stamps are multiples."""
    units = (10**power for power in range(9, 0, -1))
    return next((unit for unit in units if not (stamp_ns % unit).any()), 1)
