# SPDX-License-Identifier: Apache-2.0
"""Makes windows between readings of energy counters, each with its energy or the cause without one.

Called for a whole trace (`engine.recorded`), and for a live stream piece by piece
(`live.window_assembler`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from qjoule.model.energy import (
    I64,
    Cause,
    Readings,
    Series,
    WindowEnergy,
    differences,
    to_nj,
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
