# SPDX-License-Identifier: Apache-2.0
"""Counters that move less often than windows end, and therefore have longer windows of their own.

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
    """(windows,) whether no counter of `series` is within a longer window of its own there."""
    of = list(series) if not isinstance(series, slice) else series
    out: Bool = (energy.cause[of] != Cause.PART).all(axis=0)
    return out


def coarse(batch: WindowBatch, series: Sequence[int]) -> WindowBatch:
    """The batch in windows as long as the counters `series` need, or unchanged if that is no
    longer.

    Trailing windows that no later window completes become one, with unknown energy
    (`Cause.PART`). In the result only the energies of `series` are meaningful. `first` stays
    that of the batch.
    """
    end = ends(batch.energy, series)
    if end.all():
        return batch
    last = np.flatnonzero(end)
    if not end[-1]:
        last = np.append(last, len(end) - 1)
    starts = np.append(0, last[:-1] + 1)
    which = np.searchsorted(last, np.arange(len(end)))
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
        _summed(replace(batch.entries, window=which[batch.entries.window])),
        np.add.reduceat(batch.active_ns, starts, axis=0),
        np.add.reduceat(batch.core_ns, starts, axis=0),
    )


def first_parts(batch: WindowBatch, series: Sequence[int]) -> I64:
    """For each window of `coarse`, the first of the batch's windows that it is made of."""
    end = ends(batch.energy, series)
    return np.flatnonzero(np.append(True, end[:-1])).astype(np.int64)


