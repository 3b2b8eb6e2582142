# SPDX-License-Identifier: Apache-2.0
"""Makes the rows of a regression from window batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from qjoule.model._sweep import add_products
from qjoule.model.arrays import F64, Entries, WindowBatch, real_sums
from qjoule.model.coefficients import Weights
from qjoule.model.energy import I64, Bool, Series
from qjoule.model.features import FEATURES, by_counters, plausible
from qjoule.model.fit.observed import Rows
from qjoule.model.zones import Part, Zone

#: Number of classes that have their own column, before their weights are known.
_MOST_CLASSES = 256

#: Power models that are linear in counters miss by a few per cent of the power above idle, more on
#: some loads (McCullough et al., "Evaluating the effectiveness of model-based power
#: characterization", USENIX ATC 2011). Time alone does not reflect frequency or contention.
_BEND_COUNTERS, _BEND_TIME = 0.02, 0.08

#: Windows that lost more than this share of their busy time are not used for learning.
_MOST_LOST = 0.1

#: Rows used for learning last this many periods of the counter, if there are this many such rows.
_SETTLED_PERIODS, _LEAST_ROWS = 48, 64

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

    `classes`, or else the classes that ran longest, have a column each; all others share the last
    one.
    """
    views = [[zone.view(batch) for batch in batches] for zone in source.places]
    taken = [
        [zone.take(view) for view in mine] for zone, mine in zip(source.places, views, strict=True)
    ]
    flat = [part.entries for zone in taken for part in zone]
    counters = any(by_counters(entries, source.weights) for entries in flat)
    if classes is None:
        classes = _longest(flat, source.class_of)
    made = [
        _zone_columns(views[z], source, z, taken[z], classes) for z in range(len(source.places))
    ]
    power, known, active, crowds, features, effects = (
        _along([getattr(one, name) for one in made])
        for name in ("power_w", "known", "active", "crowd", "features", "effects")
    )
    lengths_ns = np.diff(views[0][0].energy.boundaries_ns)
    rows = Rows(
        power,
        known,
        np.repeat(np.arange(len(made)), [len(one.power_w) for one in made]),
        active,
        crowds,
        features,
        classes,
        effects,
        np.array([one.edge_w for one in made]),
        max(float(np.median(lengths_ns)) * 1e-9, 1e-9) if len(lengths_ns) else 1.0,
        _BEND_COUNTERS if counters else _BEND_TIME,
    )
    return rows, counters


def _longest(flat: Sequence[Entries], class_of: ClassOf) -> I64:
    """The classes that ran longest, sorted."""
    classes, index = np.unique(
        np.concatenate([class_of(entries.group) for entries in flat]), return_inverse=True
    )
    if len(classes) > _MOST_CLASSES:
        ns = np.concatenate([entries.cpu_ns for entries in flat])
        spent = np.bincount(index.reshape(-1), ns)
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
    z: int,
    taken: Sequence[Part],
    classes: I64,
) -> _Columns:
    numbers = list(source.places[z].series)
    dt_ns = np.concatenate([part.load.dt_ns for part in taken]).astype(np.float64)
    safe_ns = np.maximum(dt_ns, 1.0)
    # Lost time is assumed to be like the rest of its window; with too much of it, the window is
    # not used.
    lost_ns = np.concatenate([part.load.lost_ns for part in taken])
    busy_ns = np.concatenate([part.busy_ns for part in taken])
    with_lost = 1.0 + lost_ns / np.where(busy_ns > 0, busy_ns, 1.0)
    known = (dt_ns > 0) & (lost_ns <= _MOST_LOST * busy_ns)
    known &= np.concatenate([b.energy.known[numbers].all(axis=0) for b in batches])
    known &= np.concatenate([_plausible(part) for part in taken])
    # All edge errors are assumed to be alike. Between a late reading and a punctual one, the
    # window may be shorter than the counter's own period: its power is meaningless.
    if known.any():
        known &= dt_ns >= 0.5 * np.median(dt_ns[known])
    nj = np.concatenate([b.energy.energy_nj[numbers].sum(axis=0) for b in batches])
    half_ns = np.concatenate([b.energy.half_width_ns[numbers].max(axis=0) for b in batches])
    by_class = [_by_class(part, classes, source.class_of) for part in taken]
    features, crowds = (_along([one[i] for one in by_class]) for i in (0, 1))
    features *= (with_lost / safe_ns)[:, None, None]
    power = np.where(known, nj, 0) / safe_ns
    return _Columns(
        power,
        known,
        np.concatenate([part.load.active_ns for part in taken]) / safe_ns,
        crowds,
        features,
        np.concatenate([_effects(part) for part in taken]) * (with_lost / safe_ns)[:, None],
        _edge_w(source, numbers, power[known], dt_ns[known], half_ns[known]),
    )


