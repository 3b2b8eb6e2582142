# SPDX-License-Identifier: Apache-2.0
"""Makes the rows of a regression from window batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from qjoule.model._sweep import add
from qjoule.model.arrays import F64, Entries, WindowBatch, distinct, real_sums
from qjoule.model.coefficients import Weights
from qjoule.model.energy import I64, Bool, Series
from qjoule.model.features import FEATURES, by_counters, plausible
from qjoule.model.fit.observed import Rows
from qjoule.model.zones import Part, Zone

#: Number of classes that have their own column, before their weights are known.
_MOST_CLASSES = 256
#: Number of classes with a factor of their own, and the least share of all weight they need.
_HEAVIEST, _LEAST_SHARE = 64, 1e-3
_LIMITED_ROWS = 256  #: how many rows at a time are brought to these classes

#: Power models that are linear in counters miss by a few per cent of the power above idle, more on
#: some loads (McCullough et al., "Evaluating the effectiveness of model-based power
#: characterization", USENIX ATC 2011). Time alone does not reflect frequency or contention.
_MODEL_ERROR_COUNTERS, _MODEL_ERROR_TIME = 0.02, 0.08

#: Windows that lost more than this share of their busy time are not used for learning.
_MOST_LOST = 0.1

ClassOf = Callable[[I64], I64]


def itself(groups: I64) -> I64:
    """Every group is its own class."""
    return groups


@dataclass(frozen=True)
class Source:
    """The sources of rows: a domain's counters and zones, its weights, and the classes."""

    series: tuple[Series, ...]
    places: tuple[Zone, ...]
    weights: Weights
    class_of: ClassOf
    period_ns: int


def make_rows(
    batches: Sequence[WindowBatch], source: Source, classes: I64 | None = None
) -> tuple[Rows, bool]:
    """Returns all windows of a domain's zones as rows, and whether counters were read.

    `classes` (None: those that ran longest) have a column each; all others share the last column.
    """
    views = [[zone.view(batch) for batch in batches] for zone in source.places]
    parts = [
        [zone.take(view) for view in zone_views]
        for zone, zone_views in zip(source.places, views, strict=True)
    ]
    all_entries = [part.entries for zone in parts for part in zone]
    counters = any(by_counters(entries, source.weights) for entries in all_entries)
    if classes is None:
        classes = _longest(all_entries, source.class_of)
    zone_columns = [
        _zone_columns(views[z], source, z, parts[z], classes) for z in range(len(source.places))
    ]
    power, measured, active, crowds, features, effects = (
        _concatenated([getattr(columns, name) for columns in zone_columns])
        for name in ("power_w", "known", "active", "crowd", "features", "effects")
    )
    lengths_ns = np.diff(views[0][0].energy.boundaries_ns)
    rows = Rows(
        power,
        measured,
        np.repeat(np.arange(len(zone_columns)), [len(columns.power_w) for columns in zone_columns]),
        active,
        crowds,
        features,
        classes,
        effects,
        np.array([columns.edge_w for columns in zone_columns]),
        max(float(np.median(lengths_ns)) * 1e-9, 1e-9) if len(lengths_ns) else 1.0,
        _MODEL_ERROR_COUNTERS if counters else _MODEL_ERROR_TIME,
    )
    return rows, counters


def _longest(all_entries: Sequence[Entries], class_of: ClassOf) -> I64:
    """The classes that ran longest, sorted."""
    entry_class = np.concatenate([class_of(entries.group) for entries in all_entries])
    classes = distinct(entry_class)
    if len(classes) > _MOST_CLASSES:
        ns = np.concatenate([entries.cpu_ns for entries in all_entries])
        spent = np.bincount(np.searchsorted(classes, entry_class), ns)
        classes = np.sort(classes[np.argsort(-spent, kind="stable")[:_MOST_CLASSES]])
    return classes


@dataclass(frozen=True)
class _Columns:
    """One zone's part of `Rows`."""

    power_w: F64
    known: Bool
    active: F64
    crowd: F64
    features: F64
    effects: F64
    edge_w: float