def _summed(entries: Entries) -> Entries:
    """Adds up entries of equal window, package and group."""
    if not len(entries.window):
        return entries
    order = np.lexsort((entries.group, entries.package, entries.window))
    keys = np.stack([entries.window, entries.package, entries.group])[:, order]
    new = np.append(True, (np.diff(keys, axis=1) != 0).any(axis=0))
    index = np.empty(len(order), np.int64)
    index[order] = np.cumsum(new) - 1
    count = int(new.sum())

    def total(values: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> object:
        if values.ndim == 2:
            return np.stack([real_sums(index, column, count) for column in values.T], axis=1)
        sums = real_sums(index, values, count)
        return sums.astype(np.int64) if values.dtype.kind == "i" else sums

    window, package, group = keys[:, new]
    rest = [total(getattr(entries, field.name)) for field in fields(Entries)[3:]]
    return Entries(window, package, group, *rest)  # type: ignore[arg-type]


@dataclass
class SlowCounterState:
    """State of a slow counter after the readings so far; kept from call to call."""

    read_ns: int | None = None  #: of the last reading
    good_ns: int = 0  #: of the last reading that did not fail
    base_ns: int = 0  #: where the current window began, ...
    raw: int = 0  #: and the counter's value there
    base_half_ns: int = 0
    seen: int = 0
    started: bool = False  #: it has moved before, so windows begin where it moved
    stopped: bool = False


def add_slow(
    energy: WindowEnergy,
    readings: Readings,
    standings: dict[int, SlowCounterState] | None = None,
) -> None:
    """Fills in the rows of slow series, in place.

    `standings`: state by number of series, if the stream will continue; the last windows then stay
    parts of a window that ends later. Without it, the readings are complete.
    """
    for s, one in enumerate(energy.series):
        if one.is_slow and one.has_unit and len(energy.boundaries_ns) > 1:
            standing = (
                SlowCounterState()
                if standings is None
                else standings.setdefault(s, SlowCounterState())
            )
            _fill(energy, s, readings, standing, ends=standings is None)


def _fill(
    energy: WindowEnergy, s: int, readings: Readings, at: SlowCounterState, *, ends: bool
) -> None:
    series, bounds = energy.series[s], energy.boundaries_ns
    t_ns, raw, ok, half_ns = _own(energy, s, readings, at)
    energy.cause[s] = Cause.PART
    # A power is the mean since the reading before, and may belong to the period before.
    lag_ns = series.period_ns // 2 if series.is_power and not series.has_own_clock and ends else 0
    window = np.searchsorted(bounds, t_ns - lag_ns)
    before = np.maximum(window - 1, 0)
    inside = np.minimum(window, len(bounds) - 1)
    nearer = t_ns - lag_ns - bounds[before] < bounds[inside] - (t_ns - lag_ns)
    boundary = np.where(nearer, before, inside)
    off_ns = np.abs(bounds[boundary] - (t_ns - lag_ns))
    first = at.read_ns is None
    base_raw, base_ns, base_half_ns = at.raw, at.base_ns, at.base_half_ns
    closings, forced, width_ns = _closings(series, (t_ns, raw, ok, half_ns + off_ns), boundary, at)
    if first and (good := np.flatnonzero(ok)).size:
        start = int(good[0])
        base_raw, base_ns, base_half_ns = int(raw[start]), int(t_ns[start]), int(half_ns[start])
        if boundary[start] > 0:
            energy.cause[s, boundary[start] - 1] = Cause.EDGE
    if len(closings):
        path = np.append(np.uint64(base_raw), raw[closings])
        counts, why = differences(series, path, np.diff(np.append(base_ns, t_ns[closings])))
        why = np.where(forced != Cause.NONE, forced, why)
        known = np.where(why == Cause.NONE, counts, np.uint64(0))
        windows = boundary[closings] - 1
        energy.energy_nj[s, windows] = to_nj(series, path[:-1], known)
        energy.cause[s, windows] = why
        both = np.maximum(np.append(base_half_ns, width_ns[:-1]), width_ns)
        energy.half_width_ns[s, windows] = both
        at.base_half_ns = int(width_ns[-1])
    if ends and energy.cause[s, -1] == Cause.PART:
        stands = at.stopped or bounds[-1] - at.base_ns >= _patience_ns(series)
        stands |= at.read_ns is None
        missing = Cause.MISSING if at.read_ns is None else Cause.STOPPED
        energy.cause[s, -1] = missing if stands else Cause.EDGE


def _own(
    energy: WindowEnergy, s: int, readings: Readings, at: SlowCounterState
) -> tuple[I64, npt.NDArray[np.uint64], Bool, I64]:
    """Times in order, counts, which are good, and half widths of a series' readings."""
    bounds, series = energy.boundaries_ns, energy.series[s]
    mine = np.flatnonzero(readings.series == s)
    t_ns = readings.t_ns[mine]
    mine = mine[(t_ns >= bounds[0]) & (t_ns <= bounds[-1])]
    if at.read_ns is not None:
        mine = mine[readings.t_ns[mine] > at.read_ns]
    t_ns = readings.t_ns[mine]
    forward = np.ones(len(mine), bool)
    forward[1:] = t_ns[1:] > np.maximum.accumulate(t_ns)[:-1]
    mine = mine[forward]
    ok = readings.ok[mine].astype(bool)
    if series.range:
        ok &= readings.raw[mine] < np.uint64(min(series.range, 2**64 - 1))
    return readings.t_ns[mine], readings.raw[mine], ok, readings.half_width_ns[mine]


def _closings(
    series: Series,
    found: tuple[I64, npt.NDArray[np.uint64], Bool, I64],
    boundary: I64,
    at: SlowCounterState,
) -> tuple[I64, npt.NDArray[np.uint8], I64]:
    """Readings that end a window, the causes forced on them, and their half widths.

    Updates `at`.
    """
    out: list[tuple[int, int, int]] = []
    least_ns = int(_LEAST_PERIODS * series.period_ns)
    patience_ns = _patience_ns(series)
    last_boundary = -1
    columns = [column.tolist() for column in (*found, boundary)]
    for i, (t_ns, raw, ok, half_ns, edge) in enumerate(zip(*columns, strict=True)):
        if not ok:
            at.read_ns = t_ns if at.read_ns is not None else None
            continue
        if at.read_ns is None:
            at.base_ns, at.raw, at.seen, at.base_half_ns = t_ns, raw, raw, half_ns
            at.read_ns, at.good_ns, at.started = t_ns, t_ns, series.is_power
            last_boundary = edge
            continue
        moved, gap_ns = raw != at.seen, t_ns - at.good_ns
        at.read_ns, at.good_ns, at.seen = t_ns, t_ns, raw
        cause = Cause.NONE
        if moved and at.stopped:
            cause = Cause.STOPPED
        elif moved and not at.started:
            cause = Cause.EDGE
        elif not moved and t_ns - at.base_ns >= patience_ns:
            cause = Cause.STOPPED if series.domain in MIN_AWAKE_W else Cause.NONE
        elif not moved or t_ns - at.base_ns < least_ns:
            continue
        if edge <= max(last_boundary, 0):
            continue
        at.stopped, at.started = not moved, at.started or moved
        at.base_ns, at.raw, last_boundary = t_ns, raw, edge
        own_ns = series.period_ns // 2 if series.is_power else gap_ns // 2
        out.append((i, cause, half_ns + (0 if series.has_own_clock else own_ns)))
    made = np.array(out, np.int64).reshape(-1, 3)
    return made[:, 0], made[:, 1].astype(np.uint8), made[:, 2]


def _patience_ns(series: Series) -> float:
    least_w = MIN_AWAKE_W.get(series.domain, np.inf)
    counts_ns = _PATIENCE_UNITS * series.unit_j / least_w * 1e9
    return max(STOPPED_NS, _PATIENCE_PERIODS * series.period_ns, counts_ns)


def slow_of(series: Sequence[Series]) -> bool:
    """Whether any of them is slow."""
    return any(one.is_slow for one in series)
