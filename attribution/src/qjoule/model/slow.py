# SPDX-License-Identifier: Apache-2.0
"""Counters that are updated less often than windows end, and therefore have longer windows of their
own.

Between two moves a counter gives no information, so the windows there are parts (`Cause.PART`) of
the window in which it moves. That window has the energy of all of them; `coarse` joins them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import numpy.typing as npt

from qjoule.model.arrays import Entries, WindowBatch, real_sums
from qjoule.model.energy import (
    I64,
    MIN_AWAKE_W,
    STOPPED_NS,
    Bool,
    Cause,
    Readings,
    Series,
    WindowEnergy,
    differences,
    to_nj,
)

_LEAST_PERIODS = 0.75  #: a window is at least this long, because a counter may move a little early
_PATIENCE_PERIODS = 4  #: a counter that stands still for this long has stopped
_PATIENCE_UNITS = 16  #: or so long that it should have moved by this many counts


def ends(energy: WindowEnergy, series: Sequence[int] | slice = slice(None)) -> Bool:
    """(windows,) whether each window is an end for every counter of `series`, slow ones
    included."""
    selected = list(series) if not isinstance(series, slice) else series
    is_end: Bool = (energy.cause[selected] != Cause.PART).all(axis=0)
    return is_end


def coarse(batch: WindowBatch, series: Sequence[int]) -> WindowBatch:
    """The batch with windows merged to the length that the counters `series` need, or unchanged.

    Trailing windows that no later window completes become one, with unknown energy
    (`Cause.PART`). In the result only the energies of `series` are meaningful. `first` stays
    that of the batch.
    """
    is_end = ends(batch.energy, series)
    if is_end.all():
        return batch
    last = np.flatnonzero(is_end)
    if not is_end[-1]:
        last = np.append(last, len(is_end) - 1)
    starts = np.append(0, last[:-1] + 1)
    coarse_window = np.searchsorted(last, np.arange(len(is_end)))
    cause = batch.energy.cause
    unknown = np.minimum.reduceat(cause, starts, axis=1) == Cause.PART
    worst = np.maximum.reduceat(np.where(cause == Cause.PART, 0, cause), starts, axis=1)
    energy = WindowEnergy(
        batch.energy.series,
        batch.energy.boundaries_ns[np.append(0, last + 1)],
        np.add.reduceat(batch.energy.energy_nj, starts, axis=1),
        np.where(unknown, Cause.PART, worst).astype(np.uint8),
        np.maximum.reduceat(batch.energy.half_width_ns, starts, axis=1),
    )
    return WindowBatch(
        batch.first,
        energy,
        batch.packages,
        np.add.reduceat(batch.idle_ns, starts, axis=0),
        np.add.reduceat(batch.lost_ns, starts, axis=0),
        _summed(replace(batch.entries, window=coarse_window[batch.entries.window])),
        np.add.reduceat(batch.active_ns, starts, axis=0),
        np.add.reduceat(batch.core_ns, starts, axis=0),
    )


def first_parts(batch: WindowBatch, series: Sequence[int]) -> I64:
    """For each window of `coarse`, the first of the batch's windows that it is made of."""
    is_end = ends(batch.energy, series)
    return np.flatnonzero(np.append(True, is_end[:-1])).astype(np.int64)