def _along(parts: Sequence[Any]) -> Any:
    """The parts joined; a single one is not copied."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _effects(part: Part) -> F64:
    """(windows, 21): sums of the entries' effects."""
    return _sums_of_rows(part.entries.window, part.entries.effects, len(part.load.dt_ns))


def _sums_of_rows(index: I64, values: F64, size: int) -> F64:
    """(size, m): sums of the rows of `values` (n, m) by `index` (n,), added in their order."""
    sums = np.zeros((size, values.shape[1]))
    factor, row = np.ones(len(index)), np.arange(len(index))
    values = np.ascontiguousarray(values)
    add_products(sums, factor, np.ascontiguousarray(index), row, values, values.shape[1])
    return sums


def _plausible(part: Part) -> Bool:
    """(windows,) whether a core could have counted all the counters' values."""
    out = np.ones(len(part.load.dt_ns), bool)
    out[part.entries.window[~plausible(part.entries)]] = False
    return out


def _edge_w(source: Source, numbers: list[int], power_w: F64, dt_ns: F64, half_ns: I64) -> float:
    """Standard error of a window edge, as power: update period, width of reading, unit."""
    if not len(power_w):
        return 0.0
    mean_w = float(power_w.mean())
    units = [source.series[s].unit_j * 1e9 for s in numbers if source.series[s].has_unit]
    variance = (mean_w * source.period_ns) ** 2 / 12 + (mean_w * half_ns.mean()) ** 2 / 3
    return float(np.sqrt(variance + sum(unit**2 for unit in units) / 12) / dt_ns.mean())


def _by_class(part: Part, classes: I64, class_of: ClassOf) -> tuple[F64, F64]:
    """(windows, classes + 1, 10): sums of features; (windows, classes + 1): the number of busy
    cores meanwhile.

    The last class is all others together.
    """
    entries, windows, size = part.entries, len(part.load.dt_ns), len(classes) + 1
    which = class_of(entries.group)
    at = np.zeros(len(which), np.int64)
    if len(classes):
        at = np.minimum(np.searchsorted(classes, which), len(classes) - 1)
        at = np.where(classes[at] == which, at, len(classes))
    key = entries.window * size + at
    ns = entries.cpu_ns.astype(np.float64)
    out = _sums_of_rows(key, part.features, windows * size)
    crowd = real_sums(key, part.crowd * ns, len(out))
    crowd /= np.maximum(real_sums(key, ns, len(out)), 1.0)
    return out.reshape(windows, size, len(FEATURES)), crowd.reshape(windows, size)


def thinned(rows: Rows, width: int) -> Rows:
    """Replaces each `width` neighbours by their mean, which is unknown if one of them is.

    Rows left over at a zone's end are dropped.
    """
    if width < 2:
        return rows
    whole = np.concatenate(
        [
            mine[: len(mine) // width * width].reshape(-1, width)
            for mine in (np.flatnonzero(rows.zone == z) for z in range(len(rows.edge_w)))
        ]
    )
    return replace(
        rows,
        power_w=rows.power_w[whole].mean(axis=1),
        known=rows.known[whole].all(axis=1),
        zone=rows.zone[whole[:, 0]],
        active=rows.active[whole].mean(axis=1),
        crowd=rows.crowd[whole].mean(axis=1),
        features=rows.features[whole].mean(axis=1),
        effects=rows.effects[whole].mean(axis=1),
        edge_w=rows.edge_w / width,
        step_s=rows.step_s * width,
    )


def settled(rows: Rows, period_ns: int) -> int:
    """How many neighbours must be joined so that errors at a row's ends do not matter.

    A counter shows the energy of up to one period ago, so the energy of what ran near a window's
    ends may be counted in the neighbouring window. That is an error of the regressors, not of the
    power. It biases coefficients towards zero and power at rest upwards ("regression dilution":
    Fuller, Measurement Error Models, Wiley 1987). The bias depends on the error's size relative to
    the variation of the loads, and it falls with the length of the rows. A short trace keeps enough
    rows for a fit.
    """
    wanted = -(-_SETTLED_PERIODS * period_ns // max(round(rows.step_s * 1e9), 1))
    return int(np.clip(wanted, 1, max(len(rows.power_w) // len(rows.edge_w) // _LEAST_ROWS, 1)))


def spread_out(values: F64, thin: Rows, rows: Rows) -> F64:
    """Interpolates values of merged rows to all rows, between the middles of the merged ones."""
    out = np.zeros(len(rows.power_w))
    for z in range(len(rows.edge_w)):
        mine, few = np.flatnonzero(rows.zone == z), np.flatnonzero(thin.zone == z)
        if len(few):
            out[mine] = np.interp(_middles_s(rows, mine), _middles_s(thin, few), values[few])
    return out


def _middles_s(rows: Rows, mine: I64) -> F64:
    """Middles of consecutive rows, from the begin of the first."""
    lengths_s = rows.lengths_s[mine]
    return np.asarray(np.cumsum(lengths_s) - 0.5 * lengths_s)