def _zone_columns(
    batches: Sequence[WindowBatch],
    source: Source,
    zone: int,
    parts: Sequence[Part],
    classes: I64,
) -> _Columns:
    series_numbers = list(source.places[zone].series)
    dt_ns = np.concatenate([part.load.dt_ns for part in parts]).astype(np.float64)
    safe_ns = np.maximum(dt_ns, 1.0)
    # Lost time is assumed to be like the rest of its window; with too much of it, the window is
    # not used.
    lost_ns = np.concatenate([part.load.lost_ns for part in parts])
    busy_ns = np.concatenate([part.busy_ns for part in parts])
    loss_factor = 1.0 + lost_ns / np.where(busy_ns > 0, busy_ns, 1.0)
    measured = (dt_ns > 0) & (lost_ns <= _MOST_LOST * busy_ns)
    measured &= np.concatenate(
        [batch.energy.known[series_numbers].all(axis=0) for batch in batches]
    )
    measured &= np.concatenate([_plausible(part) for part in parts])
    # All edge errors are assumed to be equal. A window between a late reading and a punctual one
    # may be shorter than the counter's own period. Its power is meaningless.
    if measured.any():
        measured &= dt_ns >= 0.5 * np.median(dt_ns[measured])
    nj = np.concatenate([batch.energy.energy_nj[series_numbers].sum(axis=0) for batch in batches])
    half_ns = np.concatenate(
        [batch.energy.half_width_ns[series_numbers].max(axis=0) for batch in batches]
    )
    by_class = [_by_class(part, classes, source.class_of) for part in parts]
    features, crowds = (_concatenated([sums[i] for sums in by_class]) for i in (0, 1))
    features *= (loss_factor / safe_ns)[:, None, None]
    power = np.where(measured, nj, 0) / safe_ns
    return _Columns(
        power,
        measured,
        np.concatenate([part.load.active_ns for part in parts]) / safe_ns,
        crowds,
        features,
        np.concatenate([_effects(part) for part in parts]) * (loss_factor / safe_ns)[:, None],
        _edge_w(source, series_numbers, power[measured], dt_ns[measured], half_ns[measured]),
    )


def _concatenated(parts: Sequence[Any]) -> Any:
    """The parts joined; a single one is not copied."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _effects(part: Part) -> F64:
    """(windows, 21): sums of the entries' effects."""
    entries, windows = part.entries, len(part.load.dt_ns)
    columns = [real_sums(entries.window, effect, windows) for effect in entries.effects.T]
    return np.stack(columns, axis=1)


def _plausible(part: Part) -> Bool:
    """(windows,) whether all counter values are physically possible for a core."""
    plausible_windows = np.ones(len(part.load.dt_ns), bool)
    plausible_windows[part.entries.window[~plausible(part.entries)]] = False
    return plausible_windows


def _edge_w(
    source: Source, series_numbers: list[int], power_w: F64, dt_ns: F64, half_ns: I64
) -> float:
    """Standard error of a window edge, as power: update period, width of reading, unit."""
    if not len(power_w):
        return 0.0
    mean_w = float(power_w.mean())
    units = [source.series[s].unit_j * 1e9 for s in series_numbers if source.series[s].has_unit]
    variance = (mean_w * source.period_ns) ** 2 / 12 + (mean_w * half_ns.mean()) ** 2 / 3
    return float(np.sqrt(variance + sum(unit**2 for unit in units) / 12) / dt_ns.mean())


def _by_class(part: Part, classes: I64, class_of: ClassOf) -> tuple[F64, F64]:
    """(windows, classes + 1, 10): sums of features; (windows, classes + 1): mean number of busy
    cores while each class ran.

    The last class contains all others.
    """
    entries, windows, size = part.entries, len(part.load.dt_ns), len(classes) + 1
    entry_class = class_of(entries.group)
    column = np.zeros(len(entry_class), np.int64)
    if len(classes):
        column = np.minimum(np.searchsorted(classes, entry_class), len(classes) - 1)
        column = np.where(classes[column] == entry_class, column, len(classes))
    key = entries.window * size + column
    ns = entries.cpu_ns.astype(np.float64)
    sums = np.zeros((windows * size, len(FEATURES)))
    add(sums, key, np.ascontiguousarray(part.features.T))
    crowd = real_sums(key, part.crowd * ns, len(sums))
    crowd /= np.maximum(real_sums(key, ns, len(sums)), 1.0)
    return sums.reshape(windows, size, len(FEATURES)), crowd.reshape(windows, size)


def limited(rows: Rows, basis: F64) -> Rows:
    """Rows in which only the heaviest classes have a column; all others share the last one.

    `basis`: the weights of features.
    """
    weight = rows.features[:, :-1].sum(axis=0) @ basis
    total = float(weight.sum())
    order = np.argsort(-weight, kind="stable")[:_HEAVIEST]
    retained = np.sort(order[weight[order] > _LEAST_SHARE * total])
    is_other = np.ones(rows.features.shape[1], bool)
    is_other[retained] = False
    count, units = len(rows.power_w), rows.features.shape[2]
    features, other_crowd = np.empty((count, len(retained) + 1, units)), np.empty(count)
    for first in range(0, count, _LIMITED_ROWS):  # no second copy of all features
        chunk = slice(first, first + _LIMITED_ROWS)
        other_features = rows.features[chunk][:, is_other]
        weights = other_features @ basis
        crowd_sum = (weights * rows.crowd[chunk][:, is_other]).sum(axis=1)
        other_crowd[chunk] = crowd_sum / np.maximum(weights.sum(axis=1), 1e-30)
        features[chunk, :-1] = rows.features[chunk][:, retained]
        features[chunk, -1] = other_features.sum(axis=1)
    return replace(
        rows,
        features=features,
        crowd=np.column_stack([rows.crowd[:, retained], other_crowd]),
        classes=rows.classes[retained],
    )