def _summed(entries: Entries) -> Entries:
    """Adds up entries of equal window, package and group."""
    if not len(entries.window):
        return entries
    order = np.lexsort((entries.group, entries.package, entries.window))
    keys = np.stack([entries.window, entries.package, entries.group])[:, order]
    is_new = np.append(True, (np.diff(keys, axis=1) != 0).any(axis=0))
    index = np.empty(len(order), np.int64)
    index[order] = np.cumsum(is_new) - 1
    count = int(is_new.sum())

    def total(values: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> object:
        if values.ndim == 2:
            return np.stack([real_sums(index, column, count) for column in values.T], axis=1)
        sums = real_sums(index, values, count)
        return sums.astype(np.int64) if values.dtype.kind == "i" else sums

    window, package, group = keys[:, is_new]
    columns = [total(getattr(entries, field.name)) for field in fields(Entries)[3:]]
    return Entries(window, package, group, *columns)  # type: ignore[arg-type]


@dataclass
class SlowCounterState:
    """State of a slow counter after the readings so far; kept from call to call."""

    read_ns: int | None = None  #: of the last reading
    good_ns: int = 0  #: of the last reading that did not fail
    base_ns: int = 0  #: where the current window began, ...
    raw: int = 0  #: and the counter's value there
    base_half_ns: int = 0
    last_raw: int = 0
    started: bool = False  #: it has moved before, so windows begin where it moved
    stopped: bool = False


def add_slow(
    energy: WindowEnergy,
    readings: Readings,
    states: dict[int, SlowCounterState] | None = None,
) -> None:
    """Fills in the rows of slow series, in place.

    `states`: state by number of series, if the stream will continue; the last windows then stay
    parts of a window that ends later. Without it, the readings are complete.
    """
    for s, counter in enumerate(energy.series):
        if counter.is_slow and counter.has_unit and len(energy.boundaries_ns) > 1:
            state = (
                SlowCounterState() if states is None else states.setdefault(s, SlowCounterState())
            )
            _fill(energy, s, readings, state, ends=states is None)


def _fill(
    energy: WindowEnergy, s: int, readings: Readings, state: SlowCounterState, *, ends: bool
) -> None:
    series, bounds = energy.series[s], energy.boundaries_ns
    t_ns, raw, ok, half_ns = _series_readings(energy, s, readings, state)
    energy.cause[s] = Cause.PART
    # A power is the mean since the reading before, and may belong to the period before.
    lag_ns = series.period_ns // 2 if series.is_power and not series.has_own_clock and ends else 0
    window = np.searchsorted(bounds, t_ns - lag_ns)
    before = np.maximum(window - 1, 0)
    inside = np.minimum(window, len(bounds) - 1)
    before_is_nearer = t_ns - lag_ns - bounds[before] < bounds[inside] - (t_ns - lag_ns)
    boundary = np.where(before_is_nearer, before, inside)
    distance_ns = np.abs(bounds[boundary] - (t_ns - lag_ns))
    is_first = state.read_ns is None
    base_raw, base_ns, base_half_ns = state.raw, state.base_ns, state.base_half_ns
    closings, forced, width_ns = _closings(
        series, (t_ns, raw, ok, half_ns + distance_ns), boundary, state
    )
    if is_first and (good := np.flatnonzero(ok)).size:
        start = int(good[0])
        base_raw, base_ns, base_half_ns = int(raw[start]), int(t_ns[start]), int(half_ns[start])
        if boundary[start] > 0:
            energy.cause[s, boundary[start] - 1] = Cause.EDGE
    if len(closings):
        path = np.append(np.uint64(base_raw), raw[closings])
        counts, cause = differences(series, path, np.diff(np.append(base_ns, t_ns[closings])))
        cause = np.where(forced != Cause.NONE, forced, cause)
        valid_counts = np.where(cause == Cause.NONE, counts, np.uint64(0))
        windows = boundary[closings] - 1
        energy.energy_nj[s, windows] = to_nj(series, path[:-1], valid_counts)
        energy.cause[s, windows] = cause
        width_pairs_ns = np.maximum(np.append(base_half_ns, width_ns[:-1]), width_ns)
        energy.half_width_ns[s, windows] = width_pairs_ns
        state.base_half_ns = int(width_ns[-1])
    if ends and energy.cause[s, -1] == Cause.PART:
        is_still = state.stopped or bounds[-1] - state.base_ns >= _patience_ns(series)
        is_still |= state.read_ns is None
        missing = Cause.MISSING if state.read_ns is None else Cause.STOPPED
        energy.cause[s, -1] = missing if is_still else Cause.EDGE


def _series_readings(
    energy: WindowEnergy, s: int, readings: Readings, state: SlowCounterState
) -> tuple[I64, npt.NDArray[np.uint64], Bool, I64]:
    """A series' new readings, in order of time: times, counts, whether they are valid, half
    widths."""
    bounds, series = energy.boundaries_ns, energy.series[s]
    of_series = np.flatnonzero(readings.series == s)
    t_ns = readings.t_ns[of_series]
    of_series = of_series[(t_ns >= bounds[0]) & (t_ns <= bounds[-1])]
    if state.read_ns is not None:
        of_series = of_series[readings.t_ns[of_series] > state.read_ns]
    t_ns = readings.t_ns[of_series]
    forward = np.ones(len(of_series), bool)
    forward[1:] = t_ns[1:] > np.maximum.accumulate(t_ns)[:-1]
    of_series = of_series[forward]
    ok = readings.ok[of_series].astype(bool)
    if series.range:
        ok &= readings.raw[of_series] < np.uint64(min(series.range, 2**64 - 1))
    return readings.t_ns[of_series], readings.raw[of_series], ok, readings.half_width_ns[of_series]


def _closings(
    series: Series,
    readings: tuple[I64, npt.NDArray[np.uint64], Bool, I64],
    boundary: I64,
    state: SlowCounterState,
) -> tuple[I64, npt.NDArray[np.uint8], I64]:
    """Readings that end a window, the causes forced on them, and their half widths.

    Updates `state`.
    """
    closings: list[tuple[int, int, int]] = []
    shortest_ns = int(_LEAST_PERIODS * series.period_ns)
    patience_ns = _patience_ns(series)
    last_boundary = -1
    columns = [column.tolist() for column in (*readings, boundary)]
    for i, (t_ns, raw, ok, half_ns, edge) in enumerate(zip(*columns, strict=True)):
        if not ok:
            state.read_ns = t_ns if state.read_ns is not None else None
            continue
        if state.read_ns is None:
            state.base_ns, state.raw, state.last_raw, state.base_half_ns = t_ns, raw, raw, half_ns
            state.read_ns, state.good_ns, state.started = t_ns, t_ns, series.is_power
            last_boundary = edge
            continue
        moved, gap_ns = raw != state.last_raw, t_ns - state.good_ns
        state.read_ns, state.good_ns, state.last_raw = t_ns, t_ns, raw
        cause = Cause.NONE
        if moved and state.stopped:
            cause = Cause.STOPPED
        elif moved and not state.started:
            cause = Cause.EDGE
        elif not moved and t_ns - state.base_ns >= patience_ns:
            cause = Cause.STOPPED if series.domain in MIN_AWAKE_W else Cause.NONE
        elif not moved or t_ns - state.base_ns < shortest_ns:
            continue
        if edge <= max(last_boundary, 0):
            continue
        state.stopped, state.started = not moved, state.started or moved
        state.base_ns, state.raw, last_boundary = t_ns, raw, edge
        own_ns = series.period_ns // 2 if series.is_power else gap_ns // 2
        closings.append((i, cause, half_ns + (0 if series.has_own_clock else own_ns)))
    closing_rows = np.array(closings, np.int64).reshape(-1, 3)
    return closing_rows[:, 0], closing_rows[:, 1].astype(np.uint8), closing_rows[:, 2]


def _patience_ns(series: Series) -> float:
    least_w = MIN_AWAKE_W.get(series.domain, np.inf)
    counts_ns = _PATIENCE_UNITS * series.unit_j / least_w * 1e9
    return max(STOPPED_NS, _PATIENCE_PERIODS * series.period_ns, counts_ns)


def slow_of(series: Sequence[Series]) -> bool:
    """Whether any of them is slow."""
    return any(counter.is_slow for counter in series)
